//! Values as a person writes them, each refused at once where it can't be meant: a zero, a negative number, one that
//! is too large to be real. A refusal has the form to write instead.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Ten years: sums with the clock stay far from its end.
const LONGEST: Duration = Duration::from_secs(10 * 365 * DAY);
const DAY: u64 = 24 * 60 * 60;
/// The store counts in signed numbers.
const LARGEST: u64 = 1 << 60;

/// A value with the bytes of the file that it was read from.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub value: T,
    pub span: std::ops::Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { span: spanned.span(), value: spanned.into_inner() })
    }
}

/// Something with one way to write it.
pub(super) trait Form: Sized {
    /// Ends the sentence "it must be …".
    const FORM: &'static str;
    fn from_text(_: &str) -> Option<Self> {
        None
    }
    fn from_number(_: u64) -> Option<Self> {
        None
    }
    fn from_fraction(_: f64) -> Option<Self> {
        None
    }
}

struct Reading<T>(std::marker::PhantomData<T>);

impl<T: Form> Visitor<'_> for Reading<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::from_number(number).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let positive = u64::try_from(number).ok().and_then(T::from_number);
        positive.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::from_fraction(number).ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub u64);

impl Form for Size {
    const FORM: &'static str = "a size above zero such as \"512M\" (K, M, G, T or plain bytes)";

    fn from_text(text: &str) -> Option<Self> {
        stockade_policy::size(text).and_then(Self::from_number)
    }

    fn from_number(number: u64) -> Option<Self> {
        (1..=LARGEST).contains(&number).then_some(Self(number))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub Duration);

impl Form for Time {
    const FORM: &'static str = "a time above zero such as \"90s\" (ms, s, m, h, d), at most ten years";

    fn from_text(text: &str) -> Option<Self> {
        let millis = match text.strip_suffix('d') {
            Some(days) if days.bytes().all(|byte| byte.is_ascii_digit()) => {
                days.parse::<u64>().ok()?.checked_mul(DAY * 1000)
            }
            Some(_) | None => stockade_policy::duration(text),
        };
        let time = Duration::from_millis(millis?);
        (!time.is_zero() && time <= LONGEST).then_some(Self(time))
    }
}

/// Thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cores(pub u64);

impl Form for Cores {
    const FORM: &'static str =
        "a number of cores above zero such as 1.5, with three digits after the point at most";

    fn from_number(number: u64) -> Option<Self> {
        (1..=1_000_000).contains(&number).then(|| Self(number * 1000))
    }

    fn from_fraction(number: f64) -> Option<Self> {
        let thousandths = stockade_policy::cores(&number.to_string())?;
        (1..=1_000_000_000).contains(&thousandths).then_some(Self(thousandths))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// How many, between one and a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub usize);

impl Form for Count {
    const FORM: &'static str = "a whole number from 1 to 1000000";

    fn from_number(number: u64) -> Option<Self> {
        usize::try_from(number).ok().filter(|number| (1..=1_000_000).contains(number)).map(Self)
    }
}

/// A number that the kernel knows a user or a group by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(pub u32);

impl Form for Id {
    const FORM: &'static str = "the number of a user or a group";

    fn from_number(number: u64) -> Option<Self> {
        // The last is the kernel's word for "none".
        u32::try_from(number).ok().filter(|number| *number != u32::MAX).map(Self)
    }
}

macro_rules! read_as_written {
    ($($name:ident)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Reading(std::marker::PhantomData))
            }
        }
    )*};
}
read_as_written!(Size Time Cores Count Id);

#[cfg(test)]
mod schemas {
    //! For the schema and the reference only.

    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::*;

    impl<T: JsonSchema> JsonSchema for At<T> {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            T::schema_name()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            T::json_schema(generator)
        }
    }

    macro_rules! schema {
        ($($name:ident $schema:tt)*) => {$(
            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    let mut schema = json_schema!($schema);
                    schema.insert("title".to_owned(), Self::FORM.into());
                    schema
                }
            }
        )*};
    }
    schema! {
        Size { "type": ["string", "integer"], "pattern": "^[0-9]+[KMGT]?$", "minimum": 1 }
        Time { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" }
        Cores { "type": "number", "exclusiveMinimum": 0 }
        Count { "type": "integer", "minimum": 1, "maximum": 1_000_000 }
        Id { "type": "integer", "minimum": 0, "maximum": 4_294_967_294_u32 }
    }
}
