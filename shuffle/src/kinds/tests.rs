use std::path::PathBuf;

use exobus_actors::spec::{Plan, Spec, SpecCode, SpecError};
use serde::de::DeserializeOwned;

use crate::jobs::aggregate::{Aggregate, Delimiter, Operation};
use crate::jobs::wordcount::WordCount;
use crate::keyed::KeyedParams;
use crate::strategies::Strategy;

fn planned(text: &str) -> Result<Plan, SpecError> {
    Spec::parse(text.as_bytes()).and_then(|spec| spec.plan())
}

fn params<P: DeserializeOwned>(text: &str) -> P {
    let plan = planned(text).unwrap();
    assert_eq!((&plan.reads[..], &plan.writes[..]), (&[PathBuf::from("/in")][..], &[PathBuf::from("/out")][..]));
    rmp_serde::from_slice(&plan.params).unwrap()
}

const PATHS: &str = "inputs = ['/in']\noutput = '/out'";

#[test]
fn a_word_count_is_told_how_it_is_run() {
    let text = format!("kind = 'wordcount'\n{PATHS}\nstrategy = 'two_stage'\npartial = true\npartitions = 3");
    let told: KeyedParams<WordCount> = params(&text);
    assert_eq!((told.strategy, told.partial, told.partitions), (Some(Strategy::TwoStage), true, Some(3)));
    let told: KeyedParams<WordCount> = params(&format!("kind = 'wordcount'\n{PATHS}\nstrategy = 'auto'"));
    assert_eq!((told.strategy, told.partial, told.partitions), (None, false, None));
    let error = planned(&format!("kind = 'wordcount'\n{PATHS}\nstrategy = 'magic'")).unwrap_err();
    assert!(error.message.contains("\"auto\", \"simple\""), "{error}");
}

#[test]
fn an_aggregation_is_told_of_its_columns() {
    let of = |more: &str| -> Aggregate {
        params::<KeyedParams<Aggregate>>(&format!("kind = 'aggregate'\n{PATHS}\nkey = 'city'\n{more}")).job
    };
    let (key, value) = ("city".to_owned(), Some("price".to_owned()));
    let all = Aggregate { key, value, operations: Operation::ALL.to_vec(), delimiter: b',', header: false };
    assert_eq!(of("value = 'price'"), all);
    let some =
        Aggregate { operations: vec![Operation::Max, Operation::Sum], delimiter: b'\t', header: true, ..all.clone() };
    assert_eq!(of("value = 'price'\nops = ['max', 'sum']\ndelimiter = \"\\t\"\nheader = true"), some);
    assert_eq!(of("value = 'price'\nops = 'max,sum'\ndelimiter = '\\t'\nheader = true"), some);
    // A column that nothing is made of is none.
    assert_eq!(
        of("value = 'price'\nops = 'count'"),
        Aggregate { value: None, operations: vec![Operation::Count], ..all }
    );
    let error = planned(&format!("kind = 'aggregate'\n{PATHS}\nkey = '1'")).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (SpecCode::Missing, "`ops = sum` needs `value`, the column of the values")
    );
    let error = planned(&format!("kind = 'aggregate'\n{PATHS}\nkey = '1'\nvalue = '2'\ndelimiter = ';;'")).unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (SpecCode::Invalid, Some("delimiter")));
}

#[test]
fn delimiters_are_one_character() {
    let of = |text: &str| text.parse::<Delimiter>().map(|Delimiter(byte)| byte);
    assert_eq!((of(";"), of("\t"), of("\\t")), (Ok(b';'), Ok(b'\t'), Ok(b'\t')));
    for wrong in ["", ";;", "\"", "\n", "\u{e9}"] {
        assert!(of(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn what_explains_a_job_is_told_no_output() {
    let spec = Spec::parse(b"kind = 'wordcount'\ninputs = '/in'").unwrap();
    assert_eq!(spec.plan().unwrap_err().code, SpecCode::Missing);
    let plan = spec.explain().unwrap();
    assert_eq!((plan.program.as_str(), plan.writes.len()), ("wordcount.explain@1", 0));
}
