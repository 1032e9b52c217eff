//! How columns take values from the parser.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::columns::{Column, Context, Failed, Leaf, List, Map, Struct, StructColumn, VALUE_BYTES};
use super::value::{Kind, Step, not_object, syntax};

/// What a key takes while its map is looked at for one that is there twice.
const KEY_BYTES: u64 = 48;

impl Context<'_> {
    /// An error of the parser for one that is kept.
    fn fail<E: Error>(&mut self, failed: Failed) -> E {
        self.failed = Some(failed);
        E::custom("")
    }
}

/// Puts a row behind the others; `Err`: why not, and for what else the context says.
pub(super) fn push_row(row: &mut Struct, line: &str, context: &mut Context<'_>) -> Result<(), Failed> {
    match line.trim_start_matches([' ', '\t', '\r']) {
        object if object.starts_with('{') => {
            let row_bytes = VALUE_BYTES * row.values() + line.len() as u64;
            context.meter.take(row_bytes).map_err(Failed::Denied)?;
            let mut deserializer = serde_json::Deserializer::from_str(line);
            let pushed = ObjectSeed { of: row, context }.deserialize(&mut deserializer);
            pushed
                .and_then(|()| deserializer.end())
                .map_err(|error| context.failed.take().unwrap_or_else(|| Failed::Wrong(syntax(line, &error, "line"))))
        }
        _ => Err(Failed::Wrong(not_object(line))),
    }
}

/// Visits of values that are not of the type, where those that are come first.
macro_rules! misfits {
    ($self:ident => $of:expr; $($kind:ident)*) => {
        $(misfits!(@$kind $self => $of);)*
    };
    (@null $self:ident => $of:expr) => {
        fn visit_unit<E: Error>($self) -> Result<(), E> {
            $self.null();
            Ok(())
        }
    };
    (@scalars $self:ident => $of:expr) => {
        fn visit_bool<E: Error>($self, value: bool) -> Result<(), E> {
            Err($self.context.fail(Failed::Misfit($of, value.to_string())))
        }

        fn visit_i64<E: Error>($self, value: i64) -> Result<(), E> {
            Err($self.context.fail(Failed::Misfit($of, value.to_string())))
        }

        fn visit_u64<E: Error>($self, value: u64) -> Result<(), E> {
            Err($self.context.fail(Failed::Misfit($of, value.to_string())))
        }

        fn visit_f64<E: Error>($self, value: f64) -> Result<(), E> {
            Err($self.context.fail(Failed::Misfit($of, value.to_string())))
        }
    };
    (@text $self:ident => $of:expr) => {
        fn visit_str<E: Error>($self, value: &str) -> Result<(), E> {
            Err($self.context.fail(Failed::Misfit($of, format!("{value:?}"))))
        }
    };
    (@list $self:ident => $of:expr) => {
        fn visit_seq<A: SeqAccess<'de>>($self, _: A) -> Result<(), A::Error> {
            Err($self.context.fail(Failed::Misfit($of, "[...]".to_owned())))
        }
    };
    (@object $self:ident => $of:expr) => {
        fn visit_map<A: MapAccess<'de>>($self, _: A) -> Result<(), A::Error> {
            Err($self.context.fail(Failed::Misfit($of, "{...}".to_owned())))
        }
    };
    (@expecting $self:ident => $of:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value of the type of its column")
        }
    };
}

/// A value of a column.
pub(super) struct ColumnSeed<'c, 'a> {
    pub(super) column: &'c mut Column,
    pub(super) context: &'c mut Context<'a>,
}

impl<'de> DeserializeSeed<'de> for ColumnSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { column, context } = self;
        match column {
            Column::Passed => IgnoredAny::deserialize(deserializer).map(drop),
            Column::Leaf(leaf) if leaf.is_text() && !context.is_mixed => {
                deserializer.deserialize_any(TextVisitor { leaf, context })
            }
            Column::Leaf(leaf) => {
                let raw = <&RawValue>::deserialize(deserializer)?;
                leaf.push(raw.get(), context).map_err(|failed| context.fail(failed))
            }
            Column::Nulls(count) => {
                let raw = <&RawValue>::deserialize(deserializer)?.get();
                if Kind::of(raw) != Kind::Null {
                    return Err(context.fail(Failed::Misfit(arrow_schema::DataType::Null, raw.to_owned())));
                }
                *count += 1;
                Ok(())
            }
            Column::List(list) => deserializer.deserialize_any(ListVisitor { list, context }),
            Column::Map(map) => deserializer.deserialize_any(MapVisitor { map, context }),
            Column::Struct(of) => deserializer.deserialize_any(StructVisitor { of, context }),
        }
    }
}

struct TextVisitor<'c, 'a> {
    leaf: &'c mut Leaf,
    context: &'c mut Context<'a>,
}

impl TextVisitor<'_, '_> {
    fn null(self) {
        // A null is of every type.
        let _ = self.leaf.push("null", self.context);
    }
}

impl<'de> Visitor<'de> for TextVisitor<'_, '_> {
    type Value = ();

    misfits! { self => self.leaf.data_type.clone(); expecting null scalars list object }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.leaf.push_text(text, self.context).map_err(|failed| self.context.fail(failed))
    }
}

struct ListVisitor<'c, 'a> {
    list: &'c mut List,
    context: &'c mut Context<'a>,
}

impl ListVisitor<'_, '_> {
    fn null(self) {
        self.list.ranges.end(false);
    }
}

impl<'de> Visitor<'de> for ListVisitor<'_, '_> {
    type Value = ();

    misfits! { self => self.list.data_type(); expecting null scalars text object }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { list, context } = self;
        let mut number = 0;
        loop {
            // Also of the one that is not there behind the last.
            context.meter.take(list.item_bytes).map_err(|denied| context.fail(Failed::Denied(denied)))?;
            let next = elements.next_element_seed(ColumnSeed { column: &mut list.items, context });
            match next {
                Ok(Some(())) => list.ranges.push(),
                Ok(None) => break,
                Err(error) => {
                    context.steps.0.push(Step::Element(number));
                    return Err(error);
                }
            }
            number += 1;
        }
        list.ranges.end(true);
        Ok(())
    }
}

struct MapVisitor<'c, 'a> {
    map: &'c mut Map,
    context: &'c mut Context<'a>,
}

impl MapVisitor<'_, '_> {
    fn null(self) {
        self.map.ranges.end(false);
    }
}

impl<'de> Visitor<'de> for MapVisitor<'_, '_> {
    type Value = ();

    misfits! { self => self.map.data_type.clone(); expecting null scalars text list }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { map, context } = self;
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let bytes = map.entry_bytes + 2 * key.len() as u64 + KEY_BYTES;
            context.meter.take(bytes).map_err(|denied| context.fail(Failed::Denied(denied)))?;
            if map.keys.push(Some(key.as_bytes())).is_err() {
                return Err(context.fail(Failed::Wrong("a key is no text".to_owned())));
            }
            let next = entries.next_value_seed(ColumnSeed { column: &mut map.values, context });
            if let Err(error) = next {
                context.steps.0.push(Step::Field(key));
                return Err(error);
            }
            map.ranges.push();
            if let Some(key) = keys.replace(key) {
                return Err(context.fail(Failed::Twice(key)));
            }
        }
        map.ranges.end(true);
        Ok(())
    }
}

struct StructVisitor<'c, 'a> {
    of: &'c mut Struct,
    context: &'c mut Context<'a>,
}

impl StructVisitor<'_, '_> {
    fn null(self) {
        self.of.columns.iter_mut().for_each(|field| field.column.push_null());
        self.of.nulls.append(false);
    }
}

impl<'de> Visitor<'de> for StructVisitor<'_, '_> {
    type Value = ();

    misfits! { self => self.of.data_type(); expecting null scalars text list }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let Self { of, context } = self;
        push_object(of, context, fields)?;
        of.nulls.append(true);
        Ok(())
    }
}

/// A row: an object, of which it is known that it is one.
struct ObjectSeed<'c, 'a> {
    of: &'c mut Struct,
    context: &'c mut Context<'a>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    misfits! { self => self.of.data_type(); expecting }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        push_object(self.of, self.context, fields)
    }
}

fn push_object<'de, A: MapAccess<'de>>(
    of: &mut Struct,
    context: &mut Context<'_>,
    mut fields: A,
) -> Result<(), A::Error> {
    of.objects += 1;
    let object = of.objects;
    let mut next = 0;
    while let Some(key) = fields.next_key_seed(KeySeed { of, next })? {
        match key {
            Key::Known(number) => {
                let field = &mut of.columns[number];
                if field.last == object {
                    return Err(context.fail(Failed::Twice(field.name.clone())));
                }
                field.last = object;
                next = number + 1;
                if let Err(error) = fields.next_value_seed(ColumnSeed { column: &mut field.column, context }) {
                    context.steps.0.push(Step::Field(field.name.clone()));
                    return Err(error);
                }
            }
            Key::Unknown(_) if of.passes_others => fields.next_value::<IgnoredAny>().map(drop)?,
            Key::Unknown(name) => {
                let raw = fields.next_value::<&RawValue>()?.get().to_owned();
                return Err(context.fail(Failed::Unknown(name, raw)));
            }
        }
    }
    let missing = of.columns.iter_mut().filter(|field| field.last != object);
    missing.for_each(|StructColumn { column, .. }| column.push_null());
    Ok(())
}

/// A key of an object: the number of the field, or its name where there is none.
enum Key {
    Known(usize),
    Unknown(String),
}

/// Most objects have their keys in one order, so the field that is next is looked at before all of them.
struct KeySeed<'c> {
    of: &'c Struct,
    next: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
        let Self { of, next } = self;
        Ok(match of.columns.get(next).filter(|field| field.name == name) {
            Some(_) => Key::Known(next),
            None => of.numbers.get(name).map_or_else(|| Key::Unknown(name.to_owned()), |number| Key::Known(*number)),
        })
    }
}
