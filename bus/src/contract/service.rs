//! Services.

use super::{PATIENCE, next, read, text, unique};
use crate::{Bus, ServiceEndpoint, ServiceInfo};

/// Two processes offer the same service: each request is answered once, whatever endpoint it is for.
pub async fn a_service_answers_and_shares(a: Bus, b: Bus) {
    let (add, subtract) = (unique("add"), unique("subtract"));
    let endpoint = |name: &str, subject: &crate::Subject| ServiceEndpoint {
        name: name.to_owned(),
        subject: subject.clone(),
        queue: "calculators".to_owned(),
    };
    let info = ServiceInfo {
        name: "exobus-contract".to_owned(),
        version: "1.0.0".to_owned(),
        description: "two endpoints of the contract suite".to_owned(),
        endpoints: vec![endpoint("add", &add), endpoint("subtract", &subtract)],
    };
    let mut first = a.serve(info.clone(), 64).await.unwrap();
    let mut second = b.serve(info, 64).await.unwrap();
    let serving = async {
        for _ in 0..20 {
            let (request, who) = tokio::select! {
                request = next(&mut first) => (request, "first"),
                request = next(&mut second) => (request, "second"),
            };
            let word = if request.subject == add { "added" } else { "subtracted" };
            request.reply(text(format!("{word} {} by {who}", read(&request.message)))).await.unwrap();
        }
    };
    let asking = async {
        let mut by_first = 0;
        for number in 0..20 {
            let (subject, word) = if number % 2 == 0 { (&add, "added") } else { (&subtract, "subtracted") };
            let answer = b.request(subject.clone(), text(number.to_string()), PATIENCE).await.unwrap();
            let answer = read(&answer);
            assert!(answer.starts_with(&format!("{word} {number} by ")), "{answer}");
            by_first += usize::from(answer.ends_with("first"));
        }
        by_first
    };
    let (by_first, ()) = tokio::join!(asking, serving);
    assert!(by_first < 20, "only one of the two was asked");
    drop((first, second));
}
