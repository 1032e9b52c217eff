//! Jobs whose functions are wrong: they panic, or say what cannot be. Each ends with an error that names the function, and
//! leaves nothing: `Bench` looks for that.

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use exobus_shuffle::Strategy;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::keyed::{Emit, Input, Keep, KeyedJob, Partitioner, Split, Values};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;

/// Where something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Wrong {
    Nothing,
    Map,
    Combine,
    Merge,
    Head,
    /// After the file has been begun and written to.
    Reduce,
    Conserved,
    Partitioner,
    Check,
}

/// Counts bytes by their value; goes wrong at `wrong`, and is spread by `cuts` where there are any.
#[derive(Serialize, Deserialize)]
struct Bytes {
    wrong: Wrong,
    cuts: Vec<Vec<u8>>,
}

exobus_shuffle::keyed_job!(Bytes, "bytes", 1);

impl Bytes {
    fn at(&self, place: Wrong) {
        assert!(self.wrong != place, "a mistake in {place:?}");
    }
}

impl KeyedJob for Bytes {
    fn split(&self) -> Split {
        Split::Anywhere
    }

    fn partitioner(&self, partitions: u32) -> Result<Partitioner, TaskError> {
        self.at(Wrong::Partitioner);
        match self.cuts.is_empty() {
            true => Ok(Partitioner::Hash(partitions)),
            false => Ok(Partitioner::Range(Cuts::new(self.cuts.clone()).map_err(TaskError::fatal)?)),
        }
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        while let Some(byte) = input.next_record(1)? {
            emit(byte, &1u64.to_le_bytes())?;
            self.at(Wrong::Map);
        }
        Ok(())
    }

    fn combines(&self) -> bool {
        self.wrong == Wrong::Combine
    }

    fn combine(&self, _key: &[u8], _into: &mut Vec<u8>, _value: &[u8]) -> Result<(), TaskError> {
        self.at(Wrong::Combine);
        Ok(())
    }

    fn merges(&self) -> bool {
        self.wrong == Wrong::Merge
    }

    fn merge(&self, _key: &[u8], _values: Values<'_>, _keep: Keep<'_>) -> Result<(), TaskError> {
        self.at(Wrong::Merge);
        Ok(())
    }

    fn head(&self, _file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        self.at(Wrong::Head);
        Ok(())
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        writeln!(file, "{} {}", key[0], values.count())?;
        self.at(Wrong::Reduce);
        Ok(())
    }

    fn conserved(&self, _key: &[u8], _value: &[u8]) -> Output {
        self.at(Wrong::Conserved);
        Output { rows: 1, ..Output::default() }
    }

    fn check(&self, _input_bytes: u64, _emitted: Output) -> Result<(), String> {
        self.at(Wrong::Check);
        Ok(())
    }
}

#[tokio::test]
async fn a_function_that_panics_ends_the_job_and_is_named() {
    let bench = Bench::new();
    let file = [bench.file("text", "to be or not to be")];
    for (wrong, function) in [
        (Wrong::Map, "bytes.probe"),
        (Wrong::Combine, "bytes.probe"),
        (Wrong::Conserved, "bytes.probe"),
        (Wrong::Merge, "bytes.merge"),
        (Wrong::Head, "bytes.reduce"),
        (Wrong::Reduce, "bytes.reduce"),
        (Wrong::Partitioner, ""),
        (Wrong::Check, ""),
    ] {
        for strategy in [Strategy::Simple, Strategy::TwoStage] {
            let job = Bytes { wrong, cuts: Vec::new() };
            if (wrong, strategy) == (Wrong::Merge, Strategy::Simple) {
                bench.run(job, &file, Some(strategy)).await.expect("nothing is merged");
                continue;
            }
            let error = bench.error(job, &file, Some(strategy)).await;
            let mistake = format!("a mistake in {wrong:?}");
            assert!(error.contains("panicked") && error.contains(&mistake), "{error}");
            assert!(error.contains(function), "{function}: {error}");
        }
    }
}

#[tokio::test]
async fn cuts_of_the_user_are_kept_or_refused() {
    let mut bench = Bench::new();
    let file = [bench.file("text", "abcdefgh".repeat(100))];
    let cuts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let job = |texts| Bytes { wrong: Wrong::Nothing, cuts: cuts(texts) };
    let error = bench.error(job(&["b", "f", "d", "g"]), &file, None).await;
    assert!(error.contains("cut 2 is below the cut before it"), "{error}");
    let error = bench.error(job(&["b", "d"]), &file, None).await;
    assert!(error.contains("over 3 partitions, but there are 5: ask for 3"), "{error}");
    bench.partitions = Some(3);
    for strategy in Strategy::ALL {
        let ran = bench.run(job(&["b", "d"]), &file, Some(strategy)).await.unwrap();
        let expected: String = (b'a'..=b'h').map(|byte| format!("{byte} 100\n")).collect();
        assert_eq!(String::from_utf8(ran.output).unwrap(), expected, "{}", strategy.name());
    }
}

/// Counts bytes, and does not say what is conserved of a count.
#[derive(Debug, Serialize, Deserialize)]
struct Careless;

impl KeyedJob for Careless {
    fn split(&self) -> Split {
        Split::Anywhere
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        while let Some(byte) = input.next_record(1)? {
            emit(byte, &1_u64.to_le_bytes())?;
        }
        Ok(())
    }

    fn combines(&self) -> bool {
        true
    }

    fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let count = |value: &[u8]| value.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
        *into = (count(into) + count(value)).to_le_bytes().to_vec();
        Ok(())
    }

    fn reduce(&self, _key: &[u8], _values: Values<'_>, _file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        panic!("nothing gets so far")
    }
}

exobus_shuffle::keyed_job!(Careless, "careless", 1);

#[tokio::test]
async fn a_job_that_combines_and_does_not_say_what_is_conserved_is_told_before_its_first_map() {
    let bench = Bench::new();
    let file = [bench.file("text", "to be or not to be")];
    for strategy in Strategy::ALL {
        let error = bench.error(Careless, &file, Some(strategy)).await;
        assert!(error.contains("careless.probe"), "{error}");
        assert!(error.contains("careless says 18 rows of what it emits, and 7 of that once it is combined"), "{error}");
        assert!(error.contains("has to implement KeyedJob::conserved"), "{error}");
    }
}
