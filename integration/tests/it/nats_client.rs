//! What the NATS backend adds to the client library: connecting, outages, permissions, credentials, services.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use exobus_bus::{Bus, BusError, Message, NatsOptions, Pattern, Subject, SubscribeOptions};
use tokio::time::{Instant, timeout};

use crate::harness::nats::NatsServer;

const PATIENCE: Duration = Duration::from_secs(20);

fn subject(text: &str) -> Subject {
    Subject::parse(text).unwrap()
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the bus connects to real ports")]
async fn an_unreachable_server_is_named_with_the_time_it_was_tried() {
    // A port that was free a moment ago and that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("nats://127.0.0.1:{port}");
    let options = NatsOptions { connect_deadline: Duration::from_millis(300), ..NatsOptions::url(&url) };
    let started = Instant::now();
    let error = Bus::connect(options).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(text.contains(&url) && text.contains("ms"), "{text}");
    let BusError::Connect { tried_for, reason, .. } = error else { panic!("{text}") };
    assert!(tried_for >= Duration::from_millis(150) && reason.contains("refused"), "{tried_for:?} {reason}");
}

#[tokio::test]
async fn a_server_that_comes_later_is_waited_for() {
    let mut server = NatsServer::start().await;
    let url = server.url().to_owned();
    server.stop();
    let (bus, ()) = tokio::join!(Bus::connect(NatsOptions::url(&url)), server.start_again());
    bus.unwrap().flush().await.unwrap();
}

#[tokio::test]
async fn somebody_who_listens_to_everything_disturbs_nobody() {
    let server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let curious = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let mut everything = curious.subscribe(Pattern::parse(">").unwrap(), SubscribeOptions::default()).await.unwrap();
    bus.flush().await.unwrap();
    let mut own = bus.subscribe(subject("one.two").into(), SubscribeOptions::default()).await.unwrap();
    bus.publish(subject("one.two"), Message::new("said")).await.unwrap();
    assert_eq!(timeout(PATIENCE, own.recv()).await.unwrap().unwrap().message.payload, "said");
    while timeout(PATIENCE, everything.recv()).await.unwrap().unwrap().subject != subject("one.two") {}
}

#[tokio::test]
async fn a_wrong_password_fails_at_once_and_is_not_printed() {
    let server = NatsServer::start_with("authorization { user: me, password: sesame }").await;
    let file = server.dir().join("context.json");
    let write = |password: &str| {
        let text = format!(r#"{{"url":"{}","user":"me","password":"{password}"}}"#, server.url());
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("wrong-one");
    let refused = timeout(PATIENCE, Bus::connect(NatsOptions::context(&file))).await.expect("tried again and again");
    let error = refused.unwrap_err();
    assert!(!error.is_retryable() && !format!("{error} {error:?}").contains("wrong-one"), "{error:?}");
    write("sesame");
    Bus::connect(NatsOptions::context(&file)).await.unwrap().flush().await.unwrap();
}

#[tokio::test]
async fn publishing_in_an_outage_never_waits_and_says_full() {
    let mut server = NatsServer::start().await;
    let options = NatsOptions { queue_messages_max: 1000, queue_bytes_max: 100_000, ..NatsOptions::url(server.url()) };
    let bus = Bus::connect(options).await.unwrap();
    let mut connection = bus.connection();
    server.stop();
    timeout(PATIENCE, connection.wait_for(|state| !state.connected)).await.unwrap().unwrap();
    let started = Instant::now();
    let mut taken = 0;
    let refused = loop {
        match bus.publish(subject("outage.test"), Message::new(vec![0; 1000])).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken <= 1000, "no limit");
    };
    assert!(matches!(refused, BusError::Full { .. }) && refused.is_retryable(), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(2), "publishing waited: {:?}", started.elapsed());
    assert_eq!(taken, 100, "100 000 bytes are 100 messages");
    assert_eq!(bus.stats().refused_full, 1);
    assert_eq!(bus.stats().backend.queued_bytes, 100_000);

    server.start_again().await;
    timeout(PATIENCE, connection.wait_for(|state| state.connected)).await.unwrap().unwrap();
    bus.flush().await.unwrap();
    assert_eq!(bus.stats().backend.queued_bytes, 0, "bytes stay counted after they were written");
    bus.publish(subject("outage.test"), Message::new(vec![0; 1000])).await.unwrap();
    assert_eq!(bus.stats().backend.reconnects, 1);
}

#[tokio::test]
async fn subscriptions_and_requests_go_on_after_a_server_restart() {
    let mut server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let mut service = bus.subscribe(subject("restart.test").into(), SubscribeOptions::default()).await.unwrap();
    let mut connection = bus.connection();
    server.stop();
    timeout(PATIENCE, connection.wait_for(|state| !state.connected)).await.unwrap().unwrap();
    server.start_again().await;
    timeout(PATIENCE, connection.wait_for(|state| state.connected)).await.unwrap().unwrap();
    bus.flush().await.unwrap();
    let answering = async {
        let question = service.recv().await.unwrap();
        question.reply(question.message.clone()).await.unwrap();
    };
    let asking = bus.request(subject("restart.test"), Message::new("again"), PATIENCE);
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "again");
}

#[tokio::test]
async fn a_subscription_or_a_question_that_the_server_denies_is_an_error() {
    let server = NatsServer::start_with(
        "authorization { users: [ { user: me, password: sesame, permissions: {
            publish: [\"_INBOX_me.>\", \"open.>\"], subscribe: [\"_INBOX_me.>\", \"open.>\"] } } ] }",
    )
    .await;
    let file = server.dir().join("context.json");
    let context = format!(r#"{{"url":"{}","user":"me","password":"sesame","inbox_prefix":"_INBOX_me"}}"#, server.url());
    std::fs::write(&file, context).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let bus = Bus::connect(NatsOptions::context(&file)).await.unwrap();
    let denied = bus.subscribe(Pattern::parse("secret.>").unwrap(), SubscribeOptions::default()).await;
    match denied {
        Err(BusError::Denied { subject, reason }) => {
            assert!(subject == "secret.>" && reason.to_lowercase().contains("permissions violation"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // So is a question that may not be asked, at once, each time; others wait for their answers meanwhile.
    let mut patient = bus.subscribe(subject("open.slow").into(), SubscribeOptions::default()).await.unwrap();
    let waiting = bus.request(subject("open.slow"), Message::new("?"), PATIENCE);
    let asking = async {
        for _ in 0..3 {
            let denied = bus.request(subject("secret.a"), Message::new("?"), 10 * PATIENCE).await;
            match denied {
                Err(BusError::Denied { subject, reason }) => {
                    assert!(subject == "secret.a" && reason.contains("Publish to \"secret.a\""), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        patient.recv().await.unwrap().reply(Message::new("late")).await.unwrap();
    };
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(waiting, asking) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "late");
    // Allowed ones work, with answers below the custom prefix.
    let mut service = bus.subscribe(subject("open.echo").into(), SubscribeOptions::default()).await.unwrap();
    let answering = async {
        let question = service.recv().await.unwrap();
        assert!(question.reply.as_ref().unwrap().as_str().starts_with("_INBOX_me."));
        question.reply(Message::new("yes")).await.unwrap();
    };
    let asking = bus.request(subject("open.echo"), Message::new("?"), PATIENCE);
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asking, answering) }).await.unwrap();
    assert_eq!(answer.unwrap().payload, "yes");
}

#[tokio::test]
async fn messages_on_subjects_of_another_syntax_are_counted_and_dropped() {
    let server = NatsServer::start().await;
    let bus = Bus::connect(NatsOptions::url(server.url())).await.unwrap();
    let mut all = bus.subscribe(Pattern::parse("odd.>").unwrap(), SubscribeOptions::default()).await.unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    client.publish("odd.with:colon", "x".into()).await.unwrap();
    client.publish("odd.fine", "y".into()).await.unwrap();
    let delivery = timeout(PATIENCE, all.recv()).await.unwrap().unwrap();
    assert_eq!(delivery.message.payload, "y");
    assert_eq!(bus.stats().backend.malformed_messages, 1);
}
