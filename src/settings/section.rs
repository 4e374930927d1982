//! The macro `section!`: one declaration per setting, and everything generated from it.
//!
//! A section of `weir.yaml` is declared as a struct. Each entry has a doc text, a name, a type, the
//! default as `weir.yaml` writes it, and a [`Format`](super::format::Format):
//!
//! ```text
//! section! {
//!     /// What the section is about.
//!     pub struct HttpSettings {
//!         /// Largest body of `/json`, in bytes.
//!         max_body_bytes: usize = "262144", number(1024..=1 << 26);
//!     }
//! }
//! ```
//!
//! The declaration above generates:
//!
//! - the struct with its field `max_body_bytes: usize`, and its `Default`;
//! - the parser of its text;
//! - the section at `/settings` of the admin port;
//! - the row of docs/reference/settings.md, where the doc text is Markdown;
//! - the entry of docs/reference/settings.schema.json, from which the chart's schema is generated.
//!
//! To add a setting, add an entry to its section and run `make docs`. A test derives another value
//! than the default from the schema or from `SAMPLES` in `tests/every_setting.rs`, and checks that
//! the setting is read from every source and shown. Only a new format needs a new sample.

use serde_json::{Map, Value as Json};

use super::reader::Reader;

/// A setting: its name and texts, for the documentation and for messages.
#[derive(Clone, Debug)]
pub struct Setting {
    /// `section.name`; the section may be a path.
    pub path: String,
    /// The default, as `weir.yaml` writes it.
    pub default: &'static str,
    /// The doc text of the declaration.
    pub doc: &'static str,
    /// The valid texts, in words.
    pub accepts: String,
    /// The JSON schema of valid values.
    pub schema: Json,
    /// Whether `weir.yaml` may hold a list.
    pub is_list: bool,
}

/// The trait that [`section!`] implements for a declaration. `name` is the section's name in
/// `weir.yaml`.
pub(super) trait SettingsSection: Sized {
    /// The doc text of the section.
    const DOC: &'static str;

    /// Every setting, in the order of the declaration.
    fn settings(name: &str) -> Vec<Setting>;

    /// Reads every setting; problems stay in `reader`.
    fn read(name: &str, reader: &mut Reader<'_>) -> Self;

    /// The values, as `/settings` shows them.
    fn to_json(&self) -> Map<String, Json>;
}

/// Declares a section; see the head of this file.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:literal, $format:expr;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", $default, "`.")]
                pub $field: $type,
            )+
        }

        section! {
            $(#[doc = $about])+
            impl $name {
                $( $(#[doc = $doc])+ $field: $type = $default, $format; )+
            }
        }
    };
    // For a struct that another module defines.
    (
        $(#[doc = $about:literal])+
        impl $name:ty {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:literal, $format:expr;
            )+
        }
    ) => {
        impl Default for $name {
            fn default() -> Self {
                $crate::settings::section::SettingsSection::read("", &mut Default::default())
            }
        }

        impl $crate::settings::section::SettingsSection for $name {
            const DOC: &'static str = concat!($($about),+).trim_ascii();

            fn settings(name: &str) -> Vec<$crate::settings::section::Setting> {
                vec![$({
                    let format: $crate::settings::format::Format<$type> = $format;
                    $crate::settings::section::Setting {
                        path: format!("{name}.{}", stringify!($field)),
                        default: $default,
                        doc: concat!($($doc),+).trim_ascii(),
                        accepts: format.accepts,
                        schema: format.schema,
                        is_list: format.is_list,
                    }
                }),+]
            }

            fn read(name: &str, reader: &mut $crate::settings::reader::Reader<'_>) -> Self {
                Self { $( $field: reader.read(name, stringify!($field), $default, $format), )+ }
            }

            fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
                let mut section = serde_json::Map::new();
                $({
                    let format: $crate::settings::format::Format<$type> = $format;
                    section.insert(stringify!($field).to_owned(), (format.show)(&self.$field));
                })+
                section
            }
        }
    };
}

/// Adds a section to the settings that `/settings` shows. Its path is a name, or `outer.inner` for a
/// section inside another one, which was added before.
pub(super) fn add_section(
    settings: &mut Map<String, Json>,
    path: &str,
    section: Map<String, Json>,
) {
    let Some((outer, inner)) = path.split_once('.') else {
        settings.insert(path.to_owned(), section.into());
        return;
    };
    if let Some(Json::Object(outer)) = settings.get_mut(outer) {
        outer.insert(inner.to_owned(), section.into());
    }
}

/// Declares [`Settings`](super::Settings): one line per section of `weir.yaml`. A section inside
/// another one has its path after `=`, and a later line than the outer one.
macro_rules! settings {
    (@path $section:ident) => { stringify!($section) };
    (@path $section:ident $path:literal) => { $path };
    ($( $(#[$doc:meta])* $section:ident $(= $path:literal)?: $type:ty, )+) => {
        /// Everything an operator can set. The variable of a setting is `WEIR__SECTION__NAME`.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $( $(#[$doc])* pub $section: $type, )+
        }

        impl Settings {
            /// Every setting, in the order of the declarations.
            pub fn all() -> Vec<Setting> {
                let mut all = Vec::new();
                $(
                    let path = settings!(@path $section $($path)?);
                    all.extend(<$type as SettingsSection>::settings(path));
                )+
                all
            }

            /// The path and the doc text of every section.
            pub fn sections() -> Vec<(&'static str, &'static str)> {
                vec![$(
                    (settings!(@path $section $($path)?), <$type as SettingsSection>::DOC),
                )+]
            }

            /// Reads every setting; problems stay in `reader`.
            fn read(reader: &mut Reader<'_>) -> Settings {
                Settings {
                    $( $section: SettingsSection::read(
                        settings!(@path $section $($path)?),
                        reader,
                    ), )+
                }
            }

            /// The settings in the shape of `weir.yaml`, secrets masked: the content of `/settings`.
            pub fn to_json(&self) -> serde_json::Value {
                let mut settings = serde_json::Map::new();
                $(
                    let path = settings!(@path $section $($path)?);
                    $crate::settings::section::add_section(
                        &mut settings,
                        path,
                        self.$section.to_json(),
                    );
                )+
                settings.into()
            }
        }
    };
}

pub(super) use {section, settings};
