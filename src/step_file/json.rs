//! JSON read strictly: duplicate keys refused, integers exact, every complaint with its place.

use super::refuse;
use crate::error::Result;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// A JSON value. Unlike `serde_json::Value`, an object that names a key twice is an error.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    /// Keys in ascending order. A list, because a file may be made of small objects, for which a tree is a hundred times
    /// the size of their text.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses `text`; `place` names it in the error.
    pub(super) fn parse(place: &str, text: &str) -> Result<Json> {
        serde_json::from_str(text).map_err(|error| refuse(place, format!("not the JSON expected: {error}")))
    }
}

/// How a message shows a value: short, on one line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Integer(value) => write!(f, "{value}"),
            Json::Float(value) => write!(f, "{value:?}"),
            Json::Text(text) => write!(f, "{:?}", text.chars().take(60).collect::<String>()),
            Json::List(_) => f.write_str("a list"),
            Json::Object(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut object: Vec<(String, Json)> = Vec::new();
        while let Some(entry) = map.next_entry()? {
            object.push(entry);
        }
        object.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = object.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(A::Error::custom(format!("key {:?} appears twice", pair[0].0)));
        }
        object.shrink_to_fit();
        Ok(Json::Object(object))
    }
}

/// An object whose keys are taken one by one.
pub(super) struct Fields {
    place: String,
    map: BTreeMap<String, Json>,
}

impl Fields {
    /// The fields of `json`, which must be an object with no key outside `known`.
    pub(super) fn new(place: impl Into<String>, json: Json, known: &[&str]) -> Result<Fields> {
        let place = place.into();
        let Json::Object(map) = json else {
            return Err(refuse(place, format!("{json} where an object is expected")));
        };
        let map: BTreeMap<String, Json> = map.into_iter().collect();
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            let shown: String = key.chars().take(60).collect();
            return Err(refuse(place, format!("unknown key {shown:?} (known: {})", known.join(", "))));
        }
        Ok(Fields { place, map })
    }

    /// The value of `key`, if it is there.
    pub(super) fn optional(&mut self, key: &str) -> Option<At> {
        let json = self.map.remove(key)?;
        Some(At { place: self.place_of(key), json })
    }

    /// The value of `key`.
    pub(super) fn required(&mut self, key: &str) -> Result<At> {
        self.optional(key).ok_or_else(|| refuse(self.place.clone(), format!("key {key:?} is missing")))
    }

    /// A boolean, false where it is not given.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool> {
        self.optional(key).map_or(Ok(false), At::bool)
    }

    fn place_of(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }
}

/// A value and where it stands.
pub(super) struct At {
    pub(super) place: String,
    pub(super) json: Json,
}

impl At {
    pub(super) fn bool(self) -> Result<bool> {
        match self.json {
            Json::Bool(value) => Ok(value),
            other => Err(refuse(self.place, format!("{other} where true or false is expected"))),
        }
    }

    pub(super) fn text(self) -> Result<String> {
        match self.json {
            Json::Text(text) => Ok(text),
            other => Err(refuse(self.place, format!("{other} where a string is expected"))),
        }
    }

    /// An integer from `least` to `most`.
    pub(super) fn integer<T: TryFrom<i128>>(self, least: i128, most: i128) -> Result<T> {
        if let Json::Integer(value) = self.json
            && (least..=most).contains(&value)
            && let Ok(value) = T::try_from(value)
        {
            return Ok(value);
        }
        Err(refuse(self.place, format!("{} where an integer from {least} to {most} is expected", self.json)))
    }

    /// A number, rounded to f32.
    pub(super) fn float(self) -> Result<f32> {
        match self.json {
            Json::Float(value) => Ok(value as f32),
            Json::Integer(value) => Ok(value as f64 as f32),
            other => Err(refuse(self.place, format!("{other} where a number is expected"))),
        }
    }

    /// The items of a list.
    pub(super) fn list(self) -> Result<impl ExactSizeIterator<Item = At>> {
        let Json::List(items) = self.json else {
            return Err(refuse(self.place, format!("{} where a list is expected", self.json)));
        };
        let place = self.place;
        Ok(items.into_iter().enumerate().map(move |(i, json)| At { place: format!("{place}[{i}]"), json }))
    }

    /// A list of integers from `least` to `most`.
    pub(super) fn integers(self, least: i128, most: i128) -> Result<Vec<i64>> {
        self.list()?.map(|item| item.integer(least, most)).collect()
    }

    /// One of the `choices`, by name.
    pub(super) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T> {
        if let Json::Text(text) = &self.json
            && let Some((_, value)) = choices.iter().find(|(name, _)| name == text)
        {
            return Ok(*value);
        }
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        Err(refuse(self.place, format!("{} where {} is expected", self.json, names.join(" or "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_up_to_the_last_u64() {
        let json = Json::parse("x", "[18446744073709551615, -9223372036854775808, 1.0]").unwrap();
        let items = [Json::Integer(u64::MAX.into()), Json::Integer(i64::MIN.into()), Json::Float(1.0)];
        assert_eq!(json, Json::List(items.into()));
    }

    #[test]
    fn a_key_given_twice_is_refused_at_any_depth() {
        let error = Json::parse("x", r#"{"a": [{"b": 1, "c": 2, "b": 3}]}"#).unwrap_err().to_string();
        assert!(error.contains("key \"b\" appears twice"), "{error}");
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        let error = Json::parse("x", &"[".repeat(100_000)).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{error}");
    }
}
