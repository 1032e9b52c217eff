//! Questions about services.

use super::{next, pattern, text, unique};
use crate::{Bus, SERVICES, Subject, SubscribeOptions};

/// Who offers services hears each question about them, whatever it asks, and one question may be answered by many, and often.
pub async fn a_question_about_services_reaches_all(a: Bus, b: Bus) {
    let all = pattern(&format!("{SERVICES}.>"));
    let mut first = a.subscribe(all.clone(), SubscribeOptions::default()).await.unwrap();
    let mut second = b.subscribe(all, SubscribeOptions::default()).await.unwrap();
    // Other clauses may share the server.
    let name = unique("name").as_str().replace('.', "-");
    for verb in ["PING", "INFO", "STATS"] {
        let question = Subject::parse(&format!("{SERVICES}.{verb}.{name}")).unwrap();
        let answering = async {
            for subscription in [&mut first, &mut second] {
                let asked = loop {
                    let asked = next(subscription).await;
                    if asked.subject == question {
                        break asked;
                    }
                };
                asked.reply(text("one")).await.unwrap();
                asked.reply(text("another")).await.unwrap();
            }
        };
        let options = crate::RequestMany { max: 4, ..Default::default() };
        let (answers, ()) = tokio::join!(b.request_many(question.clone(), text(""), options), answering);
        assert_eq!(answers.unwrap().len(), 4, "{verb}");
    }
}
