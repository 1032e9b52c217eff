//! Any value, read as JSON has it, as deep as is allowed, and with each name once.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::shown;

/// What an error begins with where lists and tables are within each other too deep.
pub(super) const TOO_DEEP: &str = "too deep";

/// Reads a value in which so many lists and tables may be within each other. Bytes are text where they are UTF-8, else a list of
/// numbers; floats that JSON has not are null.
#[derive(Clone, Copy)]
pub(super) struct Seed {
    pub(super) depth_left: usize,
}

impl Seed {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        depth_left.map(|depth_left| Self { depth_left }).ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.inner()?.deserialize(from)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.inner()?.deserialize(from)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => bytes.into(),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut values = Map::new();
        while let Some(name) = table.next_key_seed(inner)? {
            let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("`{}` is there twice", shown(&name))));
            }
            let value = table.next_value_seed(inner)?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}
