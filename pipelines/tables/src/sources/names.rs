//! Names of columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::Schema;

use super::SourceError;

/// Refuses names of columns that nobody could tell apart or say: empty ones, and those that are there twice or differ in case only.
///
/// # Errors
/// [`SourceError::Names`], with the columns by number.
pub fn check_names<'a>(file: &Arc<str>, names: impl IntoIterator<Item = &'a str>) -> Result<(), SourceError> {
    let mut seen: HashMap<String, (usize, &str)> = HashMap::new();
    for (at, name) in names.into_iter().enumerate() {
        let wrong = |what| Err(SourceError::Names { file: file.clone(), what });
        if name.is_empty() {
            return wrong(format!("column {} has no name: give it one in the file", at + 1));
        }
        match seen.insert(name.to_lowercase(), (at, name)) {
            Some((first, other)) if other == name => {
                return wrong(format!(
                    "columns {} and {} are both named {name}: give one another name",
                    first + 1,
                    at + 1
                ));
            }
            Some((first, other)) => {
                let (first, at) = (first + 1, at + 1);
                return wrong(format!(
                    "columns {first} and {at}, {other} and {name}, differ in case only: give one another name"
                ));
            }
            None => (),
        }
    }
    Ok(())
}

/// Which column of a schema has that name.
///
/// # Errors
/// [`SourceError::NoColumn`], with the name that is most like it.
pub fn column_index(file: &Arc<str>, schema: &Schema, column: &str) -> Result<usize, SourceError> {
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    names().position(|name| name == column).ok_or_else(|| SourceError::NoColumn {
        file: file.clone(),
        column: column.to_owned(),
        nearest: nearest(column, names()),
    })
}

/// The name that is most like one, if any is.
pub(super) fn nearest<'a>(column: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const ALIKE: f64 = 0.75;
    let likeness = |name: &str| strsim::jaro_winkler(&name.to_lowercase(), &column.to_lowercase());
    let of = names.into_iter().map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= ALIKE);
    of.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn names_that_cannot_be_told_apart_are_refused() {
        let file: Arc<str> = "t.csv".into();
        let check = |names: &[&str]| check_names(&file, names.iter().copied()).map_err(|error| error.to_string());
        assert_eq!(check(&["id", "Name", "x y"]), Ok(()));
        for (names, what) in [
            (["id", "", "b"], "column 2 has no name"),
            (["id", "b", "id"], "columns 1 and 3 are both named id"),
            (["id", "b", "ID"], "columns 1 and 3, id and ID, differ in case only"),
        ] {
            let error = check(&names).unwrap_err();
            assert!(error.starts_with("t.csv: ") && error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_column_that_is_not_there_has_a_name_like_it() {
        let schema =
            Schema::new(vec![Field::new("price", DataType::Int64, true), Field::new("city", DataType::Utf8, true)]);
        let file: Arc<str> = "t.csv".into();
        assert_eq!(column_index(&file, &schema, "city").unwrap(), 1);
        let text = |column| column_index(&file, &schema, column).unwrap_err().to_string();
        assert_eq!(text("pirce"), "t.csv has no column pirce; did you mean price?");
        assert_eq!(text("zzz"), "t.csv has no column zzz");
    }
}
