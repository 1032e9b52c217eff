//! Thrift's compact protocol, read within bounds: what a page header says, and what a footer would have the library make room for.
//!
//! Nothing is allocated, a list is never longer than the bytes behind it, and nothing is nested deeper than [`DEPTH_MAX`].

/// How deep structs and lists may lie in each other.
pub(super) const DEPTH_MAX: usize = 32;

/// What type a field or an element has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThriftType {
    Bool(bool),
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    /// Or a set, which is written alike.
    List,
    Map,
    Struct,
    Uuid,
}

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// They end before what they say is over.
    Short,
    /// They are none of the protocol.
    Malformed(&'static str),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("its thrift ends too early"),
            Self::Malformed(what) => write!(f, "its thrift has {what}"),
        }
    }
}

type Parsed<T> = Result<T, Wrong>;

/// Where reading is.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Parsed<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Wrong::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: usize) -> Parsed<()> {
        if count > self.remaining() {
            return Err(Wrong::Short);
        }
        self.at += count;
        Ok(())
    }

    pub(super) fn varint(&mut self) -> Parsed<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Wrong::Malformed("a number of more than 64 bits"))
    }

    pub(super) fn number(&mut self) -> Parsed<i64> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    pub(super) fn int(&mut self) -> Parsed<i32> {
        i32::try_from(self.number()?).map_err(|_| Wrong::Malformed("a number of more than 32 bits"))
    }

    pub(super) fn binary(&mut self) -> Parsed<&'a [u8]> {
        let count = usize::try_from(self.varint()?).map_err(|_| Wrong::Short)?;
        let at = self.at;
        self.pass(count)?;
        Ok(&self.bytes[at..at + count])
    }

    fn kind(code: u8) -> Parsed<ThriftType> {
        Ok(match code {
            1 => ThriftType::Bool(true),
            2 => ThriftType::Bool(false),
            3 => ThriftType::Byte,
            4 => ThriftType::I16,
            5 => ThriftType::I32,
            6 => ThriftType::I64,
            7 => ThriftType::Double,
            8 => ThriftType::Binary,
            9 | 10 => ThriftType::List,
            11 => ThriftType::Map,
            12 => ThriftType::Struct,
            13 => ThriftType::Uuid,
            _ => return Err(Wrong::Malformed("a type that there is not")),
        })
    }

    /// The next field of a struct, whose last one had the number `last`; `None`: it is over.
    pub(super) fn field(&mut self, last: i16) -> Parsed<Option<(i16, ThriftType)>> {
        let head = self.byte()?;
        if head & 0xf == 0 {
            return Ok(None);
        }
        let kind = Self::kind(head & 0xf)?;
        let number = match head >> 4 {
            0 => i16::try_from(self.number()?).map_err(|_| Wrong::Malformed("a field with too large a number"))?,
            more => last.checked_add(i16::from(more)).ok_or(Wrong::Malformed("a field with too large a number"))?,
        };
        Ok(Some((number, kind)))
    }

    /// The head of a list: how many elements of which type.
    pub(super) fn list(&mut self) -> Parsed<(usize, ThriftType)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Wrong::Short)?,
            count => usize::from(count),
        };
        // An element has a byte at least.
        if count > self.remaining() {
            return Err(Wrong::Short);
        }
        match head {
            0 => Ok((0, ThriftType::Byte)),
            _ => Ok((count, Self::kind(head & 0xf)?)),
        }
    }

    /// A list of booleans, each of which has a byte.
    pub(super) fn bools(&mut self) -> Parsed<Vec<bool>> {
        match self.list()? {
            (0, _) => Ok(Vec::new()),
            (count, ThriftType::Bool(_)) => (0..count).map(|_| self.byte().map(|byte| byte == 1)).collect(),
            _ => Err(Wrong::Malformed("a list of other things than booleans")),
        }
    }

    /// Passes over a field's value; `structs` counts the structs in it.
    pub(super) fn skip(&mut self, kind: ThriftType, depth: usize, structs: &mut u64) -> Parsed<()> {
        match kind {
            ThriftType::Bool(_) => Ok(()),
            _ => self.skip_written(kind, depth, structs),
        }
    }

    /// As [`skip`](Self::skip), of an element, of which booleans have a byte.
    fn skip_written(&mut self, kind: ThriftType, depth: usize, structs: &mut u64) -> Parsed<()> {
        let deeper = || depth.checked_sub(1).ok_or(Wrong::Malformed("structs too deep in each other"));
        match kind {
            ThriftType::Bool(_) | ThriftType::Byte => self.pass(1),
            ThriftType::I16 | ThriftType::I32 | ThriftType::I64 => self.varint().map(drop),
            ThriftType::Double => self.pass(8),
            ThriftType::Uuid => self.pass(16),
            ThriftType::Binary => self.binary().map(drop),
            ThriftType::List => {
                let (count, kind) = self.list()?;
                let depth = deeper()?;
                (0..count).try_for_each(|_| self.skip_written(kind, depth, structs))
            }
            ThriftType::Map => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let (keys, values, depth) = (Self::kind(kinds >> 4)?, Self::kind(kinds & 0xf)?, deeper()?);
                for _ in 0..count {
                    self.skip_written(keys, depth, structs)?;
                    self.skip_written(values, depth, structs)?;
                }
                Ok(())
            }
            ThriftType::Struct => {
                *structs += 1;
                let depth = deeper()?;
                let mut last = 0;
                while let Some((number, kind)) = self.field(last)? {
                    self.skip(kind, depth, structs)?;
                    last = number;
                }
                Ok(())
            }
        }
    }
}
