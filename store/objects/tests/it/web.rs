//! Files of web servers.

use exobus_files::{Access, FileError, Kind, Location};

use crate::WORLD;

#[test]
fn addresses_inside_are_refused_and_named_ones_are_not() {
    let _ = &WORLD.server;
    for url in
        ["http://127.0.0.2:9/x", "http://[::1]:9/x", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/x"]
    {
        let url = Location::from(url);
        let error = url.system().unwrap().look_up(&url).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("no public address"), "{url}: {error}");
    }
    // So are other ways to write one, which the system knows.
    for url in ["http://0x7f.0.0.3:9/x", "http://2130706435:9/x", "http://127.3:9/x"] {
        let url = Location::from(url);
        let error = url.system().unwrap().look_up(&url).unwrap_err();
        assert!(error.to_string().contains("127.0.0.3 is no public address"), "{url}: {error}");
    }
}

#[test]
fn nothing_is_written_to_a_web_server_and_no_secret_stands_in_a_url() {
    let _ = &WORLD.server;
    let url = Location::from("https://127.0.0.1:9/x");
    let system = url.system().unwrap();
    let begun = system.create_new(&url, exobus_files::Planned::default());
    assert!(begun.is_err_and(|error| matches!(error, FileError::ReadOnly { .. })));
    assert!(matches!(system.check_output_folder(&url), Err(FileError::ReadOnly { .. })));
    for url in ["http://user:secret@127.0.0.1/x", "http://127.0.0.1/x?token=secret"] {
        let error = Location::from(url).open(Access::Cached).unwrap_err();
        assert!(matches!(error, FileError::WrongKind { .. }), "{error}");
    }
}

#[test]
fn a_file_of_a_web_server_is_found_and_read_in_ranges() {
    use std::io::{Read as _, Write as _};
    // A server that knows HEAD and ranges of one file.
    #[allow(clippy::disallowed_methods, reason = "a server of a test")]
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let content: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_le_bytes()).collect();
    let served = content.clone();
    #[allow(clippy::disallowed_methods, reason = "a server of a test")]
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, mut request) = (connection.unwrap(), Vec::new());
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read == 1) {
                request.push(byte[0]);
            }
            let text = String::from_utf8(request).unwrap().to_ascii_lowercase();
            let range = text.split("range: bytes=").nth(1).and_then(|rest| rest.lines().next()).map(|range| {
                let (from, to) = range.split_once('-').unwrap();
                from.parse::<usize>().unwrap()..to.parse::<usize>().unwrap().min(served.len() - 1) + 1
            });
            let always = "Connection: close\r\nETag: \"one\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n";
            let answer = match (text.starts_with("head"), text.contains("/data/a%20file.csv"), range) {
                (_, false, _) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                (false, true, Some(range)) => {
                    let (first, last, of) = (range.start, range.end - 1, served.len());
                    let head = format!(
                        "HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{last}/{of}\r\nContent-Length: {}\r\n{always}\r\n",
                        range.len()
                    );
                    [head.as_bytes(), &served[range]].concat()
                }
                _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{always}\r\n", served.len()).into_bytes(),
            };
            let _ = connection.write_all(&answer);
        }
    });
    let _ = &WORLD.server;
    let url = Location::from(&*format!("http://{address}/data/a%20file.csv"));
    let system = url.system().unwrap();
    assert!(matches!(system.look_up(&url).unwrap(), Kind::File(status) if status.bytes == 400_000));
    for access in [Access::Direct, Access::Cached, Access::Ranges] {
        let file = url.open(access).unwrap();
        let mut bytes = vec![0; 10_000];
        assert_eq!(file.read_at(4_000, &mut bytes, 10_000).unwrap(), 10_000);
        assert!(bytes == content[4_000..14_000]);
        assert_eq!(file.read_at(399_999, &mut bytes, 1).unwrap(), 1);
        assert!(matches!(file.read_at(399_999, &mut bytes, 2), Err(FileError::EndedEarly { .. })));
    }
    let missing = Location::from(&*format!("http://{address}/data/other.csv"));
    let error = missing.open(Access::Cached).unwrap_err();
    assert!(error.is_bad_input(), "{error}");
}
