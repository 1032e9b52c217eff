//! The door: what everybody outside a cluster asks of it, in JSON, on `api.<tenant>.<verb>`. Any node may be asked, and is as good as any other.
//!
//! | verb      | request                                                            | answer                                              |
//! |-----------|--------------------------------------------------------------------|-----------------------------------------------------|
//! | `submit`  | a spec, TOML or JSON                                               | `{"job", "state"}`                                  |
//! | `explain` | a spec                                                             | what would run, over how many bytes, what it takes    |
//! | `status`  | `{"job"}`, or an id alone                                          | how it stands with the job                          |
//! | `list`    | `{"all", "limit", "next"}`, all optional                           | `{"jobs", "next"}`, the latest first                |
//! | `watch`   | `{"job", "after", "wait_ms"}`                                      | as `status`, when there is something after `after`  |
//! | `events`  | `{"job", "after", "wait_ms", "limit"}`                             | what has happened since                             |
//! | `estimate` | `{"job", "after", "wait_ms"}`                                     | what its result looks like by now                   |
//! | `tell`    | `{"job", "word"}`, `enough` or `go_on`                            | `{"job", "state"}`, when its program has heard it  |
//! | `cancel`  | `{"job"}`                                                          | `{"job", "state"}`: what it has become              |
//! | `why`     | `{"job"}`                                                          | what it waits for                                   |
//! | `value`   | `{"job"}`                                                          | what its program returned                           |
//! | `logs`    | `{"job"}`                                                          | the subject on which the job prints                 |
//! | `nodes`   | nothing                                                            | the nodes of the cluster                            |
//! | `cluster` | nothing                                                            | its Scheduler, sums of its nodes, the kinds of jobs |
//! | `result`  | see [results](crate::results)                                      | bytes that the job has kept                         |
//!
//! What cannot be done is answered with the header `Exo-Error` (a code) and `{"error": {"code", "message", "at"}}`; `at` says where in a spec.
//! Ids may be cut to their first digits, six or more.
//!
//! # Who may ask
//! Who may publish on the subject, by the permissions of the NATS server. Where submitters have a token, what makes or ends jobs (`submit`,
//! `explain`, `cancel`) needs it in the header `Exobus-Token`.
//!
//! # Promises
//! - Nothing is kept for anybody between two requests. [`WORK_MAX`] requests are worked on at a time on a node, [`WAITS_MAX`] wait for something
//!   to happen; who comes beyond that is answered at once, and asks again.
//! - `submit` answers when the job is durable. Who gets no answer asks again with the same key, and has one job.

mod answer;
mod door;
mod explain;
mod look;
mod submit;

pub(crate) use answer::MSGPACK;
pub use answer::{ApiError, ERROR, Standing};
pub(crate) use door::{Door, DoorCalls, HANDED_ON};
pub use door::{ENCODING, EXPLAIN, JOB, SAMPLE_MS, TOKEN, WAITS_MAX, WHO, WORK_MAX};
