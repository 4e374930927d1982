//! A validator of JSON for the part of JSON Schema that docs/reference/openapi.yaml uses. An unknown
//! keyword fails the test, so that none is silently ignored.

use serde_json::Value;

/// Keywords without influence on validity.
const SILENT: [&str; 1] = ["description"];

/// The violations of `schema` by `value`, with their paths. `page` resolves `$ref`.
pub(super) fn problems(page: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, meant) in schema.as_object().expect("a schema is a map") {
        match word.as_str() {
            "$ref" => found.extend(problems(page, resolve(page, meant), value, at)),
            "type" if !types(meant).iter().any(|name| is_a(value, name)) => {
                found.push(format!("{at}: {value} is not {meant}"));
            }
            "enum" if !meant.as_array().expect("a list").contains(value) => {
                found.push(format!("{at}: {value} is none of {meant}"));
            }
            "oneOf" => found.extend(one_of(page, meant, value, at)),
            "required" => {
                let names = meant.as_array().expect("a list").iter().filter_map(Value::as_str);
                let missing = names.filter(|name| value.get(name).is_none());
                found.extend(missing.map(|name| format!("{at}: lacks {name}")));
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(problems(page, meant, item, &format!("{at}/{index}")));
                }
            }
            "properties" | "additionalProperties" => {}
            "type" | "enum" => {}
            silent => assert!(SILENT.contains(&silent), "{at}: what does `{silent}` mean?"),
        }
    }
    found.extend(properties(page, schema, value, at));
    found
}

fn properties(page: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        match (schema["properties"].get(name), schema.get("additionalProperties")) {
            (Some(known), _) => found.extend(problems(page, known, inner, &at)),
            (None, Some(Value::Bool(false))) => found.push(format!("{at}: is not in the page")),
            (None, Some(other @ Value::Object(_))) => {
                found.extend(problems(page, other, inner, &at));
            }
            _ => {}
        }
    }
    found
}

fn one_of(page: &Value, schemas: &Value, value: &Value, at: &str) -> Vec<String> {
    let schemas = schemas.as_array().expect("a list").iter();
    let all: Vec<Vec<String>> = schemas.map(|one| problems(page, one, value, at)).collect();
    match all.iter().filter(|problems| problems.is_empty()).count() {
        1 => Vec::new(),
        0 => all.concat(),
        several => vec![format!("{at}: {several} of oneOf fit {value}")],
    }
}

/// The target of a `$ref`; anything else stays as it is.
pub(super) fn resolve<'p>(page: &'p Value, pointer: &Value) -> &'p Value {
    let text = pointer.as_str().and_then(|text| text.strip_prefix('#')).expect("a local $ref");
    page.pointer(text).unwrap_or_else(|| panic!("{text} points nowhere"))
}

fn types(meant: &Value) -> Vec<&str> {
    match meant {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("no such type: {unknown}"),
    }
}
