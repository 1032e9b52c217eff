//! Names of columns.

use std::sync::Arc;

use arrow_schema::Schema;

use super::SourceError;
use crate::hint::hint;
use crate::semantics::UnifiedSchema;

/// Refuses names of columns that nobody could tell apart or say, as [`UnifiedSchema`] does: empty ones, and those that are there twice or differ in case only.
///
/// # Errors
/// [`SourceError::Table`].
pub fn check_names(file: &Arc<str>, schema: &Schema) -> Result<(), SourceError> {
    match UnifiedSchema::new(file, schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(SourceError::Table { file: file.clone(), error }),
    }
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
        hint: hint(column, names()),
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn names_that_cannot_be_told_apart_are_refused() {
        let check = |names: [&str; 3]| {
            let fields: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
            check_names(&"t.csv".into(), &Schema::new(fields)).map_err(|error| error.to_string())
        };
        assert_eq!(check(["id", "Name", "x y"]), Ok(()));
        for (names, what) in
            [(["id", "", "b"], "has no name"), (["id", "b", "id"], "column id"), (["id", "b", "ID"], "column ID")]
        {
            let error = check(names).unwrap_err();
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
