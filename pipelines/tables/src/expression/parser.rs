//! Texts as conditions.

use super::ExpressionError;
use super::tokens::{Token, is_name_start, is_of_name, tokens};
use super::tree::{Comparison, DEPTH_MAX, Kind, Literal, Operand, OperandKind, TEXT_BYTES_MAX};
use crate::sources::text::Time;

/// Words that are no names unless they are in double quotes.
const WORDS: [&str; 11] = ["and", "or", "not", "is", "null", "in", "between", "like", "escape", "true", "false"];
pub(super) const TOO_DEEP: &str = "conditions lie too deep in each other: 64 levels at most";

/// Whether a path of names may stand without quotes.
pub(super) fn is_plain_path(path: &str) -> bool {
    let plain = |name: &str| {
        name.starts_with(is_name_start) && name.chars().all(is_of_name) && !WORDS.iter().any(|word| is(name, word))
    };
    path.split('.').all(plain)
}

fn is(name: &str, word: &str) -> bool {
    name.eq_ignore_ascii_case(word)
}

/// The condition that a text is.
pub(super) fn parse(text: &str) -> Result<Kind, ExpressionError> {
    if text.len() > TEXT_BYTES_MAX {
        let what = format!("{} bytes are too many: a condition has {TEXT_BYTES_MAX} at most", text.len());
        return Err(ExpressionError::new(text, 0, what));
    }
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let condition = parser.condition()?;
    match parser.peek() {
        Token::End if condition.is_too_deep(DEPTH_MAX) => Err(ExpressionError::new(text, 0, TOO_DEEP)),
        Token::End => Ok(condition),
        _ => Err(parser.expected("and, or, or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    fn wrong(&self, what: impl Into<String>) -> ExpressionError {
        ExpressionError::new(self.text, self.at(), what)
    }

    fn expected(&self, what: &str) -> ExpressionError {
        self.wrong(format!("{what} belongs here, not {}", self.peek().shown()))
    }

    /// Goes on where that word stands.
    fn takes(&mut self, word: &str) -> bool {
        let takes = matches!(self.peek(), Token::Word(here) if is(here, word));
        self.next += usize::from(takes);
        takes
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let takes = matches!(self.peek(), Token::Sign(here) if *here == sign);
        self.next += usize::from(takes);
        takes
    }

    fn needs_sign(&mut self, sign: &str) -> Result<(), ExpressionError> {
        if self.takes_sign(sign) { Ok(()) } else { Err(self.expected(sign)) }
    }

    /// Conditions one level deeper.
    fn deeper<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<T, ExpressionError> {
        if self.depth == DEPTH_MAX {
            return Err(self.wrong(TOO_DEEP));
        }
        self.depth += 1;
        let made = inside(self);
        self.depth -= 1;
        made
    }

    fn condition(&mut self) -> Result<Kind, ExpressionError> {
        let mut all = vec![self.conjunction()?];
        while self.takes("or") {
            all.push(self.conjunction()?);
        }
        Ok(joined(all, Kind::Or))
    }

    fn conjunction(&mut self) -> Result<Kind, ExpressionError> {
        let mut all = vec![self.negation()?];
        while self.takes("and") {
            all.push(self.negation()?);
        }
        Ok(joined(all, Kind::And))
    }

    fn negation(&mut self) -> Result<Kind, ExpressionError> {
        if self.takes("not") {
            return self.deeper(|parser| Ok(Kind::Not(Box::new(parser.negation()?))));
        }
        if !self.takes_sign("(") {
            return self.test();
        }
        let inside = self.deeper(Self::condition)?;
        self.needs_sign(")")?;
        match inside {
            // A value in brackets.
            Kind::Value(value) => self.test_of(value),
            condition => Ok(condition),
        }
    }

    fn test(&mut self) -> Result<Kind, ExpressionError> {
        let value = self.operand("a column, a value, not or (")?;
        self.test_of(value)
    }

    /// What stands behind a value.
    fn test_of(&mut self, value: Operand) -> Result<Kind, ExpressionError> {
        if let Some(comparison) = self.comparison() {
            return Ok(Kind::Compare(value, comparison, self.operand("a column or a value")?));
        }
        if self.takes("is") {
            let negated = self.takes("not");
            return match self.takes("null") {
                true => Ok(negated_if(negated, Kind::IsNull(value))),
                false => Err(self.expected(if negated { "null" } else { "null or not null" })),
            };
        }
        let negated = self.takes("not");
        if self.takes("in") {
            return Ok(negated_if(negated, Kind::In(value, self.list()?)));
        }
        if self.takes("between") {
            let least = self.operand("a column or a value")?;
            if !self.takes("and") {
                return Err(self.expected("and, and the largest value of between,"));
            }
            let greatest = self.operand("a column or a value")?;
            let both = [(Comparison::GreaterOrEqual, least), (Comparison::LessOrEqual, greatest)];
            let both = both.map(|(comparison, bound)| Kind::Compare(value.clone(), comparison, bound));
            return Ok(negated_if(negated, Kind::And(both.into())));
        }
        if self.takes("like") {
            return Ok(negated_if(negated, self.like(value)?));
        }
        match negated {
            true => Err(self.expected("in, between or like")),
            false => Ok(Kind::Value(value)),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Token::Sign(sign) = self.peek() else { return None };
        let comparison = match *sign {
            "=" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.next += 1;
        Some(comparison)
    }

    fn list(&mut self) -> Result<Vec<Operand>, ExpressionError> {
        self.needs_sign("(")?;
        let mut among = Vec::new();
        loop {
            let at = self.at();
            let one = self.operand("a value")?;
            if matches!(one.of, OperandKind::Column(_)) {
                return Err(ExpressionError::new(self.text, at, "in looks among values, not columns: use = and or"));
            }
            among.push(one);
            if !self.takes_sign(",") {
                self.needs_sign(")")?;
                return Ok(among);
            }
        }
    }

    fn like(&mut self, of: Operand) -> Result<Kind, ExpressionError> {
        let pattern = self.text_operand("a pattern in single quotes")?;
        if !self.takes("escape") {
            return Ok(Kind::Like(of, pattern, None));
        }
        let at = self.at();
        let escape = self.text_operand("one character in single quotes")?;
        let OperandKind::Literal(Literal::Text(text)) = &escape.of else { unreachable!("a text was asked for") };
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(one), None) => Ok(Kind::Like(of, pattern, Some(one))),
            _ => Err(ExpressionError::new(self.text, at, "escape is one character")),
        }
    }

    fn text_operand(&mut self, what: &str) -> Result<Operand, ExpressionError> {
        match self.peek() {
            Token::Text(text) => {
                let operand = Operand::literal(Literal::Text(text.clone()), self.at());
                self.next += 1;
                Ok(operand)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn operand(&mut self, what: &str) -> Result<Operand, ExpressionError> {
        let at = self.at();
        let literal = match self.peek().clone() {
            Token::Number(number) => Literal::Number(number),
            Token::Text(text) => Literal::Text(text),
            Token::Word(word) => match self.word(&word, what)? {
                Some(literal) => literal,
                None => return self.path(word, at),
            },
            Token::Quoted(name) => return self.path(name, at),
            Token::Sign("(") => {
                self.next += 1;
                let inside = self.deeper(|parser| parser.operand(what))?;
                return self.needs_sign(")").map(|()| inside);
            }
            _ => return Err(self.expected(what)),
        };
        self.next += 1;
        Ok(Operand::literal(literal, at))
    }

    /// The literal that begins with a word; `None`: the word is a name. What is left to go over is one word.
    fn word(&mut self, word: &str, what: &str) -> Result<Option<Literal>, ExpressionError> {
        let is_date = is(word, "date");
        if let (true, Token::Text(text)) = (is_date || is(word, "timestamp"), &self.tokens[self.next + 1].0) {
            let text = text.clone();
            let time = Time::read(text.as_bytes());
            self.next += 1;
            return match time {
                Some(time) if time.is_date || !is_date => {
                    Ok(Some(if is_date { Literal::Date(text) } else { Literal::Timestamp(text) }))
                }
                _ if is_date => Err(self.wrong(format!("'{text}' is no date, which is written '2024-01-31'"))),
                _ => Err(self.wrong(format!(
                    "'{text}' is no timestamp, which is written '2024-01-31 12:30:15.5', with Z or +02:00 behind it where it has a zone"
                ))),
            };
        }
        Ok(match WORDS.iter().find(|known| is(word, known)) {
            None => None,
            Some(&"null") => Some(Literal::Null),
            Some(&"true") => Some(Literal::Bool(true)),
            Some(&"false") => Some(Literal::Bool(false)),
            Some(_) => return Err(self.expected(what)),
        })
    }

    /// The path that begins with a name.
    fn path(&mut self, first: String, at: usize) -> Result<Operand, ExpressionError> {
        let mut path = first;
        self.next += 1;
        while self.takes_sign(".") {
            match self.peek() {
                Token::Word(name) | Token::Quoted(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                _ => return Err(self.expected("the name of a field")),
            }
            self.next += 1;
        }
        match path.is_empty() {
            true => Err(ExpressionError::new(self.text, at, "a column has a name")),
            false => Ok(Operand::column(path, at)),
        }
    }
}

fn joined(mut all: Vec<Kind>, row: impl FnOnce(Vec<Kind>) -> Kind) -> Kind {
    if all.len() == 1 { all.remove(0) } else { row(all) }
}

fn negated_if(negated: bool, condition: Kind) -> Kind {
    if negated { Kind::Not(Box::new(condition)) } else { condition }
}
