//! What an executor process is lent for an attempt, and the answers to its questions.

use std::io;

use exobus_store::lent::{Desk, LentError, Loan, Place};
use exobus_store::{Scratch, Store, StoreError, WriterOptions};

use super::wire::{Answer, LentArgument, LentInPlace, Run, Said};
use crate::ids::CopyId;
use crate::registry::Roots;
use crate::registry::{Argument, Granted, InPlace};
use crate::task::TaskSpec;

/// Most bytes of an object in place that are read at a time: they are copied.
const IN_PLACE_MAX_BYTES: u64 = 1 << 20;

/// Everything that a process has been lent.
pub(super) struct Lending {
    desk: Desk,
    /// Of the attempt that runs.
    in_place: Vec<InPlace>,
}

impl Lending {
    pub(super) fn new(store: Store) -> Self {
        Self { desk: Desk::new(store), in_place: Vec::new() }
    }

    /// Lends what an attempt starts with.
    pub(super) fn run(
        &mut self,
        serial: u64,
        (spec, roots): (&TaskSpec, &Roots),
        args: Vec<Argument>,
        memory: Granted,
    ) -> Run {
        self.in_place.clear();
        let outside = memory.outside.map_or(0, |granted| self.desk.lend_outside(granted));
        Run {
            serial,
            roots: roots.paths(),
            function: spec.function.to_string(),
            params: spec.params.clone(),
            job: spec.job,
            task: spec.id,
            attempt: spec.attempt,
            returns: spec.returns,
            target_bytes: spec.target_bytes,
            align: spec.align,
            args: args.into_iter().map(|argument| self.argument(argument)).collect(),
            scratch: self.lend(memory.scratch),
            windows: self.lend(memory.windows),
            outside_bytes: outside,
        }
    }

    fn lend(&mut self, memory: Vec<Scratch>) -> Vec<(u32, Place)> {
        memory.into_iter().map(|scratch| self.desk.lend_scratch(scratch)).collect()
    }

    fn argument(&mut self, argument: Argument) -> LentArgument {
        match argument {
            Argument::Whole(blocks) => {
                LentArgument::Whole(blocks.into_iter().map(|block| self.desk.lend_block(block)).collect())
            }
            Argument::Stream(readers) => {
                LentArgument::Stream(readers.into_iter().map(|reader| self.desk.lend_stream(reader)).collect())
            }
            Argument::InPlace(objects) => {
                let lend = |object: InPlace| {
                    let (meta, parts) = object.describe();
                    let number = self.in_place.len() as u32;
                    let parts = (parts.start as u64, parts.end as u64);
                    let lent = LentInPlace { number, meta: meta.cloned(), parts };
                    self.in_place.push(object);
                    lent
                };
                LentArgument::InPlace(objects.into_iter().map(lend).collect())
            }
        }
    }

    /// How much memory beside the store the functions of the process were granted.
    pub(super) fn outside_bytes(&self) -> u64 {
        self.desk.outside_bytes()
    }

    pub(super) fn given_back(&mut self, loans: Vec<Loan>) {
        loans.into_iter().for_each(|loan| self.desk.given_back(loan));
    }

    /// The answer to a question that the attempt of `spec` asks; `None`: it was none. An error of the store is an answer.
    pub(super) fn answer(&mut self, spec: &TaskSpec, said: Said) -> Option<Answer> {
        let may_write = |object, options: &WriterOptions| may_write(spec, object, options);
        let answer = match said {
            Said::Room { writer, steps } => self.desk.room(writer, &steps, &may_write).map(Answer::Room),
            Said::Seal { writer, steps } => self.desk.seal(writer, &steps, &may_write).map(Answer::Sealed),
            Said::NextChunk { reader } => self.desk.next_chunk(reader).map(Answer::Chunk),
            Said::Scratch { bytes } => self.desk.scratch(bytes).map(|(loan, place)| Answer::Scratch(loan, place)),
            Said::Outside { more_bytes } => return Some(self.more_outside(more_bytes)),
            Said::ReadInPlace { number, offset, bytes } => self.read(number, offset, bytes).map(Answer::Bytes),
            Said::Ready | Said::Nothing | Said::Yielded { .. } | Said::Finished(_) => return None,
        };
        Some(answer.unwrap_or_else(|error| Answer::Failed(LentError::from(&error))))
    }

    /// The answer to who wants more memory beside the store: threads of functions may, when their attempt is over.
    pub(super) fn more_outside(&mut self, more_bytes: u64) -> Answer {
        match self.desk.outside(more_bytes) {
            Ok(()) => Answer::Granted,
            Err(error) => Answer::Failed(LentError::from(&error)),
        }
    }

    fn read(&self, number: u32, offset: u64, bytes: u64) -> Result<Vec<u8>, StoreError> {
        let object = self.in_place.get(number as usize).filter(|_| bytes <= IN_PLACE_MAX_BYTES);
        let object = object.ok_or_else(|| StoreError::Lender(format!("{bytes} bytes of object {number} in place")))?;
        let mut read = vec![0; bytes as usize];
        object.read(offset, &mut read)?;
        Ok(read)
    }

    /// The attempt is over.
    pub(super) fn finished(&mut self) {
        self.in_place.clear();
    }
}

/// Whether an attempt may make an object: one of its own outputs, in its own name, aligned as the task says.
fn may_write(spec: &TaskSpec, object: CopyId, options: &WriterOptions) -> bool {
    options.maker == spec.attempt.makes().get() && options.align == spec.align && spec.may_make(object)
}

/// An error for what the other side should not have said.
pub(super) fn out_of_turn(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the executor process said {what} out of turn"))
}
