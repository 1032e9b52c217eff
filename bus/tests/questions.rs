//! Questions to services, where others answer as well.

use std::time::Duration;

use exobus_bus::auth::{MessageError, QUESTION_BYTES_MAX, Why};
use exobus_bus::session::Peer;
use exobus_bus::{
    Bus, BusError, Credentials, Delivery, Denied, Message, Role, Subject, Subjects, SubscribeOptions, Subscription,
};
use tokio::time::timeout;

/// Virtual, so it costs nothing.
const PATIENCE: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(5);

fn place() -> Subject {
    Subjects::new("test").unwrap().ctl("scheduler", "where").unwrap()
}

/// A node that asks, one that answers, and whoever hears the questions.
async fn cluster() -> (Bus, Bus, Subscription) {
    let bus = Bus::in_process().with_credentials(Credentials::node(Some("the nodes' token of a test"), None));
    let named = |node: &str| bus.speaking_as(Peer { node: node.to_owned(), incarnation: 1 });
    let questions = bus.subscribe(place().into(), SubscribeOptions::default()).await.unwrap();
    (named("n2"), named("n1"), questions)
}

async fn next(questions: &mut Subscription) -> Delivery {
    timeout(PATIENCE, questions.recv()).await.expect("no question").unwrap()
}

fn denial() -> Message {
    Message::new(Credentials::deny(Denied { token: Role::Node, why: Why::Wrong }))
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_believed_ends_no_question() {
    let (asker, service, mut questions) = cluster().await;
    let answering = async {
        let question = next(&mut questions).await;
        // Of somebody who hears the question: that the asker is not believed, one that breaks off, nonsense, and much of it.
        question.reply(denial()).await.unwrap();
        for forged in [&[][..], &[2], &[2, 1], &[2, 1, 0xff], &[2, 0, 2, b'n', b'1'], &[7; 1000]] {
            question.reply(Message::new(forged.to_vec())).await.unwrap();
        }
        question.reply(Message::new(vec![2; 1024 * 1024])).await.unwrap();
        let asked = service.asked::<()>(&question).unwrap();
        service.answer(&question, &asked, &"here").unwrap();
    };
    let (answer, ()) = tokio::join!(asker.ask::<String>(place(), &(), DEADLINE), answering);
    assert_eq!(answer.unwrap(), "here");
}

#[tokio::test(start_paused = true)]
async fn who_is_denied_and_gets_no_answer_is_told_so_at_the_deadline() {
    let (asker, _, mut questions) = cluster().await;
    let answering = async {
        let question = next(&mut questions).await;
        question.reply(Message::new("nonsense")).await.unwrap();
        question.reply(denial()).await.unwrap();
        question.reply(Message::new("more of it")).await.unwrap();
    };
    let begun = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(asker.ask::<String>(place(), &(), DEADLINE), answering);
    let error = answer.unwrap_err();
    assert!(matches!(&error, BusError::Sealed(MessageError::Denied(denied)) if denied.why == Why::Wrong), "{error}");
    assert!(begun.elapsed() >= DEADLINE, "an answer could still have come");
}

#[tokio::test(start_paused = true)]
async fn where_the_next_answer_goes_cannot_be_foreseen() {
    let (asker, service, mut questions) = cluster().await;
    let answering = async {
        let mut places = Vec::new();
        for _ in 0..2 {
            let question = next(&mut questions).await;
            let asked = service.asked::<()>(&question).unwrap();
            service.answer(&question, &asked, &"here").unwrap();
            places.push(question.reply.unwrap().tokens().last().unwrap().parse::<u64>().unwrap());
        }
        places
    };
    let asking = async {
        for _ in 0..2 {
            asker.ask::<String>(place(), &(), DEADLINE).await.unwrap();
        }
    };
    let (places, ()) = tokio::join!(answering, asking);
    assert!(places[0].abs_diff(places[1]) > 1 << 32, "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_services_would_not_look_at_is_not_asked() {
    let (asker, ..) = cluster().await;
    let refused = asker.ask::<String>(place(), &"x".repeat(QUESTION_BYTES_MAX), DEADLINE).await.unwrap_err();
    assert!(matches!(refused, BusError::TooLarge { max_bytes: QUESTION_BYTES_MAX, .. }), "{refused}");
}
