//! What a condition can be for any of some rows, when nothing but the bounds of their values is known.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::i256;
use arrow_schema::DataType;

use super::bound::{Bound, Node};
use super::columns::{BoundColumn, Set, float_at, is_in};
use super::points::Domain;
use super::ranges::Ranges;
use crate::raw::{ByteRanges, WholeNumbers};
use crate::semantics::{check_type, levels, place};

/// What is known of the values of a column in some rows. What contradicts itself is not believed.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    /// How many rows there are.
    pub rows: u64,
    /// How many of them are null; `None`: nobody says.
    pub nulls: Option<u64>,
    /// Two arrays of the type of the column and a row of them: no value is smaller than that of the first one, none larger than that of the second one.
    pub bounds: Option<(&'a ArrayRef, &'a ArrayRef, usize)>,
}

impl Bound {
    /// Whether the condition may be true for one of some rows. `extent`: what is known of a column of the schema there; `None`: nothing.
    pub fn may_be_true<'a>(&self, extent: impl Fn(usize) -> Option<Extent<'a>>) -> bool {
        self.root.possible(&extent).is_true
    }
}

/// What a condition can be for one row or another. That it can be null is of no interest.
#[derive(Clone, Copy, Debug)]
struct Possible {
    is_true: bool,
    is_false: bool,
}

const ANY: Possible = Possible { is_true: true, is_false: true };
const NULL: Possible = Possible { is_true: false, is_false: false };

impl Node {
    fn possible<'a>(&self, extent: &impl Fn(usize) -> Option<Extent<'a>>) -> Possible {
        match self {
            Self::Constant(value) => Possible { is_true: *value == Some(true), is_false: *value == Some(false) },
            Self::Not(of) => {
                let Possible { is_true, is_false } = of.possible(extent);
                Possible { is_true: is_false, is_false: is_true }
            }
            Self::And(all) => {
                let all = || all.iter().map(|one| one.possible(extent));
                Possible { is_true: all().all(|one| one.is_true), is_false: all().any(|one| one.is_false) }
            }
            Self::Or(all) => {
                let all = || all.iter().map(|one| one.possible(extent));
                Possible { is_true: all().any(|one| one.is_true), is_false: all().all(|one| one.is_false) }
            }
            Self::Pair(..) => ANY,
            Self::IsNull(column) => column.known(extent).map_or(ANY, |known| Possible {
                is_true: known.nulls != Some(0),
                is_false: known.nulls != Some(known.rows),
            }),
            Self::Among { column, set, or_null } => column.known(extent).map_or(ANY, |known| {
                let meets = |set: &Set| known.values.as_ref().is_none_or(|values| values.meet(set));
                match known.nulls == Some(known.rows) {
                    true => NULL,
                    false => Possible { is_true: meets(set), is_false: !or_null && meets(&set.complement()) },
                }
            }),
            Self::Like { column, within, .. } => {
                column.known(extent).map_or(ANY, |known| match known.nulls == Some(known.rows) {
                    true => NULL,
                    false => {
                        Possible { is_true: known.values.is_none_or(|values| values.meet(within)), is_false: true }
                    }
                })
            }
        }
    }
}

/// What is believed of an extent.
struct Known {
    rows: u64,
    nulls: Option<u64>,
    values: Option<Values>,
}

/// The smallest and the largest value.
enum Values {
    Whole(i256, i256),
    Bytes(Vec<u8>, Vec<u8>),
}

impl Values {
    fn meet(&self, set: &Set) -> bool {
        match (self, set) {
            (Self::Whole(least, greatest), Set::Whole(set)) => set.meets(least, greatest),
            (Self::Bytes(least, greatest), Set::Bytes(set)) => set.meets(least, greatest),
            _ => true,
        }
    }
}

impl Set {
    fn complement(&self) -> Self {
        match self {
            Self::Whole(ranges) => Self::Whole(ranges.complement()),
            Self::Bytes(ranges) => Self::Bytes(ranges.complement()),
        }
    }
}

impl BoundColumn {
    /// Of fields of structs nothing is known.
    fn known<'a>(&self, extent: &impl Fn(usize) -> Option<Extent<'a>>) -> Option<Known> {
        let [column] = self.path[..] else { return None };
        let Extent { rows, nulls, bounds } = extent(column)?;
        let values = bounds.and_then(|(least, greatest, row)| self.between(least, greatest, row));
        let nulls = nulls.filter(|nulls| *nulls < rows || (*nulls == rows && values.is_none()));
        Some(Known { rows, nulls, values })
    }

    /// The values of two arrays, where the first one is not larger. Whoever wrote them down leaves NaN out, which is above all numbers.
    fn between(&self, least: &ArrayRef, greatest: &ArrayRef, row: usize) -> Option<Values> {
        let at = |array: &ArrayRef| {
            check_type(&self.top.0, &self.data_type, array.data_type()).ok()?;
            let (levels, array) = levels(array, &[]);
            Some((place(&levels, row)?, array))
        };
        let ((least_at, least), (greatest_at, greatest)) = (at(least)?, at(greatest)?);
        let whole = |array: &ArrayRef, at: usize| match self.data_type {
            DataType::Boolean => Some(i256::from(i64::from(array.as_boolean().value(at)))),
            _ => WholeNumbers::of(array.as_ref()).map(|numbers| numbers.wide(at)),
        };
        match self.domain() {
            Domain::Text | Domain::Binary => {
                let bytes = |array: &ArrayRef, at: usize| Some(ByteRanges::of(array.as_ref())?.get(at).to_vec());
                let (least, greatest) = (bytes(&least, least_at)?, bytes(&greatest, greatest_at)?);
                (least <= greatest).then_some(Values::Bytes(least, greatest))
            }
            Domain::Float(_) => {
                let (least, greatest) = (float_at(&least, least_at)?, float_at(&greatest, greatest_at)?);
                let is_believed = !is_nan(self, least) && !is_nan(self, greatest) && least <= greatest;
                is_believed.then_some(Values::Whole(least, i256::MAX))
            }
            Domain::Other | Domain::Null => None,
            _ => {
                let (least, greatest) = (whole(&least, least_at)?, whole(&greatest, greatest_at)?);
                (least <= greatest).then_some(Values::Whole(least, greatest))
            }
        }
    }
}

fn is_nan(column: &BoundColumn, order: i256) -> bool {
    let Domain::Float(width) = column.domain() else { return false };
    is_in(&Ranges::one(super::points::order_of(width, f64::NAN)), order)
}
