use proptest::prelude::*;

use super::*;

fn parts() -> impl Strategy<Value = Parts> {
    prop_oneof![
        Just(Parts::All),
        (0..u32::MAX, 0..1000_u32).prop_map(|(first, more)| Parts::Range(first, first.saturating_add(more))),
    ]
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let items = (any::<u128>(), proptest::collection::vec((any::<u128>(), parts()), 0..50));
    let item = |group, (bits, parts)| Item { object: CopyId::new(group, bits), parts };
    items.prop_map(move |(group, items)| items.into_iter().map(|it| item(group, it)).collect())
}

fn decode_request(bytes: &[u8]) -> Result<(Kind, Vec<Item>), WireError> {
    let head = decode_request_head(bytes)?;
    Ok((head.kind, decode_items(&head, &bytes[REQUEST_BYTES..])?))
}

/// Every decoder there is, on the same bytes.
fn decode_all(bytes: &[u8]) -> Vec<WireError> {
    let mut errors = Vec::new();
    let lengths = decode_hello_head(bytes);
    errors.extend(lengths.clone().err());
    errors.extend(lengths.and_then(|lengths| decode_hello_texts(lengths, bytes).map(drop)).err());
    errors.extend(decode_welcome_head(bytes).err());
    errors.extend(decode_request(bytes).err());
    errors.extend(decode_answer_head(bytes).and_then(|head| head.verify(&[])).err());
    errors.extend(decode_parts(bytes).err());
    errors
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    /// Every decoder takes a slice that has arrived and allocates no more than a constant times its length; here: none
    /// of them panics, whatever comes.
    #[test]
    fn garbage_is_an_error_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode_all(&bytes);
    }
}

proptest! {
    #[test]
    fn requests_come_back_as_they_went(kind in prop_oneof![Just(Kind::Directory), Just(Kind::Read), Just(Kind::Verify)], items in items()) {
        prop_assert_eq!(decode_request(&encode_request(kind, &items)), Ok((kind, items)));
    }

    /// The check finds every flipped bit of a request, so that no other part is sent than the one that was asked for.
    #[test]
    fn a_flipped_bit_of_a_request_is_found(items in items(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = encode_request(Kind::Read, &items);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode_request(&bytes).is_err());
    }

    #[test]
    fn a_flipped_bit_of_an_answer_is_found(
        length in any::<u64>(), text in "[a-z]{0,40}", at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        for (status, length, body) in [
            (Status::Here, length, ""), (Status::Absent, 0, ""), (Status::Failed, text.len() as u64, text.as_str()),
        ] {
            let mut bytes = Vec::new();
            encode_answer_head(&mut bytes, 7, status, length, body.as_bytes());
            let head = decode_answer_head(&bytes).unwrap();
            prop_assert_eq!((head.index, head.status, head.length), (7, status, length));
            prop_assert_eq!(head.verify(body.as_bytes()), Ok(()));
            bytes.extend_from_slice(body.as_bytes());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let seen = decode_answer_head(&bytes).and_then(|head| head.verify(&bytes[ANSWER_BYTES..]));
            prop_assert!(seen.is_err());
        }
    }

    #[test]
    fn directories_come_back_as_they_went(
        parts in proptest::collection::vec(any::<(u32, u32, u32, u128, u64)>(), 0..50),
    ) {
        // One behind the other, with gaps: others are refused.
        let mut end = 0;
        let part = |(gap, bytes, rows, hash, checksum): (u32, u32, u32, u128, u64)| {
            let (offset, bytes, rows) = (end + u64::from(gap), u64::from(bytes), u64::from(rows));
            end = offset + bytes;
            PartMeta { offset, bytes, rows, row_hash: RowHash(hash), checksum }
        };
        let parts: Vec<_> = parts.into_iter().map(part).collect();
        prop_assert_eq!(decode_parts(&encode_parts(&parts)), Ok(parts));
    }

    #[test]
    fn hellos_come_back_as_they_went(
        token in proptest::collection::vec(any::<u8>(), 0..=HELLO_TEXT_MAX), from in "[a-zA-Z0-9_-]{0,64}", to in "ä?[a-z]{0,30}",
    ) {
        let hello = Hello { token: &token, from: &from, to: &to };
        let bytes = encode_hello(&hello);
        let lengths = decode_hello_head(&bytes).unwrap();
        prop_assert!(decode_hello_texts(lengths, &bytes[HELLO_BYTES..]) == Ok(hello));
    }
}

#[test]
fn every_truncation_is_an_error() {
    let item = Item { object: CopyId::new(3, 5), parts: Parts::Range(1, 2) };
    let request = encode_request(Kind::Read, &[item]);
    for length in 0..request.len() {
        let head = decode_request_head(&request[..length]);
        let items = head.and_then(|head| decode_items(&head, request[..length].get(REQUEST_BYTES..).unwrap_or(&[])));
        assert!(items.is_err(), "{length} bytes");
    }
    let mut answer = Vec::new();
    encode_answer_head(&mut answer, 0, Status::Here, 9, &[]);
    let hello = encode_hello(&Hello { token: b"t", from: "a", to: "b" });
    let welcome = encode_welcome(Ok("n"));
    for length in 0..ANSWER_BYTES {
        assert!(decode_answer_head(&answer[..length]).is_err(), "{length} bytes");
    }
    for length in 0..HELLO_BYTES {
        assert!(decode_hello_head(&hello[..length]).is_err(), "{length} bytes");
    }
    for length in 0..WELCOME_BYTES {
        assert!(decode_welcome_head(&welcome[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn impossible_fields_are_named() {
    let request = encode_request(Kind::Read, &[]);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = request.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        decode_request_head(&changed).unwrap_err().to_string()
    };
    assert_eq!(with(0, &[9]), "kind of a request is 9");
    assert_eq!(with(4, &u32::MAX.to_le_bytes()), "number of items is 4294967295");
    assert_eq!(with(2, &[1]), "padding of a request is 1");
    assert_eq!(with(8, &[7]), "group of a request for nothing is 7");
    let hello = encode_hello(&Hello { token: b"t", from: "a", to: "b" });
    let mut long = hello.clone();
    long[6..8].copy_from_slice(&257_u16.to_le_bytes());
    assert_eq!(decode_hello_head(&long).unwrap_err().to_string(), "length of a text in a hello is 257");
    let mut other = hello;
    other[4] = 9;
    assert_eq!(decode_hello_head(&other).unwrap_err(), WireError::Version { theirs: 9 });
    assert_eq!(decode_hello_head(b"GET / HTTP/1.1\r\n").unwrap_err(), WireError::Magic);
}

#[test]
#[should_panic(expected = "items of several groups")]
fn a_request_for_copies_of_several_groups_cannot_be_made() {
    let items = [1, 2].map(|group| Item { object: CopyId::new(group, 5), parts: Parts::All });
    encode_request(Kind::Read, &items);
}

#[test]
fn a_refusal_of_another_version_is_understood() {
    let mut refusal = encode_welcome(Err("speaks version 2, this node 3"));
    refusal[4] = 3;
    assert_eq!(decode_welcome_head(&refusal), Ok((true, 29)));
    let mut welcome = encode_welcome(Ok("n1"));
    assert_eq!(decode_welcome_head(&welcome), Ok((false, 2)));
    welcome[4] = 3;
    assert_eq!(decode_welcome_head(&welcome), Err(WireError::Version { theirs: 3 }));
}

/// Nodes of one version meet, whatever else has changed in them.
#[test]
fn the_stored_sample_is_what_is_written_and_read() {
    let stored = &include_bytes!("../../tests/samples/transfer-2.bin")[..];
    let part = |offset, bytes| PartMeta { offset, bytes, rows: 3, row_hash: RowHash(9 << 100), checksum: 5 };
    let (hello, parts) = (Hello { token: b"token", from: "n1", to: "n2" }, vec![part(0, 10), part(64, 0), part(64, 7)]);
    let items = [Parts::All, Parts::Range(7, 8)].map(|parts| Item { object: CopyId::new(1 << 100, 5 << 32), parts });
    let request = encode_request(Kind::Read, &items);
    let directory = encode_parts(&parts);
    let mut answer = Vec::new();
    encode_answer_head(&mut answer, 1, Status::Here, directory.len() as u64, &directory);
    let said = [encode_hello(&hello), encode_welcome(Ok("n2")), encode_welcome(Err("why")), request, answer, directory];
    assert!(said.concat() == stored, "other bytes than in the sample");
    let mut rest = stored;
    let mut next = |bytes: usize| rest.split_off(..bytes).unwrap();
    let lengths = decode_hello_head(next(HELLO_BYTES)).unwrap();
    assert!(decode_hello_texts(lengths, next(lengths.iter().sum())).unwrap() == hello);
    for (refused, text) in [(false, "n2"), (true, "why")] {
        assert_eq!(decode_welcome_head(next(WELCOME_BYTES)), Ok((refused, text.len())));
        assert_eq!(next(text.len()), text.as_bytes());
    }
    assert_eq!(decode_request(next(REQUEST_BYTES + 2 * ITEM_BYTES)), Ok((Kind::Read, items.to_vec())));
    let head = decode_answer_head(next(ANSWER_BYTES)).unwrap();
    let directory = next(head.length as usize);
    assert_eq!((head.index, head.status, head.verify(directory)), (1, Status::Here, Ok(())));
    assert_eq!(decode_parts(directory), Ok(parts));
    assert_eq!(VERSION, 2, "another version has a sample of its own");
}

#[test]
fn a_read_sends_from_the_first_byte_to_the_last() {
    let part = |offset, bytes| PartMeta { offset, bytes, rows: 0, row_hash: RowHash(0), checksum: 0 };
    let table = [
        (vec![], 0..0),
        (vec![part(7, 0)], 0..0),
        (vec![part(10, 5)], 10..15),
        (vec![part(3, 0), part(10, 5), part(64, 2), part(66, 0)], 10..66),
        (vec![part(10, 5), part(u64::MAX, u64::MAX)], 10..u64::MAX),
        // Nonsense from another node is a wrong length, not a panic.
        (vec![part(10, 5), part(2, 1)], 10..10),
    ];
    for (parts, range) in table {
        assert_eq!(byte_range(&parts), range, "{parts:?}");
    }
}
