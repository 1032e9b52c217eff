//! The codec: what goes in comes out, unknown fields are ignored, and no bytes make it panic or overflow the stack.

use std::collections::BTreeMap;

use exobus_bus::codec::{self, CodecError, DEPTH_MAX, FORMAT_VERSION, SIZE_BYTES_MAX};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Number(i64),
    Text { text: String, tags: Vec<String> },
    Pair(u8, Option<f64>),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Map(BTreeMap<String, u64>),
}

/// Recursive, which wire types never are: the worst that a decoder can be asked for.
#[derive(Debug, Serialize, Deserialize)]
enum Recursive {
    Leaf,
    Deeper(Box<Recursive>),
    Both(Vec<Recursive>),
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Unit),
        any::<i64>().prop_map(Shape::Number),
        (".{0,40}", prop::collection::vec(".{0,10}", 0..20)).prop_map(|(text, tags)| Shape::Text { text, tags }),
        (any::<u8>(), prop::option::of(-1e9..1e9)).prop_map(|(a, b)| Shape::Pair(a, b)),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Shape::Bytes),
        prop::collection::btree_map("[a-z]{1,5}", any::<u64>(), 0..20).prop_map(Shape::Map),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_goes_in_comes_out(value in prop::collection::vec(shape(), 0..30)) {
        let bytes = codec::encode(&value).unwrap();
        prop_assert_eq!(codec::decode::<Vec<Shape>>(&bytes).unwrap(), value);
    }

    #[test]
    fn random_bytes_are_a_value_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = codec::decode::<Vec<Shape>>(&bytes);
        bytes.insert(0, FORMAT_VERSION);
        let _ = codec::decode::<Vec<Shape>>(&bytes);
        let _ = codec::decode::<Recursive>(&bytes);
    }

    #[test]
    fn garbled_values_are_a_value_or_an_error(
        value in prop::collection::vec(shape(), 1..10),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = codec::encode(&value).unwrap().to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = codec::decode::<Vec<Shape>>(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(codec::decode::<Vec<Shape>>(&bytes).is_err() || bytes.len() > 1);
    }
}

/// What was kept by an earlier release of the same version must be read for ever.
#[test]
fn the_stored_sample_is_what_is_written_and_read() {
    let stored = include_bytes!("samples/value-1.bin");
    let value = (7_u64, "text".to_owned(), Some(vec![1_u8, 2]), -1_i32);
    assert!(codec::encode(&value).unwrap() == stored[..], "other bytes than in the sample");
    assert_eq!(codec::decode::<(u64, String, Option<Vec<u8>>, i32)>(stored).unwrap(), value);
}

#[test]
fn deep_nesting_is_refused_before_anybody_recurses() {
    // 120 kB of `{"Deeper": {"Deeper": ...`: overflows a stack of 2 MiB when rmp-serde reads it.
    let mut bytes = vec![FORMAT_VERSION];
    while bytes.len() < 120_000 {
        bytes.extend_from_slice(b"\x81\xa6Deeper");
    }
    bytes.extend_from_slice(b"\xa4Leaf");
    let error = codec::decode::<Recursive>(&bytes).unwrap_err();
    assert!(matches!(error, CodecError::TooDeep { .. }), "{error}");
    // The same in arrays, and cut off in the middle.
    let arrays = [vec![FORMAT_VERSION], vec![0x91; 120_000], vec![0xc0]].concat();
    assert!(matches!(codec::decode::<Recursive>(&arrays), Err(CodecError::TooDeep { .. })));
    assert!(codec::decode::<Recursive>(&bytes[..60_000]).is_err());
}

#[test]
fn the_encoder_refuses_what_the_decoder_would() {
    let nested = |levels: usize| (0..levels).fold(Recursive::Leaf, |inner, _| Recursive::Deeper(Box::new(inner)));
    let deepest = codec::encode(&nested(DEPTH_MAX)).unwrap();
    codec::decode::<Recursive>(&deepest).unwrap();
    assert!(matches!(codec::encode(&nested(DEPTH_MAX + 1)), Err(CodecError::TooDeep { .. })));
    // One byte for the version, three for the length.
    let fits = "x".repeat(SIZE_BYTES_MAX - 6);
    assert_eq!(codec::encode(&fits).unwrap().len(), SIZE_BYTES_MAX);
    let too_large = codec::encode(&"x".repeat(SIZE_BYTES_MAX - 5));
    assert!(matches!(too_large, Err(CodecError::TooLarge { bytes }) if bytes == SIZE_BYTES_MAX + 1));
}

#[test]
fn declared_lengths_beyond_the_message_are_refused() {
    for lie in [
        &b"\xdd\xff\xff\xff\xff"[..], // an array of 4 billion
        b"\xdf\xff\xff\xff\xff",      // a map of 4 billion
        b"\xdb\xff\xff\xff\xff",      // a text of 4 GB
        b"\xc6\x7f\xff\xff\xffx",     // bytes of 2 GB
        b"\xc9\xff\xff\xff\xff\x01",  // an extension of 4 GB
        b"\x93\x01\x02",              // three elements, two there
        b"\x82\xa1a\x01",             // two entries, one there
        b"\xcd\x01",                  // half a number
        b"\xd9",                      // no length
        b"",
    ] {
        let bytes = [&[FORMAT_VERSION], lie].concat();
        let error = codec::decode::<Vec<Shape>>(&bytes).unwrap_err();
        assert!(matches!(error, CodecError::Truncated { .. }), "{lie:x?}: {error}");
    }
}

#[test]
fn each_refusal_names_its_reason() {
    assert!(matches!(codec::decode::<u8>(&[]), Err(CodecError::Empty)));
    assert!(matches!(codec::decode::<u8>(&[9, 1]), Err(CodecError::Version { found: 9, known: FORMAT_VERSION })));
    assert!(matches!(codec::decode::<u8>(&[FORMAT_VERSION, 1, 2]), Err(CodecError::Trailing { bytes: 1 })));
    assert!(matches!(codec::decode::<u8>(&[FORMAT_VERSION, 0xc1]), Err(CodecError::Reserved { at: 1 })));
    assert!(matches!(codec::decode::<u8>(&[FORMAT_VERSION, 0xa1, b'x']), Err(CodecError::Type(_))));
    let large = vec![FORMAT_VERSION; SIZE_BYTES_MAX + 1];
    assert!(matches!(codec::decode::<u8>(&large), Err(CodecError::TooLarge { .. })));
}

#[test]
fn a_newer_sender_may_have_more_fields_and_an_older_one_fewer() {
    #[derive(Serialize)]
    struct New {
        job: u32,
        hurry: bool,
        more: Vec<String>,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Old {
        job: u32,
        #[serde(default)]
        retired: Option<String>,
    }
    let bytes = codec::encode(&New { job: 7, hurry: true, more: vec!["x".to_owned()] }).unwrap();
    assert_eq!(codec::decode::<Old>(&bytes).unwrap(), Old { job: 7, retired: None });
}

#[test]
fn a_flipped_bit_anywhere_in_a_checked_value_is_found() {
    let value = ("beat", 7_u64, vec![1_u8, 2, 3]);
    let mut bytes = codec::encode_checked(&value).unwrap().to_vec();
    let read = |bytes: &[u8]| codec::decode_checked::<(String, u64, Vec<u8>)>(bytes);
    assert_eq!(read(&bytes).unwrap().1, 7);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(read(&bytes), Err(CodecError::Checksum)), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut after {length} bytes");
    }
}
