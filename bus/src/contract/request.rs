//! Asking and answering.

use std::time::Duration;

use super::{PATIENCE, next, read, text, unique};
use crate::{Bus, BusError, RequestMany, SubscribeOptions};

/// Question and answer, headers included.
pub async fn a_request_is_answered(a: Bus, b: Bus) {
    let subject = unique("ask");
    let mut service = b.subscribe(subject.clone().into(), SubscribeOptions::queue("service")).await.unwrap();
    let answering = async {
        let question = next(&mut service).await;
        assert_eq!(read(&question.message), "question");
        question.reply(text("answer").with_header("Exo-Answer", "yes").unwrap()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(a.request(subject, text("question"), PATIENCE), answering);
    let answer = answer.unwrap();
    assert_eq!(read(&answer), "answer");
    assert_eq!(answer.headers.get("Exo-Answer"), Some("yes"));
}

/// Fifty at once, answered in reverse.
pub async fn answers_find_their_requests(a: Bus, b: Bus) {
    let subject = unique("mixed");
    let mut service = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let answering = async {
        let mut questions = Vec::new();
        while questions.len() < 50 {
            questions.push(next(&mut service).await);
        }
        for question in questions.into_iter().rev() {
            let number = read(&question.message);
            question.reply(text(format!("answer {number}"))).await.unwrap();
        }
    };
    let asking = futures::future::join_all((0..50).map(|number| {
        let (bus, subject) = (a.clone(), subject.clone());
        async move { bus.request(subject, text(number.to_string()), PATIENCE).await }
    }));
    let (answers, ()) = tokio::join!(asking, answering);
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(read(&answer.unwrap()), format!("answer {number}"));
    }
}

/// Somebody listens but says nothing.
pub async fn a_request_has_a_deadline(a: Bus, b: Bus) {
    let subject = unique("silent");
    let mut service = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let asked = a.request(subject.clone(), text("anybody?"), Duration::from_millis(50)).await;
    assert!(matches!(asked, Err(BusError::TimedOut { .. })), "{asked:?}");
    // An answer that comes too late disturbs nothing.
    next(&mut service).await.reply(text("late")).await.unwrap();
    let answering = async { next(&mut service).await.reply(text("in time")).await.unwrap() };
    let (answer, ()) = tokio::join!(a.request(subject, text("again?"), PATIENCE), answering);
    assert_eq!(read(&answer.unwrap()), "in time");
}

/// The deadline is far, the refusal near.
pub async fn a_request_to_nobody_fails_at_once(a: Bus, _b: Bus) {
    let subject = unique("nobody");
    let asked = tokio::time::timeout(PATIENCE, a.request(subject.clone(), text("?"), PATIENCE * 10)).await;
    match asked.expect("waited for the deadline") {
        Err(BusError::NoResponders { subject: named }) => assert_eq!(named, subject.as_str()),
        other => panic!("{other:?}"),
    }
}

/// All that are wanted, then it is over, however far the deadline.
pub async fn many_answers_are_collected(a: Bus, b: Bus) {
    let subject = unique("many");
    let mut first = a.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let mut second = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let answering = async {
        let (one, two) = tokio::join!(next(&mut first), next(&mut second));
        one.reply(text("first")).await.unwrap();
        one.reply(text("first again")).await.unwrap();
        two.reply(text("second")).await.unwrap();
    };
    let many = RequestMany { max: 3, deadline: PATIENCE * 10, gap: None };
    let (answers, ()) = tokio::join!(a.request_many(subject, text("who?"), many), answering);
    let mut answers: Vec<String> = answers.unwrap().iter().map(read).collect();
    answers.sort();
    assert_eq!(answers, ["first", "first again", "second"]);
}

/// Fewer than wanted: a pause ends the wait; no answer at all is an empty list.
pub async fn many_answers_end_with_the_gap(a: Bus, b: Bus) {
    let subject = unique("gap");
    let mut service = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    let answering = async { next(&mut service).await.reply(text("only one")).await.unwrap() };
    let many = RequestMany { max: 10, deadline: PATIENCE * 10, gap: Some(Duration::from_millis(50)) };
    let (answers, ()) = tokio::join!(a.request_many(subject.clone(), text("who?"), many), answering);
    assert_eq!(answers.unwrap().iter().map(read).collect::<Vec<_>>(), ["only one"]);
    let many = RequestMany { max: 10, deadline: Duration::from_millis(50), gap: None };
    assert_eq!(a.request_many(subject, text("who?"), many).await.unwrap(), []);
}

/// As for one.
pub async fn many_to_nobody_fails_at_once(a: Bus, _b: Bus) {
    let many = RequestMany { max: 10, deadline: PATIENCE * 10, gap: None };
    let asked = tokio::time::timeout(PATIENCE, a.request_many(unique("nobody"), text("?"), many)).await;
    let asked = asked.expect("waited for the deadline");
    assert!(matches!(asked, Err(BusError::NoResponders { .. })), "{asked:?}");
}

/// The mistake is told.
pub async fn a_message_that_wants_no_reply_cannot_be_answered(a: Bus, b: Bus) {
    let subject = unique("noreply");
    let mut subscription = b.subscribe(subject.clone().into(), SubscribeOptions::default()).await.unwrap();
    a.publish(subject, text("just so you know")).await.unwrap();
    let answered = next(&mut subscription).await.reply(text("thanks")).await;
    assert!(matches!(answered, Err(BusError::NoReplyWanted { .. })), "{answered:?}");
}
