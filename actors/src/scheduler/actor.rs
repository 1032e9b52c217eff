//! The Scheduler's shell: messages in, leases out.

use std::collections::HashMap;
use std::time::Duration;

use tracing::{info, warn};

use super::protocol::{Placement, Refusal, SchedulerMsg};
use super::state::{Effect, Event, SchedulerOptions, State};
use crate::ids::{Epoch, JobId, NodeId};
use crate::owner::{self, OwnerMsg};
use crate::shell::{Actor, Post, Reply, Scope};

/// Ticks come at least this often while there are jobs.
const TICK_MAX: Duration = Duration::from_secs(1);
const TICK_MIN: Duration = Duration::from_millis(20);

/// The actor.
pub struct Scheduler {
    post: Post,
    state: State,
    asks: HashMap<u64, Reply<Result<Placement, Refusal>>>,
    next_ask: u64,
    effects: Vec<Effect>,
}

impl Scheduler {
    /// A Scheduler of this reign.
    pub fn new(post: Post, epoch: Epoch, options: SchedulerOptions) -> Self {
        Self { post, state: State::new(epoch, options), asks: HashMap::new(), next_ask: 0, effects: Vec::new() }
    }

    fn event(&mut self, message: SchedulerMsg) -> Option<Event> {
        Some(match message {
            SchedulerMsg::NodeUp(spec) => Event::NodeUp(spec),
            SchedulerMsg::NodeDown { node, incarnation, reason } => {
                info!(node = %node, reason, "node down");
                Event::NodeDown { node, incarnation }
            }
            SchedulerMsg::SubmitJob { job, tenant, functions, reply } => {
                self.next_ask += 1;
                self.asks.insert(self.next_ask, reply);
                Event::Submit { ask: self.next_ask, job, tenant, functions }
            }
            SchedulerMsg::Demand(demand) => Event::Demand(demand),
            SchedulerMsg::Release { job, lease } => Event::Release { job, lease },
            SchedulerMsg::JobDone { job } => Event::JobDone { job },
            SchedulerMsg::ListNodes { reply } => {
                self.post.answer(reply, self.state.nodes());
                return None;
            }
            SchedulerMsg::ListJobs { reply } => {
                self.post.answer(reply, self.state.jobs());
                return None;
            }
            SchedulerMsg::Tick => Event::Tick,
        })
    }

    fn tell(&self, job: JobId, owner: &NodeId, message: OwnerMsg) {
        if let Err(error) = self.post.address::<OwnerMsg>(owner, &owner::actor_name(job)).send(message) {
            // The Owner has just ended, or its node is gone: JobDone or NodeDown says so.
            tracing::debug!(job_id = %job, %error, "owner not told");
        }
    }
}

impl Actor for Scheduler {
    type Message = SchedulerMsg;

    fn started(&mut self, scope: &mut Scope<'_, Self>) {
        scope.after(TICK_MAX, SchedulerMsg::Tick);
    }

    fn handle(&mut self, message: SchedulerMsg, scope: &mut Scope<'_, Self>) {
        let tick = message == SchedulerMsg::Tick;
        let now = self.post.clock().now();
        if let Some(event) = self.event(message) {
            self.state.on(now, event, &mut self.effects);
        }
        if tick {
            let wakeup = self.state.next_wakeup().map_or(TICK_MAX, |at| at.saturating_sub(now));
            scope.after(wakeup.clamp(TICK_MIN, TICK_MAX), SchedulerMsg::Tick);
        }
    }

    fn flush(&mut self, _scope: &mut Scope<'_, Self>) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Leases { job, owner, leases } => self.tell(job, &owner, OwnerMsg::Leases { leases }),
                Effect::Wait { job, owner, wait: Some(wait) } => {
                    self.tell(job, &owner, OwnerMsg::Unplaceable { reason: wait.reason, ever: wait.ever });
                }
                Effect::Wait { wait: None, .. } => {}
                Effect::Answer { ask, answer } => {
                    if let Some(reply) = self.asks.remove(&ask) {
                        self.post.answer(reply, answer);
                    }
                }
                Effect::HomeLost { job, node } => {
                    // The client learns it from the silence of the host; picking jobs up is recovery's part.
                    warn!(job_id = %job, node = %node, "host of the job died");
                }
            }
        }
    }
}
