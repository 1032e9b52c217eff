//! What the cores of the campaign and of Membership want done, on a node.

use super::{Around, Done, Process, number_of};
use crate::election::{CampaignEffect, CampaignEvent, LeaseQuestion};
use crate::membership::{Change, MembershipEffect, MembershipEvent};
use crate::owner::OwnerEvent;
use crate::protocol::membership::{Beat, Figures};
use crate::simulation::acts::{Cx, Timer, Who};
use crate::simulation::server::Question;

impl Process {
    /// Something happens to the candidate.
    pub(super) fn campaign(&mut self, event: CampaignEvent, around: &mut Around<'_>, done: &mut Done) {
        self.actors.campaign.on(event, around.now);
        for effect in self.actors.campaign.effects() {
            let mut cx = cx!(self, around, done);
            match effect {
                CampaignEffect::Ask(question, deadline) => {
                    let question = match question {
                        LeaseQuestion::Create(says, _) => Question::Create(says),
                        LeaseQuestion::Update(says, _, revision) => Question::Update(says, revision),
                        LeaseQuestion::Look(_) => Question::Get,
                        // This world's server is not emptied.
                        LeaseQuestion::Make => continue,
                    };
                    cx.ask(Who::Election, question, deadline);
                }
                CampaignEffect::Tell(event) => self.actors.scheduler.handle(event, &mut cx),
                CampaignEffect::Follow(leader) => {
                    cx.note(|| format!("is the scheduler of epoch {}", leader.epoch.0));
                    self.link.follow(&leader);
                }
                CampaignEffect::EndOwn => {
                    cx.note(|| "no longer the scheduler".to_owned());
                    self.link.end_own();
                }
                CampaignEffect::Speak => self.membership(MembershipEvent::Speak, around, done),
                // Nobody leaves in order, and nobody looks for the Scheduler but by what nodes say.
                CampaignEffect::Release(_)
                | CampaignEffect::Serve(_)
                | CampaignEffect::Withdraw
                | CampaignEffect::Explain(_)
                | CampaignEffect::Fail(_) => {}
            }
        }
        self.wake_campaign(around, done);
    }

    /// The candidate's next tick, instead of any earlier one.
    pub(super) fn wake_campaign(&mut self, around: &mut Around<'_>, done: &mut Done) {
        if let Some(at) = self.actors.campaign.next_wakeup() {
            cx!(self, around, done).after(at.saturating_sub(around.now), Timer::Election);
        }
    }

    /// Something happens to Membership.
    pub(super) fn membership(&mut self, event: MembershipEvent, around: &mut Around<'_>, done: &mut Done) {
        self.actors.membership.on(event, around.now);
        self.actors.membership.flush(around.now);
        self.perform_membership(around, done);
    }

    /// Does what Membership wants.
    pub(super) fn perform_membership(&mut self, around: &mut Around<'_>, done: &mut Done) {
        for effect in self.actors.membership.effects() {
            let mut cx = cx!(self, around, done);
            match effect {
                MembershipEffect::After(delay, event) => cx.after(delay, Timer::Membership(event)),
                // Who is there is looked up in the core itself.
                MembershipEffect::Know(_) => {}
                MembershipEffect::Beat { incarnation, sequence, stopping, zombies } => done.beats.push(Beat {
                    node: around.name.clone(),
                    incarnation,
                    sequence,
                    figures: Figures::default(),
                    data_address: around.name.to_string(),
                    stopping,
                    leader: self.link.leader(),
                    epoch: self.link.epoch(),
                    zombies,
                }),
                MembershipEffect::Meet(node, incarnation) => {
                    let session = around.sessions.entry((number_of(around.name), number_of(&node))).or_default();
                    if session.meets(incarnation) {
                        cx.note(|| format!("session with {node} is made anew"));
                        self.tell_owner(OwnerEvent::SessionReset { node, incarnation }, around, done);
                    }
                }
                MembershipEffect::TellScheduler(event) => self.actors.scheduler.handle(event, &mut cx),
                MembershipEffect::Tell(Change { node, incarnation, state }) => {
                    cx.note(|| format!("{node} (incarnation {}) is {state:?}", incarnation.0));
                    self.tell_owner(OwnerEvent::NodeState { node, incarnation, state }, around, done);
                }
                MembershipEffect::Probe(node, incarnation, _) => done.probes.push((node, incarnation)),
                MembershipEffect::Gate(open) => {
                    cx.note(|| if open { "is not fenced any more" } else { "is fenced" }.to_owned());
                    self.fenced = !open;
                }
                MembershipEffect::Follows(node, leader) => self.link.heard(&node, &leader),
                MembershipEffect::Heard(epoch) => self.link.hears(epoch),
                MembershipEffect::Renew(renewal) => {
                    cx.note(|| format!("was declared dead by {}: another incarnation begins", renewal.told_by));
                    done.renew = Some(renewal);
                }
                MembershipEffect::Fail(_) => done.impostor = true,
            }
        }
    }
}
