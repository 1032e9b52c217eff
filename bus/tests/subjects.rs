//! Subjects: what is built is valid and comes apart the same; matching agrees with a plain definition.

use exobus_bus::{Address, JobChannel, Pattern, Subject, Subjects};
use proptest::prelude::*;

const TOKEN: &str = "[A-Za-z0-9_-]{1,12}";

/// A node, or a submitter.
fn process() -> impl Strategy<Value = String> {
    prop_oneof![TOKEN, TOKEN.prop_map(|name| format!("client-{name}"))]
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        (TOKEN, TOKEN).prop_map(|(service, verb)| Address::Ctl { service, verb }),
        (TOKEN, TOKEN).prop_map(|(node, actor)| Address::Node { node, actor }),
        (TOKEN, TOKEN).prop_map(|(tenant, verb)| Address::Api { tenant, verb }),
        (process(), process()).prop_map(|(to, from)| Address::Session { to, from }),
        (TOKEN, TOKEN, prop::sample::select(&JobChannel::ALL[..])).prop_map(|(tenant, job, channel)| Address::Job {
            tenant,
            job,
            channel
        }),
        (TOKEN, prop::collection::vec(TOKEN, 1..4))
            .prop_map(|(node, rest)| Address::Data { node, rest: rest.join(".") }),
        (TOKEN, prop::collection::vec(TOKEN, 1..4))
            .prop_map(|(stream, rest)| Address::Stream { stream, rest: rest.join(".") }),
        (TOKEN, prop::collection::vec(TOKEN, 1..4))
            .prop_map(|(bucket, key)| Address::Kv { bucket, key: key.join(".") }),
    ]
}

fn build(subjects: &Subjects, address: &Address) -> Subject {
    let built = match address {
        Address::Ctl { service, verb } => subjects.ctl(service, verb),
        Address::Node { node, actor } => subjects.node(node, actor),
        Address::Api { tenant, verb } => subjects.api(tenant, verb),
        Address::Session { to, from } => subjects.session(to, from),
        Address::Job { tenant, job, channel } => subjects.job(tenant, job, *channel),
        Address::Stream { stream, rest } => {
            subjects.stream(stream).and_then(|prefix| Subject::parse(&format!("{prefix}.{rest}")))
        }
        Address::Kv { bucket, key } => {
            subjects.kv(bucket).and_then(|prefix| Subject::parse(&format!("{prefix}.{key}")))
        }
        Address::Data { node, rest } => subjects.data(node, &rest.split('.').collect::<Vec<_>>()),
    };
    built.unwrap()
}

/// Matching, by the definition: token by token, from the left.
fn matches(pattern: &[&str], subject: &[&str]) -> bool {
    match (pattern, subject) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", pattern @ ..], [_, subject @ ..]) => matches(pattern, subject),
        ([token, pattern @ ..], [other, subject @ ..]) => token == other && matches(pattern, subject),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_built_comes_apart_the_same(cluster in TOKEN, address in address()) {
        let subjects = Subjects::new(&cluster).unwrap();
        let subject = build(&subjects, &address);
        prop_assert_eq!(Subject::parse(subject.as_str()).unwrap(), subject.clone());
        prop_assert_eq!(subjects.parse(&subject).unwrap(), address);
        prop_assert_eq!(subjects.cluster(), cluster);
    }

    #[test]
    fn any_text_is_a_subject_that_reads_back_or_an_error(text in ".{0,300}") {
        if let Ok(subject) = Subject::parse(&text) {
            prop_assert_eq!(subject.as_str(), &text);
            prop_assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)));
            prop_assert!(Pattern::parse(&text).unwrap().matches(&subject));
        }
    }

    #[test]
    fn matching_follows_the_definition(
        pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*"]), 1..6),
        ends_open in any::<bool>(),
        subject in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..7),
    ) {
        let mut pattern = pattern;
        if ends_open {
            pattern.push(">");
        }
        let parsed = Pattern::parse(&pattern.join(".")).unwrap();
        let matched = parsed.matches(&Subject::parse(&subject.join(".")).unwrap());
        prop_assert_eq!(matched, matches(&pattern, &subject));
    }
}
