//! What nodes do for tasks: arguments are fetched, executors run, objects are made.

use std::time::Duration;

use bytes::Bytes;
use exobus_store::Block;

use super::{At, What, World};
use crate::ids::{CopyId, CopyNumber, NodeId, ObjectId};
use crate::node_manager::{Arguments, Key, NodeEvent, Piece, Report, StagingDone, Waits, lost};
use crate::owner::{OwnerEvent, ReadError};
use crate::registry::VALUE_MAX_BYTES;
use crate::simulation::acts::Reads;
use crate::simulation::node::{Running, number_of};
use crate::simulation::program::{Digest, Made, Params, sum};
use crate::simulation::store::Found;
use crate::task::{Consumed, FailureKind, Loss, Parts, Returns, TaskFailure, TaskFigures};

impl World {
    /// Whether one node can fetch from another, and whether it would know at once that it cannot.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let other = &self.nodes[to];
        other.process.is_some() && !other.frozen && !self.no_fetch.contains_key(&(from, to))
    }

    pub(super) fn stage(&mut self, at: At, key: Key, arguments: Arguments, until: Duration) {
        let (mut reads, mut gone, mut silent, mut released) =
            (Reads::new(), Vec::new(), Vec::new(), None::<(CopyId, NodeId)>);
        for (position, arg) in arguments.iter().enumerate() {
            let mut read = Vec::new();
            for Piece { name, at: holder, parts } in arg {
                let (object, _) = ObjectId::of_copy(*name);
                let Some(holder) = holder else {
                    read.push((object, self.oracle.truth.nothing(object, *parts)));
                    continue;
                };
                let index = number_of(holder);
                if index != at.node && !self.reaches(at.node, index) {
                    silent.extend(lost(*name, holder, Loss::Unreachable));
                    continue;
                }
                let process = self.nodes[index].process.as_ref().expect("it can be reached");
                match process.store.find(*name, *parts) {
                    Found::Here(parts) => read.push((object, parts)),
                    Found::Absent => gone.extend(lost(*name, holder, Loss::Gone)),
                    // Nodes say of such a copy that it is gone, which costs an attempt; those who have declared what they read find what they need.
                    Found::Released if self.oracle.truth.is_undeclared(key.1, position) => {
                        self.oracle.took(holder, *name);
                        gone.extend(lost(*name, holder, Loss::Gone));
                    }
                    Found::Released => released = Some((*name, holder.clone())),
                }
            }
            reads.push(read);
        }
        let outcome = if !gone.is_empty() {
            Err(TaskFailure::argument_lost("gone", gone))
        } else if let Some((copy, holder)) = released {
            self.note(Some(at.node), || format!("parts of {copy} are released on {holder}, which it wants"));
            Err(TaskFailure::new(FailureKind::Error, "parts that it reads are released"))
        } else if let Some(first) = silent.first() {
            let membership = &self.nodes[at.node].process.as_ref().expect("it is now").actors.membership.state();
            let dead = membership.health(&first.node).is_some_and(|health| health.is_gone());
            if !dead && self.now < until {
                let pause = self.dice.millis(50..500);
                return self.after(pause, What::Staged { at, key, arguments, until });
            }
            silent.truncate(1);
            Err(TaskFailure::argument_lost("unreachable", silent))
        } else if !self.healed && self.plan.failures > 0 && self.dice.chance(self.plan.failures) {
            Err(TaskFailure { needs_bytes: 1 << 20, ..TaskFailure::new(FailureKind::Denied, "no memory") })
        } else {
            Ok((reads, Waits::default()))
        };
        if let Err(failure) = &outcome {
            self.note(Some(at.node), || format!("{:.8} #{} not staged: {failure}", key.1, key.2));
        }
        self.staged(at.node, key, outcome);
    }

    /// The arguments of an attempt are there, or cannot be had.
    pub(super) fn staged(&mut self, node: usize, key: Key, outcome: Result<(Reads, Waits), TaskFailure>) {
        let event = NodeEvent::Staged(Box::new(StagingDone { key, outcome }));
        self.with(node, |process, around, done| process.manager_event(event, around, done));
    }

    pub(super) fn read(&mut self, at: At, read: u64, (copy, parts, from): (CopyId, Parts, NodeId), until: Duration) {
        let index = number_of(&from);
        let found = match self.reaches(at.node, index) {
            true => self.nodes[index].process.as_ref().map(|process| process.store.find(copy, parts)),
            false => None,
        };
        let outcome = match found {
            Some(Found::Here(made)) => {
                self.oracle.given(ObjectId::of_copy(copy).0, parts, &made);
                Ok(Block::empty())
            }
            None if self.now < until => {
                let pause = self.dice.millis(50..500);
                return self.after(pause, What::Read { at, read, copy, parts, from, until });
            }
            Some(Found::Released | Found::Absent) | None => Err(ReadError::Unreadable),
        };
        let event = OwnerEvent::Read { read, outcome };
        self.with(at.node, |process, around, done| process.owner_event(event, around, done));
    }

    /// Idle executors take what is handed out.
    pub(super) fn run_executors(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        loop {
            let Some(process) = self.nodes[node].process.as_mut().filter(|process| !process.fenced) else { return };
            if process.executors.running.len() >= process.slots {
                return;
            }
            let Some(work) = process.executors.queue.pop_front() else { return };
            if !work.flags.start(self.now) {
                continue;
            }
            self.runs += 1;
            let run = self.runs;
            let fails = !self.healed && self.dice.chance(self.plan.failures);
            self.oracle.work.failed += u64::from(fails);
            let task = work.spec.id;
            process.executors.running.insert(run, Running { work, begun: self.now, sealed: 0, fails });
            self.oracle.begun(task);
            let slow = !self.healed && self.dice.chance(self.plan.stragglers);
            self.oracle.work.slow += u64::from(slow);
            let takes = if slow { self.dice.millis(3000..15_000) } else { self.dice.millis(1..self.plan.task_ms) };
            self.after(takes, What::Executor { node, boot, run });
        }
    }

    /// An executor has come to an output of a stream, or to the end.
    pub(super) fn execute(&mut self, node: usize, run: u64) {
        let boot = self.nodes[node].boot;
        let process = self.nodes[node].process.as_mut().expect("looked before");
        let Some(mut running) = process.executors.running.remove(&run) else { return };
        let spec = running.work.spec.clone();
        let (job, task, attempt) = (spec.job, spec.id, spec.attempt);
        let (params, incarnation) = (Params::decode(&spec.params), running.work.incarnation);
        let mut digest = Digest::new();
        for (object, parts) in running.work.reads.iter().flatten() {
            digest.read(*object, parts);
        }
        let digest = digest.finish();
        let make = |index: u32| params.make(task.output(index), digest);
        let copy = |index: u32| task.output(index).copy(job, attempt.makes());
        let maker = attempt.makes();
        let cancelled = running.work.flags.is_cancelled();
        let report =
            if spec.returns == Returns::Stream && running.sealed < params.stream && !cancelled && !running.fails {
                let index = running.sealed;
                running.sealed += 1;
                let made = make(index);
                let output = sum(&made);
                self.seal(node, copy(index), &made, maker);
                let process = self.nodes[node].process.as_mut().expect("looked before");
                process.executors.running.insert(run, running);
                let takes = self.dice.millis(1..self.plan.task_ms);
                self.after(takes, What::Executor { node, boot, run });
                Report::Yielded { job, task, attempt, index, output }
            } else {
                let micros = (self.now - running.begun).as_micros() as u64;
                let figures = TaskFigures { micros, ..TaskFigures::default() };
                // A stream says of each output when it has sealed it: one that ends before its end has failed.
                let breaks_off = spec.returns == Returns::Stream && running.sealed < params.stream;
                let stops = cancelled && (self.dice.chance(500) || breaks_off);
                let mut value = None;
                let outcome = if stops || running.fails {
                    let kind = if stops { FailureKind::Cancelled } else { FailureKind::Error };
                    // Some outputs may be complete by then.
                    if let Returns::Many(outputs) = spec.returns {
                        (1..outputs).for_each(|index| self.seal(node, copy(index), &make(index), maker));
                    }
                    Err(TaskFailure::new(kind, "it did not end well"))
                } else {
                    let outputs: Vec<Made> = (0..params.outputs(spec.returns)).map(make).collect();
                    for (index, made) in (0..).zip(&outputs) {
                        self.oracle.made(task, index, made);
                        self.seal(node, copy(index), made, maker);
                    }
                    self.oracle.work.completed += 1;
                    value = returned(&outputs);
                    let read = |(arg, pieces): (usize, &Vec<(ObjectId, Made)>)| {
                        let parts: Made = pieces.iter().flat_map(|(_, parts)| parts.iter().copied()).collect();
                        Consumed { arg: arg as u32, read: sum(&parts), ..Consumed::default() }
                    };
                    let consumed = running.work.reads.iter().enumerate().map(read).collect();
                    Ok((outputs.iter().map(|made| sum(made)).collect(), consumed))
                };
                let how = if outcome.is_ok() { "is done" } else { "did not end well" };
                self.note(Some(node), || format!("{} {task:.8} #{attempt} {how}", spec.function));
                Report::Finished { job, task, attempt, outcome, figures, value }
            };
        // A NodeManager that is gone needs no reports.
        if self.place(node).is_some_and(|now| now.incarnation == incarnation) {
            self.with(node, |process, around, done| {
                process.manager_event(NodeEvent::Executor(report), around, done);
            });
        }
        self.run_executors(node);
    }

    /// The process of an executor is gone, and the attempt that it ran.
    pub(super) fn executor_dies(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let runs: Vec<u64> = process.executors.running.keys().copied().collect();
        let Some(Running { work, begun, .. }) =
            self.dice.pick(&runs).and_then(|run| process.executors.running.remove(run))
        else {
            return;
        };
        let (job, task, attempt) = (work.spec.job, work.spec.id, work.spec.attempt);
        self.note(Some(node), || format!("the executor of {task:.8} #{attempt} dies"));
        let figures = TaskFigures { micros: (self.now - begun).as_micros() as u64, ..TaskFigures::default() };
        let outcome = Err(TaskFailure::new(FailureKind::ExecutorLost, "it was killed"));
        if self.place(node).is_some_and(|now| now.incarnation == work.incarnation) {
            let report = Report::Finished { job, task, attempt, outcome, figures, value: None };
            self.with(node, |process, around, done| {
                process.manager_event(NodeEvent::Executor(report), around, done);
            });
        }
        self.run_executors(node);
    }

    pub(super) fn seal(&mut self, node: usize, copy: CopyId, made: &Made, maker: CopyNumber) {
        // What has no bytes is nowhere.
        if sum(made).bytes == 0 {
            return;
        }
        if let Some(process) = &mut self.nodes[node].process
            && !process.store.seal(copy, made, maker)
        {
            self.oracle.found(|| format!("n{node} has another copy of the name {copy}"));
        }
    }
}

/// What a function returns as its value: here that is each single output that is small.
fn returned(outputs: &[Made]) -> Option<Bytes> {
    let [made] = outputs else { return None };
    let [part] = made[..] else { return None };
    (1..=VALUE_MAX_BYTES as u64).contains(&part.bytes).then(|| vec![0; part.bytes as usize].into())
}
