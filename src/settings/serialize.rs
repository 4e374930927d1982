//! JSON forms of settings whose types have none of their own: the texts that `weir.yaml` takes.

use std::time::Duration;

use serde::Serializer;

use super::scalar::write_duration;

pub(super) mod duration {
    //! A length of time.
    use super::{Duration, Serializer, write_duration};

    pub(in super::super) fn serialize<S: Serializer>(
        length: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&write_duration(*length))
    }
}

pub(super) mod optional {
    //! Something, or the empty text for nothing.
    use serde::Serialize;

    use super::Serializer;

    pub(in super::super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

pub(super) mod signed_duration {
    //! Microseconds, perhaps fewer than none.
    use super::{Duration, Serializer, write_duration};

    pub(in super::super) fn serialize<S: Serializer>(
        micros: &i64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let length = write_duration(Duration::from_micros(micros.unsigned_abs()));
        let sign = if *micros < 0 { "-" } else { "" };
        serializer.serialize_str(&format!("{sign}{length}"))
    }
}

pub(super) mod duration_or_off {
    //! A length of time, or `off`.
    use super::{Duration, Serializer, write_duration};

    pub(in super::super) fn serialize<S: Serializer>(
        length: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = length.map_or_else(|| "off".to_owned(), write_duration);
        serializer.serialize_str(&text)
    }
}

pub(super) mod number_or_off {
    //! A number, or `off`.
    use super::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(
        number: &Option<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match number {
            Some(number) => serializer.collect_str(number),
            None => serializer.serialize_str("off"),
        }
    }
}

pub(super) mod cores {
    //! A number of cores, or `auto`.
    use std::num::NonZeroUsize;

    use super::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(
        cores: &Option<NonZeroUsize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match cores {
            Some(number) => serializer.collect_str(number),
            None => serializer.serialize_str("auto"),
        }
    }
}

pub(super) mod bounds {
    //! The bounds of a request.
    use serde::ser::SerializeStruct;

    use super::Serializer;
    use crate::descriptor::Bounds;

    pub(in super::super) fn serialize<S: Serializer>(
        bounds: &Bounds,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut section = serializer.serialize_struct("Bounds", 3)?;
        section.serialize_field("descriptors", &bounds.descriptors)?;
        section.serialize_field("entries", &bounds.entries)?;
        section.serialize_field("text_bytes", &bounds.text_bytes)?;
        section.end()
    }
}
