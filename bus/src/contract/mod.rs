//! The promises of a bus, one function per clause; every implementation runs them all:
//!
//! ```ignore
//! exobus_bus::bus_contract!(in_process, crate::fixture);   // async fn fixture() -> exobus_bus::contract::Fixture
//! ```
//!
//! Clauses wait for events, never for time to pass; [`PATIENCE`] only turns a hang into a failure. "Nothing came" is
//! shown by a later message that did come.

pub mod closing;
pub mod consumers;
pub mod full;
pub mod kv;
pub mod limits;
pub mod pubsub;
pub mod request;
pub mod service;
pub mod streams;

use std::any::Any;
use std::time::Duration;

use crate::subject::unique_token;
use crate::{Bus, Delivery, Message, Pattern, Subject, Subscription};

/// How long a clause waits for something that has to come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a clause works on.
pub struct Fixture {
    /// A handle.
    pub a: Bus,
    /// Another handle to the same bus: another connection where there are connections, else a clone.
    pub b: Bus,
    /// Kept until the clause is over: the server, directories.
    pub guard: Box<dyn Any + Send>,
}

/// Makes one test per clause. `$fixture` is the full path (`crate::...`) of an async function without arguments that returns a [`Fixture`](crate::contract::Fixture).
#[macro_export]
macro_rules! bus_contract {
    ($name:ident, $fixture:path) => {
        mod $name {
            $crate::bus_contract!(@clauses $fixture;
                pubsub::every_plain_subscriber_gets_a_message,
                pubsub::one_of_a_queue_group_gets_a_message,
                pubsub::every_member_of_a_queue_group_gets_a_share,
                pubsub::a_wildcard_gets_what_it_matches_and_nothing_else,
                pubsub::one_publisher_and_subject_keep_their_order,
                pubsub::subscribe_returns_when_the_server_knows,
                pubsub::a_dropped_subscription_gets_nothing_more,
                pubsub::headers_survive,
                pubsub::an_empty_payload_survives,
                pubsub::a_handle_works_from_another_runtime,
                request::a_request_is_answered,
                request::answers_find_their_requests,
                request::a_request_has_a_deadline,
                request::a_request_to_nobody_fails_at_once,
                request::many_answers_are_collected,
                request::many_answers_end_with_the_gap,
                request::many_to_nobody_fails_at_once,
                request::a_message_that_wants_no_reply_cannot_be_answered,
                limits::a_payload_of_the_limit_passes_and_one_byte_more_is_refused,
                limits::headers_count_towards_the_limit,
                limits::a_bad_queue_name_is_refused,
                full::a_full_subscriber_drops_the_newest_and_counts,
                full::who_asks_a_full_subscriber_is_told,
                full::a_full_subscriber_does_not_harm_another,
                full::a_subscriber_drops_what_would_take_too_many_bytes,
                full::a_message_that_is_too_large_for_a_subscriber_arrives_empty,
                closing::a_drained_bus_delivers_what_was_sent_before,
                closing::a_closed_bus_refuses_everything,
                service::a_question_about_services_reaches_all,
                streams::records_are_numbered_and_read_in_order,
                streams::reading_begins_anywhere_and_filters,
                streams::a_reader_follows,
                streams::a_dedupe_id_is_appended_once,
                streams::a_dedupe_id_is_forgotten_after_the_window,
                streams::a_condition_that_does_not_hold_appends_nothing,
                streams::the_last_record_of_a_subject,
                streams::a_full_stream_refuses,
                streams::what_a_stream_cannot_take_is_refused,
                streams::a_stream_is_opened_as_it_is,
                streams::purging_removes_what_it_is_told,
                streams::a_deleted_stream_is_gone,
                streams::a_stream_that_was_made_anew_has_another_identity,
                streams::the_last_of_each_subject_is_kept,
                streams::old_records_expire,
                streams::concurrent_appends_are_all_there,
                streams::streams_of_a_drained_bus_are_closed,
                consumers::a_place_survives_its_handle,
                consumers::what_is_not_acknowledged_comes_again,
                consumers::what_is_given_back_comes_again_soon,
                consumers::unacknowledged_records_are_bounded,
                consumers::members_share_and_filters_hold,
                consumers::a_consumer_waits_and_ends,
                kv::what_is_put_is_got,
                kv::a_stale_revision_is_refused,
                kv::a_deleted_key_can_be_created_again,
                kv::a_forgotten_key_is_gone_without_a_word,
                kv::a_watch_tells_values_then_changes,
                kv::a_key_expires_unless_it_is_written,
                kv::a_value_with_a_time_of_its_own_is_gone_after_it,
                kv::many_keys_are_all_listed,
            );
        }
    };
    (@clauses $fixture:path; $($file:ident :: $clause:ident,)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::contract::run($fixture, $crate::contract::$file::$clause);
            }
        )*
    };
}

/// Runs one clause on a runtime of its own.
///
/// # Panics
/// When the clause fails or hangs.
pub fn run<F, C, Fut, Done>(fixture: F, clause: C)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Fixture>,
    C: FnOnce(Bus, Bus) -> Done,
    Done: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("build a runtime");
    runtime.block_on(async {
        let Fixture { a, b, guard } = fixture().await;
        let done = tokio::time::timeout(PATIENCE * 2, Box::pin(clause(a, b))).await;
        drop(guard);
        done.expect("the clause hangs");
    });
}

/// A subject that no other clause of the same server uses.
pub(crate) fn unique(name: &str) -> Subject {
    Subject::parse(&format!("contract.{}.{name}", unique_token())).expect("a valid subject")
}

pub(crate) fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a valid pattern")
}

pub(crate) fn text(text: impl AsRef<str>) -> Message {
    Message::new(text.as_ref().as_bytes().to_vec())
}

pub(crate) async fn next(subscription: &mut Subscription) -> Delivery {
    let next = tokio::time::timeout(PATIENCE, subscription.recv()).await;
    next.expect("a message was expected and none came").expect("the subscription ended")
}

pub(crate) fn read(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// What comes before `end`, which is published last.
pub(crate) async fn texts_until(subscription: &mut Subscription, end: &str) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let text = read(&next(subscription).await.message);
        if text == end {
            return texts;
        }
        texts.push(text);
    }
}
