//! Which jobs there are, where they are hosted, and which are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Effect, Job, OVER_MAX, State};
use crate::ids::{JobId, NodeId};
use crate::protocol::scheduler::{Placement, Refusal};
use crate::scheduler::event::UnfinishedJob;
use crate::scheduler::plan;

impl State {
    pub(super) fn submit(
        &mut self,
        now: Duration,
        id: JobId,
        tenant: Arc<str>,
        functions: &[Arc<str>],
    ) -> Result<Placement, Refusal> {
        if self.over.contains(&id) {
            return Err(Refusal::Over);
        }
        if let Some(home) = self.jobs.get(&id).and_then(|job| job.home.clone()) {
            return Ok(home);
        }
        let up = || self.nodes.iter().filter(|(_, node)| node.up);
        if up().next().is_none() {
            return Err(Refusal::NoNodes);
        }
        let able = up().filter(|(_, node)| functions.iter().all(|function| node.spec.functions.contains(function)));
        let free = self.free();
        // Least loaded: fewest jobs hosted, then most free of what is scarcest.
        let best = able.min_by_key(|(name, node)| {
            let part = node.spec.resources.0.iter().filter(|(_, all)| **all > 0).map(|(kind, all)| {
                u64::MAX - (u128::from(free[*name].get(kind)) * u128::from(plan::WHOLE) / u128::from(*all)) as u64
            });
            (self.hosts(name), part.max().unwrap_or(u64::MAX), (*name).clone())
        });
        let Some((name, node)) = best else {
            let lacks = |function: &&Arc<str>| up().any(|(_, node)| !node.spec.functions.contains(function));
            let missing = functions.iter().find(lacks).cloned().unwrap_or_else(|| "".into());
            let nodes = up().filter(|(_, node)| !node.spec.functions.contains(&missing));
            let nodes = nodes.map(|(name, _)| name.as_str().to_owned()).collect();
            return Err(Refusal::UnknownFunction { missing, nodes });
        };
        let home = Placement { node: name.clone(), incarnation: node.spec.incarnation };
        self.job(now, id, tenant).home = Some(home.clone());
        Ok(home)
    }

    /// Jobs that nobody hosts, as far as is known, are given a host. What an Owner that was not heard of is still doing comes to
    /// nothing: whoever opens the log runs the job.
    pub(super) fn take_up(&mut self, now: Duration, jobs: Vec<UnfinishedJob>, effects: &mut Vec<Effect>) {
        for (id, tenant, functions) in jobs {
            if let Some((job, home)) = self.jobs.get(&id).and_then(|job| Some((job, job.home.as_ref()?))) {
                // It may not have been told; where it was, it is told twice.
                let told = (!job.speaks(now, &self.options)).then(|| Effect::Resume { job: id, on: home.node.clone() });
                effects.extend(told);
                continue;
            }
            let on = match self.submit(now, id, tenant, &functions) {
                Ok(Placement { node, .. }) => Some(node),
                // Its host was gone before it had written down how it ended. Whoever opens the log does that, and says that it is over; or runs
                // the job, where its end was lost with a server that was emptied.
                Err(Refusal::Over) => {
                    self.has_no_end(id);
                    self.nodes.iter().find(|(_, node)| node.up).map(|(name, _)| name.clone())
                }
                // It is asked for again later.
                Err(_) => None,
            };
            effects.extend(on.map(|on| Effect::Resume { job: id, on }));
        }
    }

    /// The record of a job, made when it is new.
    pub(super) fn job(&mut self, now: Duration, id: JobId, tenant: Arc<str>) -> &mut Job {
        let job = self.jobs.entry(id).or_insert_with(|| Job {
            tenant: Arc::clone(&tenant),
            home: None,
            sequence: 0,
            shapes: Vec::new(),
            heard_at: now,
            used: 0,
            lent_since: None,
            share: 0,
            wait: None,
        });
        job.heard_at = now;
        job
    }

    /// A job that wants something after it wanted nothing has no claim for the time in which it wanted nothing.
    pub(super) fn join(&mut self, now: Duration, id: JobId, tenant: &Arc<str>) {
        let wanting = || self.jobs.iter().filter(|(other, job)| **other != id && !job.shapes.is_empty());
        let least = wanting().filter(|(_, job)| job.tenant == *tenant).map(|(_, job)| job.used).min();
        let least_of_tenants = wanting().filter_map(|(_, job)| self.tenants_used.get(&job.tenant)).min().copied();
        let alone_in_tenant = least.is_none();
        let job = self.job(now, id, Arc::clone(tenant));
        job.used = job.used.max(least.unwrap_or(0));
        if alone_in_tenant {
            let used = self.tenants_used.entry(Arc::clone(tenant)).or_default();
            *used = (*used).max(least_of_tenants.unwrap_or(0));
        }
    }

    pub(super) fn job_done(&mut self, id: JobId) {
        if self.jobs.remove(&id).is_some() {
            self.loans.retain(|(job, _), _| *job != id);
            self.stale = true;
        }
        if !self.over.contains(&id) {
            self.over.push_back(id);
            if self.over.len() > OVER_MAX {
                self.over.pop_front();
            }
        }
    }

    /// A node has something of these jobs. It may have been away when one of them ended.
    pub(super) fn holds(&mut self, now: Duration, node: &NodeId, jobs: Vec<JobId>, effects: &mut Vec<Effect>) {
        for job in jobs {
            // One that is known may be known from an Owner that had been replaced, and has gone since.
            if self.jobs.get(&job).is_some_and(|job| job.speaks(now, &self.options)) {
                self.strangers.remove(&job);
                continue;
            }
            let since = *self.strangers.entry(job).or_insert(now);
            let looked = self.unfinished.as_ref().filter(|(at, _)| *at >= since);
            // An Owner that lives speaks every second, wherever the Scheduler is.
            let silent = now >= since + self.options.orphan_after;
            if self.over.contains(&job) || looked.is_some_and(|(_, unfinished)| silent && !unfinished.contains(&job)) {
                effects.push(Effect::EndJob { node: node.clone(), job });
            } else if looked.is_none() {
                effects.push(Effect::Look);
            }
        }
    }

    /// Jobs of which nothing was heard for long, and that have nothing, are gone.
    pub(super) fn forget(&mut self, now: Duration) {
        let limit = self.options.forget_after;
        let with_loans: BTreeSet<_> = self.loans.keys().map(|(job, _)| *job).collect();
        self.jobs.retain(|id, job| now.saturating_sub(job.heard_at) < limit || with_loans.contains(id));
        // Who has nothing of it any more does not say so.
        self.strangers.retain(|_, since| now.saturating_sub(*since) < limit);
        let tenants: BTreeSet<_> = self.jobs.values().map(|job| Arc::clone(&job.tenant)).collect();
        self.tenants_used.retain(|tenant, _| tenants.contains(tenant));
    }
}
