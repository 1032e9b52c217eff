//! Folders that say a value of a column, `city=oslo`, as Hive and Spark name them.
//!
//! - What a name of a file cannot have, or what has a meaning in one, is written as `%` and two digits, in columns and in values: the same characters as there, and bytes that are 0.
//! - [`NULL`] stands for null. A text that is this word itself begins with `%5F`.
//! - An empty text is a folder without a value (`city=`), which is read and never written: Hive and Spark take both for null.

/// The value of a folder whose rows have none.
pub(crate) const NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// Most bytes of the name of a file or folder, on all file systems of Linux.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The name of the folder for a value of a column; `None`: null.
pub(crate) fn folder_name(column: &str, value: Option<&str>) -> String {
    let value = match value {
        None => NULL.to_owned(),
        Some(NULL) => format!("%5F{}", &NULL[1..]),
        Some(value) => encoded(value),
    };
    format!("{}={value}", encoded(column))
}

/// The column that a folder of this name says a value of, and the value; `None`: it says none, or what it says is no UTF-8.
pub(crate) fn column_and_value(name: &str) -> Option<(String, Option<String>)> {
    let (column, value) = name.split_once('=')?;
    let value = if value == NULL { None } else { Some(decoded(value)?) };
    Some((decoded(column)?, value)).filter(|(column, _)| !column.is_empty())
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0'..='\x1f'
            | '\x7f'
            | '"'
            | '#'
            | '%'
            | '\''
            | '*'
            | '/'
            | ':'
            | '='
            | '?'
            | '\\'
            | '{'
            | '['
            | ']'
            | '^' => {
                out.push_str(&format!("%{:02X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// What has no two digits behind `%` stands for itself.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named_as_hive_names_them_and_found_again() {
        for (value, name) in [
            (Some("oslo"), "city=oslo"),
            (None, "city=__HIVE_DEFAULT_PARTITION__"),
            (Some("__HIVE_DEFAULT_PARTITION__"), "city=%5F_HIVE_DEFAULT_PARTITION__"),
            (Some("a/b=c%d e"), "city=a%2Fb%3Dc%25d e"),
            (Some("2024-01-31 10:00:00"), "city=2024-01-31 10%3A00%3A00"),
            (Some("\0\t\u{7f}\"#'*?\\{[]^"), "city=%00%09%7F%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
            (Some("Tromsø 北"), "city=Tromsø 北"),
            (Some("."), "city=."),
            (Some(""), "city="),
        ] {
            assert_eq!(folder_name("city", value), name);
            assert_eq!(column_and_value(name), Some(("city".to_owned(), value.map(str::to_owned))), "{name}");
        }
        assert_eq!(folder_name("a=b", Some("1")), "a%3Db=1");
        assert_eq!(column_and_value("a%3Db=1=2"), Some(("a=b".to_owned(), Some("1=2".to_owned()))));
        // What others write that do not encode all.
        assert_eq!(column_and_value("a=100%"), Some(("a".to_owned(), Some("100%".to_owned()))));
        assert_eq!(column_and_value("a=%zz%2f"), Some(("a".to_owned(), Some("%zz/".to_owned()))));
        for none in ["city", "", "=oslo", "a=%FF"] {
            assert_eq!(column_and_value(none), None, "{none}");
        }
    }
}
