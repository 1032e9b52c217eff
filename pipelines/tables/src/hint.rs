//! What may help whoever names a column that is not there.

use arrow_schema::Schema;

use crate::TableError;

/// There is no column of this name in a table.
pub(crate) fn no_column(schema: &Schema, column: &str) -> TableError {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    TableError::NoColumn { column: column.to_owned(), hint: hint(column, names) }
}

/// What to say to whoever names a column that is not among these.
pub(crate) fn hint<'a>(column: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.into_iter().collect();
    let delimited = || match names.as_slice() {
        [header] => delimiter(header).map(|delimiter| delimited(header, delimiter)),
        _ => None,
    };
    match names.is_empty() {
        true => Some("the table has no columns: its files have no first row, which would name them".to_owned()),
        false => delimited().or_else(|| nearest(column, &names).map(did_you_mean)),
    }
}

/// The question that goes behind an error.
pub fn did_you_mean(name: impl std::fmt::Display) -> String {
    format!("did you mean {name}?")
}

/// The character between names that were taken for one name.
fn delimiter(header: &str) -> Option<char> {
    [';', '|', '\t', ','].into_iter().find(|delimiter| header.contains(*delimiter))
}

fn delimited(header: &str, delimiter: char) -> String {
    let what_to_do = match delimiter {
        '\t' => "say --input-format tsv",
        ',' => "say --input-format csv",
        _ => {
            "text is read with commas or, as tsv, with tabs between fields, and no option says otherwise: write it with these \
             (for one by tr, where they are in no field)"
        }
    };
    format!(
        "the table has one column, {header:?}, whose name has {delimiter:?} as if that were between names: {what_to_do}"
    )
}

/// The name that is most like one, if any is.
pub fn nearest<'a>(column: &str, names: &[&'a str]) -> Option<&'a str> {
    const ALIKE: f64 = 0.75;
    let likeness = |name: &str| strsim::jaro_winkler(&name.to_lowercase(), &column.to_lowercase());
    let of = names.iter().map(|name| (likeness(name), *name)).filter(|(likeness, _)| *likeness >= ALIKE);
    of.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_by_those_that_are_there() {
        let of = |names: &[&str]| hint("prcie", names.iter().copied());
        assert_eq!(of(&["id", "price"]).unwrap(), "did you mean price?");
        assert_eq!(of(&["id", "city"]), None);
        assert_eq!(of(&["id;city", "b"]), None);
        for (names, texts) in [
            (&[][..], ["no columns", "no first row"]),
            (&["id;price"], ["\"id;price\", whose name has ';'", "no option says otherwise"]),
            (&["id|price"], ["whose name has '|'", "commas or, as tsv, with tabs"]),
            (&["id\tprice"], ["whose name has '\\t'", "--input-format tsv"]),
            (&["id,price"], ["whose name has ','", "--input-format csv"]),
        ] {
            let hint = of(names).unwrap();
            assert!(texts.iter().all(|text| hint.contains(text)), "{hint}");
        }
    }
}
