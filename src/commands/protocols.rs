//! `exobus protocols`: every message between processes, with a sample, its size on the wire, and its name there.

mod samples;

use serde::Serialize;

use crate::{
    cli::ProtocolsArgs,
    exit::{Exit, Failure, OrExit},
    stdout,
};

/// One message of a protocol.
struct Sample {
    protocol: &'static str,
    variant: &'static str,
    bytes: usize,
    json: serde_json::Value,
    #[cfg(feature = "fuzzing")]
    encoded: bytes::Bytes,
}

/// Prints them.
pub fn run(args: &ProtocolsArgs) -> Result<Exit, Failure> {
    stdout::print(&text(args.filter.as_deref())?);
    Ok(Exit::Success)
}

/// All samples, or those of protocols whose name contains `filter`.
///
/// # Errors
/// No such protocol.
pub fn text(filter: Option<&str>) -> Result<String, Failure> {
    let samples = samples::all().or_exit(Exit::JobFailed)?;
    let mut text = String::new();
    let mut protocol = "";
    for sample in samples.iter().filter(|sample| filter.is_none_or(|filter| sample.protocol.contains(filter))) {
        if sample.protocol != protocol {
            protocol = sample.protocol;
            text.push_str(&format!("{}{protocol}\n", if text.is_empty() { "" } else { "\n" }));
        }
        text.push_str(&format!("  {} ({} bytes) {}\n", sample.variant, sample.bytes, sample.json));
    }
    if text.is_empty() {
        let mut names: Vec<&str> = samples.iter().map(|sample| sample.protocol).collect();
        names.dedup();
        return Err(Failure::text(Exit::Usage, format!("no such protocol; there are {}", names.join(", "))));
    }
    Ok(text)
}

/// The samples as they are on the wire, of all protocols or of this one.
///
/// # Errors
/// A sample that cannot be encoded.
#[cfg(feature = "fuzzing")]
pub fn encoded(protocol: Option<&str>) -> anyhow::Result<Vec<Vec<u8>>> {
    let samples = samples::all()?.into_iter().filter(|sample| protocol.is_none_or(|name| name == sample.protocol));
    Ok(samples.map(|sample| sample.encoded.to_vec()).collect())
}

impl Sample {
    fn of<T: Serialize>(protocol: &'static str, variant: &'static str, message: &T) -> anyhow::Result<Self> {
        let encoded = exobus_bus::codec::encode(message)?;
        let bytes = encoded.len();
        let json = readable(serde_json::to_value(message)?);
        Ok(Self {
            protocol,
            variant,
            bytes,
            json,
            #[cfg(feature = "fuzzing")]
            encoded,
        })
    }
}

/// JSON has no bytes: serde writes them as lists of numbers, which nobody can read.
fn readable(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| item.as_u64().and_then(|number| u8::try_from(number).ok())).collect();
            match bytes {
                Some(bytes) if bytes.len() >= 16 => {
                    Value::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
                }
                _ => Value::Array(items.into_iter().map(readable).collect()),
            }
        }
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, readable(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_far_under_the_payload_limit_and_named_once() {
        let samples = samples::all().unwrap();
        let mut names: Vec<(&str, &str)> = samples.iter().map(|sample| (sample.protocol, sample.variant)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a sample is there twice");
        for sample in &samples {
            assert!(sample.bytes < 4096, "{} {}: {} bytes", sample.protocol, sample.variant, sample.bytes);
        }
    }

    #[test]
    fn a_filter_finds_or_says_what_there_is() {
        assert!(text(Some("sched")).unwrap().starts_with("scheduler\n"));
        let error = text(Some("nothing")).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.to_string().contains("scheduler"), "{error}");
    }

    #[test]
    fn bytes_are_shown_as_hexadecimal_digits() {
        let value = serde_json::json!({ "id": vec![255u8; 16], "parts": [1, 2] });
        assert_eq!(readable(value), serde_json::json!({ "id": "ff".repeat(16), "parts": [1, 2] }));
    }
}
