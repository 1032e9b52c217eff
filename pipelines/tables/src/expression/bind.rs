//! Columns and values of a condition, looked up in a schema.

use arrow_schema::{DataType, Fields, Schema};

use super::bound::{Bound, Node};
use super::columns::{BoundColumn, Pair, Set};
use super::like::Pattern;
use super::points::{self, Domain};
use super::ranges::Ranges;
use super::tree::{Comparison, Expression, Kind, Literal, Operand, OperandKind};
use super::{ExpressionError, parser};
use crate::TableError;
use crate::hint::hint;
use crate::plain::unencoded;
use crate::semantics::find_column;
use crate::sources::print_type;

impl Expression {
    /// Looks its columns up in a schema, and its values into their types.
    ///
    /// # Errors
    /// [`TableError::Expression`], with the place in its text: a column that is not there, with the name that is most like it; what does not compare.
    /// [`TableError::NamesAlike`]: two columns have the name.
    pub fn bind(&self, schema: &Schema) -> Result<Bound, TableError> {
        let text = self.checked_text()?;
        // What was built has no text that its parts know their places in.
        let parsed = if self.text.is_none() { Some(parser::parse(&text)?) } else { None };
        let binder = Binder { text: &text, schema };
        Ok(Bound::new(binder.condition(parsed.as_ref().unwrap_or(&self.kind))?))
    }
}

struct Binder<'a> {
    text: &'a str,
    schema: &'a Schema,
}

impl Binder<'_> {
    fn wrong(&self, at: &Operand, what: impl Into<String>) -> TableError {
        ExpressionError::new(self.text, at.at.0, what).into()
    }

    fn condition(&self, kind: &Kind) -> Result<Node, TableError> {
        let all = |all: &[Kind]| all.iter().map(|one| self.condition(one)).collect::<Result<Vec<_>, _>>();
        match kind {
            Kind::And(of) => Ok(Node::And(all(of)?)),
            Kind::Or(of) => Ok(Node::Or(all(of)?)),
            Kind::Not(of) => Ok(Node::Not(Box::new(self.condition(of)?))),
            Kind::Value(value) => self.value(value),
            Kind::IsNull(of) => self.is_null(of),
            Kind::Compare(left, comparison, right) => match (&left.of, &right.of) {
                (OperandKind::Column(_), OperandKind::Column(_)) => self.pair(left, *comparison, right),
                (OperandKind::Column(_), OperandKind::Literal(literal)) => {
                    self.compared(left, *comparison, (right, literal))
                }
                (OperandKind::Literal(literal), OperandKind::Column(_)) => {
                    self.compared(right, comparison.turned(), (left, literal))
                }
                _ => Err(self.wrong(left, "two values are compared here, and no column")),
            },
            Kind::In(of, among) => self.among(of, among),
            Kind::Like(of, pattern, escape) => self.like(of, pattern, *escape),
        }
    }

    fn column(&self, operand: &Operand) -> Result<BoundColumn, TableError> {
        let OperandKind::Column(name) = &operand.of else {
            return Err(self.wrong(operand, format!("{operand} is a value; a column belongs here")));
        };
        let Some((path, data_type)) = find_column(self.schema.fields(), name)? else {
            let mut names = Vec::new();
            add_names(self.schema.fields(), "", &mut names);
            let hint = hint(name, names.iter().map(String::as_str));
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            return Err(self.wrong(operand, format!("no column {name}{hint}")));
        };
        let top = self.schema.field(path[0]);
        Ok(BoundColumn { path, top: (top.name().clone(), top.data_type().clone()), data_type })
    }

    fn value(&self, value: &Operand) -> Result<Node, TableError> {
        match &value.of {
            OperandKind::Literal(Literal::Null) => Ok(Node::Constant(None)),
            OperandKind::Literal(Literal::Bool(value)) => Ok(Node::Constant(Some(*value))),
            OperandKind::Literal(literal) => Err(self.wrong(value, format!("{literal} is no condition: compare it"))),
            OperandKind::Column(_) => self.compared(value, Comparison::Equal, (value, &Literal::Bool(true))),
        }
    }

    fn is_null(&self, of: &Operand) -> Result<Node, TableError> {
        let column = match &of.of {
            OperandKind::Literal(literal) => return Ok(Node::Constant(Some(*literal == Literal::Null))),
            OperandKind::Column(_) => self.column(of)?,
        };
        Ok(match column.domain() {
            Domain::Null => Node::Constant(Some(true)),
            _ => Node::IsNull(column),
        })
    }

    fn pair(&self, left: &Operand, comparison: Comparison, right: &Operand) -> Result<Node, TableError> {
        let (one, other) = (self.column(left)?, self.column(right)?);
        let what = format!("{left} is {}, {right} is {}", print_type(&one.data_type), print_type(&other.data_type));
        if [one.domain(), other.domain()].contains(&Domain::Null) {
            return Ok(Node::Constant(None));
        }
        let pair = Pair::new(one, other).map_err(|why| self.wrong(left, format!("{what}: {why}")))?;
        Ok(Node::Pair(Box::new(pair), comparison))
    }

    fn compared(&self, of: &Operand, comparison: Comparison, with: (&Operand, &Literal)) -> Result<Node, TableError> {
        let (column, (operand, literal)) = (self.column(of)?, with);
        let domain = self.comparable(of, &column)?;
        if domain == Domain::Null || *literal == Literal::Null {
            return Ok(Node::Constant(None));
        }
        let refused = |what: String| self.refused(operand, of, &column, &what);
        let set = match domain {
            Domain::Text | Domain::Binary => {
                Set::Bytes(bytes_compared(points::bytes(literal).map_err(refused)?, comparison))
            }
            _ => Set::Whole(points::point(domain, literal).map_err(refused)?.compared(comparison)),
        };
        Ok(Node::Among { column, set, or_null: false })
    }

    fn among(&self, of: &Operand, among: &[Operand]) -> Result<Node, TableError> {
        let column = self.column(of)?;
        let domain = self.comparable(of, &column)?;
        if domain == Domain::Null {
            return Ok(Node::Constant(None));
        }
        let (mut whole, mut bytes, mut or_null) = (Vec::new(), Vec::new(), false);
        for one in among {
            let OperandKind::Literal(literal) = &one.of else {
                return Err(self.wrong(one, "in looks among values, not columns: use = and or"));
            };
            let refused = |what: String| self.refused(one, of, &column, &what);
            match domain {
                _ if *literal == Literal::Null => or_null = true,
                Domain::Text | Domain::Binary => bytes.push(points::bytes(literal).map_err(refused)?),
                _ => whole.extend(points::point(domain, literal).map_err(refused)?.value()),
            }
        }
        let set = match domain {
            Domain::Text | Domain::Binary => Set::Bytes(Ranges::among(bytes)),
            _ => Set::Whole(Ranges::among(whole)),
        };
        Ok(Node::Among { column, set, or_null })
    }

    fn like(&self, of: &Operand, pattern: &Operand, escape: Option<char>) -> Result<Node, TableError> {
        let column = self.column(of)?;
        match column.domain() {
            Domain::Null => return Ok(Node::Constant(None)),
            Domain::Text => (),
            _ => {
                return Err(
                    self.wrong(of, format!("{of} is {}; only text is like a pattern", print_type(&column.data_type)))
                );
            }
        }
        let OperandKind::Literal(Literal::Text(text)) = &pattern.of else {
            return Err(self.wrong(pattern, "a pattern is a text in single quotes"));
        };
        let pattern_of = Pattern::new(text, escape).map_err(|what| self.wrong(pattern, what))?;
        Ok(match pattern_of.ranges() {
            (ranges, true) => Node::Among { column, set: Set::Bytes(ranges), or_null: false },
            (ranges, false) => Node::Like { column, pattern: pattern_of, within: Set::Bytes(ranges) },
        })
    }

    /// What kind of values a column has, which compare.
    fn comparable(&self, of: &Operand, column: &BoundColumn) -> Result<Domain, TableError> {
        match column.domain() {
            Domain::Other => {
                let what = format!("{of} is {}, whose values do not compare", print_type(&column.data_type));
                Err(self.wrong(of, what))
            }
            domain => Ok(domain),
        }
    }

    fn refused(&self, at: &Operand, of: &Operand, column: &BoundColumn, what: &str) -> TableError {
        self.wrong(at, format!("{of} is {}, and {what}", print_type(&column.data_type)))
    }
}

fn bytes_compared(value: Vec<u8>, comparison: Comparison) -> Ranges<Vec<u8>> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    match comparison {
        Comparison::Equal => Ranges::one(value),
        Comparison::NotEqual => Ranges::one(value).complement(),
        Comparison::Less => Ranges::within(Unbounded, Excluded(value)),
        Comparison::LessOrEqual => Ranges::within(Unbounded, Included(value)),
        Comparison::Greater => Ranges::within(Excluded(value), Unbounded),
        Comparison::GreaterOrEqual => Ranges::within(Included(value), Unbounded),
    }
}

/// Paths of all columns, and of fields of structs.
fn add_names(fields: &Fields, above: &str, names: &mut Vec<String>) {
    for field in fields {
        let name = format!("{above}{}", field.name());
        if let DataType::Struct(inside) = unencoded(field.data_type()) {
            add_names(inside, &format!("{name}."), names);
        }
        names.push(name);
    }
}
