//! Texts of aggregates, read from the left to the right.

use super::{Aggregate, AggregateError, Function};
use crate::hint::{did_you_mean, nearest};

/// Whether a character may be in a name without quotes.
pub(super) fn is_of_name(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, ',' | '(' | ')' | '"' | '\'')
}

/// One aggregate, and nothing behind it.
pub(super) fn aggregate(text: &str) -> Result<Aggregate, AggregateError> {
    let mut parser = Parser { text, at: 0 };
    let aggregate = parser.aggregate()?;
    match parser.next() {
        None => Ok(aggregate),
        Some(_) => Err(parser.error("one aggregate ends here: nothing may follow")),
    }
}

/// Some with commas between them.
pub(super) fn list(text: &str) -> Result<Vec<Aggregate>, AggregateError> {
    let mut parser = Parser { text, at: 0 };
    if parser.next().is_none() {
        return Err(parser.error("there is no aggregate: say one at least, such as count(*) or sum(price)"));
    }
    let mut aggregates: Vec<Aggregate> = Vec::new();
    loop {
        parser.next();
        let at = parser.at;
        let one = parser.aggregate()?;
        let name = one.name.to_lowercase();
        if let Some(other) = aggregates.iter().find(|other| other.name.to_lowercase() == name) {
            let how = if other.name == one.name { "the same name" } else { "one name but for case" };
            let what =
                format!("{} and {} have {how}: give one of them another one, with as NAME", other.name, one.name);
            return Err(AggregateError::new(text, at, what));
        }
        aggregates.push(one);
        match parser.next() {
            None => return Ok(aggregates),
            Some(',') => parser.at += 1,
            Some(_) => return Err(parser.error("a comma or as NAME belongs behind an aggregate")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Bytes that were read.
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next character that is no space, which is not read.
    fn next(&mut self) -> Option<char> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.chars().next()
    }

    fn error(&self, what: impl Into<String>) -> AggregateError {
        AggregateError::new(self.text, self.at, what)
    }

    /// Characters of a name without quotes; there may be none.
    fn word(&mut self) -> &'a str {
        self.next();
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// A name, in double quotes or not; empty where there is none.
    fn name(&mut self) -> Result<String, AggregateError> {
        match self.next() {
            Some('"') => self.quoted(),
            Some('\'') => Err(self.error("names are in double quotes, or in none")),
            _ => Ok(self.word().to_owned()),
        }
    }

    fn quoted(&mut self) -> Result<String, AggregateError> {
        let from = self.at;
        let (mut inside, mut rest) = (String::new(), &self.text[from + 1..]);
        loop {
            let Some(end) = rest.find('"') else { return Err(self.error("there is no \" at its end")) };
            inside.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(behind) => {
                    inside.push('"');
                    rest = behind;
                }
                None => break,
            }
        }
        match inside.is_empty() {
            true => Err(self.error("there is nothing between the quotes: a name has a character at least")),
            false => {
                self.at = self.text.len() - rest.len();
                Ok(inside)
            }
        }
    }

    /// `function(argument, ...) [as name]`.
    fn aggregate(&mut self) -> Result<Aggregate, AggregateError> {
        self.next();
        let at = self.at;
        let word = self.word();
        let Some((name, function)) = Function::named(word) else {
            let names: Vec<&str> = Function::names().collect();
            let what = match (word, nearest(word, &names)) {
                ("", _) => "a function belongs here, such as count(*) or sum(price)".to_owned(),
                (_, Some(near)) => format!("there is no function {word}; {}", did_you_mean(near)),
                _ => format!("there is no function {word}; there are {}", names.join(", ")),
            };
            return Err(AggregateError::new(self.text, at, what));
        };
        if self.next() != Some('(') {
            return Err(self.error(format!("{name} has its argument in brackets: {}", example(name))));
        }
        self.at += 1;
        let (mut function, column) = self.column(name, function)?;
        if function.part().is_some() && name != "median" {
            function = self.part(name, function)?;
        }
        match self.next() {
            Some(')') => self.at += 1,
            Some(',') => return Err(self.error(format!("{name} takes no more arguments: {}", example(name)))),
            Some(_) => {
                return Err(self.error("a bracket belongs here; names with such characters are in double quotes"));
            }
            None => return Err(self.error("the closing bracket is missing")),
        }
        let mut aggregate = Aggregate::new(function, column);
        if let Some(name) = self.renamed()? {
            aggregate.name = name;
        }
        Ok(aggregate)
    }

    /// The first argument, which may say that only distinct values are counted.
    fn column(&mut self, name: &str, function: Function) -> Result<(Function, Option<String>), AggregateError> {
        let is_quoted = self.next() == Some('"');
        let at = self.at;
        let column = self.name()?;
        match (column.as_str(), function) {
            ("", _) => {
                return Err(self.error(format!("{name} of which column? The argument is missing: {}", example(name))));
            }
            ("*", Function::Count) if !is_quoted => return Ok((function, None)),
            ("*", _) if !is_quoted => {
                let what = format!("{name} takes one column, {}; count(*) alone is of rows", example(name));
                return Err(AggregateError::new(self.text, at, what));
            }
            (word, Function::Count)
                if !is_quoted
                    && word.eq_ignore_ascii_case("distinct")
                    && self.next().is_some_and(|next| next == '"' || is_of_name(next)) =>
            {
                return self.column("count_distinct", Function::CountDistinct);
            }
            _ => (),
        }
        Ok((function, Some(column)))
    }

    /// The second argument of a quantile.
    fn part(&mut self, name: &str, function: Function) -> Result<Function, AggregateError> {
        if self.next() != Some(',') {
            return Err(self.error(format!("{name} takes the part of the values, too, from 0 to 1: {}", example(name))));
        }
        self.at += 1;
        self.next();
        let at = self.at;
        let word = self.word();
        match word.parse::<f64>() {
            // Without the sign of a zero.
            Ok(part) if (0.0..=1.0).contains(&part) => Ok(function.with_part(part.abs())),
            _ => {
                let what = format!("{name} takes a number from 0 to 1, not {word:?}: {}", example(name));
                Err(AggregateError::new(self.text, at, what))
            }
        }
    }

    /// `as name`, if that stands here.
    fn renamed(&mut self) -> Result<Option<String>, AggregateError> {
        self.next();
        let before = self.at;
        if !self.word().eq_ignore_ascii_case("as") {
            self.at = before;
            return Ok(None);
        }
        let name = self.name()?;
        match name.is_empty() {
            true => Err(self.error("a name belongs behind as")),
            false => Ok(Some(name)),
        }
    }
}

fn example(name: &str) -> String {
    match name {
        "count" => "count(*) or count(price)".to_owned(),
        "quantile" | "quantile_disc" | "quantile_cont" => format!("{name}(price, 0.9)"),
        name => format!("{name}(price)"),
    }
}
