//! The words of a condition, each with its place.

use super::ExpressionError;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name or a word of the language, as it stands there.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// A number, with its sign.
    Number(String),
    /// `( ) , . = != < <= > >=`; `<>` is `!=`.
    Sign(&'static str),
    /// The text ends.
    End,
}

impl Token {
    /// As errors show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) | Self::Quoted(word) => word.clone(),
            Self::Text(text) => format!("'{text}'"),
            Self::Number(number) => number.clone(),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

const SIGNS: [&str; 12] = ["!=", "<>", "<=", ">=", "==", "(", ")", ",", ".", "=", "<", ">"];

/// All words, and the end behind them.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, ExpressionError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, at));
            return Ok(tokens);
        };
        let (token, bytes) = match first {
            '\'' => quoted(text, at, '\'').map(|(inside, bytes)| (Token::Text(inside), bytes))?,
            '"' => quoted(text, at, '"').map(|(inside, bytes)| (Token::Quoted(inside), bytes))?,
            '0'..='9' | '-' | '+' => number(text, at)?,
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) && !is_behind_name(&tokens) => number(text, at)?,
            _ if is_name_start(first) => {
                let bytes = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
                (Token::Word(rest[..bytes].to_owned()), bytes)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(&"<>") => (Token::Sign("!="), 2),
                Some(&"==") => (Token::Sign("="), 2),
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => {
                    let what = format!("{first} means nothing here; names with such characters are in double quotes");
                    return Err(ExpressionError::new(text, at, what));
                }
            },
        };
        tokens.push((token, at));
        at += bytes;
    }
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

pub(super) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_behind_name(tokens: &[(Token, usize)]) -> bool {
    matches!(tokens.last(), Some((Token::Word(_) | Token::Quoted(_), _)))
}

/// What is between quotes, and the bytes of all of it.
fn quoted(text: &str, at: usize, quote: char) -> Result<(String, usize), ExpressionError> {
    let (mut inside, mut rest) = (String::new(), &text[at + 1..]);
    loop {
        let Some(end) = rest.find(quote) else {
            return Err(ExpressionError::new(text, at, format!("there is no {quote} at its end")));
        };
        inside.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(quote) {
            Some(behind) => {
                inside.push(quote);
                rest = behind;
            }
            None => return Ok((inside, text.len() - rest.len() - at)),
        }
    }
}

/// Digits with a sign, a point and an exponent or not.
fn number(text: &str, at: usize) -> Result<(Token, usize), ExpressionError> {
    let bytes = &text.as_bytes()[at..];
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = usize::from(matches!(bytes[0], b'-' | b'+'));
    let whole = digits(end);
    end += whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return Err(ExpressionError::new(text, at, "a number belongs here"));
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        match digits((end + 1 + sign).min(bytes.len())) {
            0 => return Err(ExpressionError::new(text, at, "a number ends with the digits of its exponent")),
            exponent => end += 1 + sign + exponent,
        }
    }
    if text[at + end..].starts_with(is_of_name) {
        return Err(ExpressionError::new(
            text,
            at,
            "a number ends with a digit; names that begin with one are in double quotes",
        ));
    }
    let number = text[at..at + end].strip_prefix('+').unwrap_or(&text[at..at + end]);
    Ok((Token::Number(number.to_owned()), end))
}
