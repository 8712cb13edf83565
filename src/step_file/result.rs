//! What a step gave, as a document that can be kept, printed and compared.

use super::{open_regular, refuse, unreadable};
use crate::error::Result;
use serde::de::Deserializer;
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// An f32 that is equal to another when their bits are; -inf is `null` in JSON.
#[derive(Debug, Clone, Copy)]
pub struct Float(pub f32);

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == f32::NEG_INFINITY { f.write_str("null") } else { write!(f, "{:?}", self.0) }
    }
}

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            f32::NEG_INFINITY => serializer.serialize_none(),
            x if x.is_finite() => serializer.serialize_f64(x.into()),
            x => Err(S::Error::custom(format!("{x} has no place in a result document"))),
        }
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Float, D::Error> {
        Ok(Float(Option::<f64>::deserialize(deserializer)?.map_or(f32::NEG_INFINITY, |x| x as f32)))
    }
}

/// What one request got. A vector has one entry a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestResult {
    /// The request's name.
    pub id: String,
    /// Tokens, -1 = none.
    pub tokens: Vec<i64>,
    /// Drafts accepted.
    pub accepted: i64,
    /// Processed logprob of the token; -inf where there is no token or it is not kept.
    pub logprobs: Vec<Float>,
    /// Rank of the token, from 1; none where it is not kept.
    pub ranks: Vec<Option<i64>>,
    /// Number of kept tokens.
    pub kept: Vec<i64>,
    /// Names of the conditions met, sorted.
    pub status: Vec<Vec<String>>,
    /// The most likely kept tokens with their logprobs, where the request asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<Vec<Vec<(i64, Float)>>>,
    /// Probability of the tokens up to this one, least likely first, where the step asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum_smaller_probs: Option<Vec<Float>>,
    /// Logprob of the token under the logits as handed in, where the step asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_logprobs: Option<Vec<Float>>,
    /// All N processed logprobs, where the step asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense_logprobs: Option<Vec<Vec<Float>>>,
}

/// What a step gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultDocument {
    /// The requests, in the order of the step.
    pub requests: Vec<RequestResult>,
}

impl ResultDocument {
    /// Reads a document from its JSON.
    ///
    /// # Errors
    /// [`Error::StepFile`](crate::Error::StepFile) where it is not one.
    pub fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| refuse("result document", error.to_string()))
    }

    /// Reads the document at `path`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be read, otherwise as [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (mut file, _) = open_regular(path)?;
        let mut json = String::new();
        file.read_to_string(&mut json).map_err(|error| unreadable(path, error))?;
        Self::parse(&json)
    }

    /// The document as JSON, one line. Floats are printed so that they read back to the same bits.
    ///
    /// # Errors
    /// [`Error::StepFile`](crate::Error::StepFile) when a float is NaN or +inf, which no device may give.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| refuse("result document", error.to_string()))
    }

    /// Everything in which `other` differs, a line each, to the last bit; empty when nothing does.
    pub fn differences(&self, other: &ResultDocument) -> Vec<String> {
        let mut lines = Vec::new();
        if self.requests.len() != other.requests.len() {
            lines.push(format!("{} requests, other {}", self.requests.len(), other.requests.len()));
        }
        for (mine, theirs) in self.requests.iter().zip(&other.requests) {
            mine.compare(theirs, &mut lines);
        }
        lines
    }
}

impl RequestResult {
    fn compare(&self, other: &RequestResult, lines: &mut Vec<String>) {
        let name = format!("request {:?}", self.id);
        if self.id != other.id {
            lines.push(format!("{name}: id, other {:?}", other.id));
        }
        if self.accepted != other.accepted {
            lines.push(format!("{name}: accepted {}, other {}", self.accepted, other.accepted));
        }
        let mut rows = Rows { name, lines };
        rows.compare("tokens", &self.tokens, &other.tokens, i64::to_string);
        rows.compare("logprobs", &self.logprobs, &other.logprobs, Float::to_string);
        rows.compare("ranks", &self.ranks, &other.ranks, |rank| rank.map_or("null".into(), |rank| rank.to_string()));
        rows.compare("kept", &self.kept, &other.kept, i64::to_string);
        rows.compare("status", &self.status, &other.status, |names| shown_status(names));
        rows.lists("top_logprobs", &self.top_logprobs, &other.top_logprobs, |(id, logprob)| format!("{id}: {logprob}"));
        rows.optional("sum_smaller_probs", &self.sum_smaller_probs, &other.sum_smaller_probs);
        rows.optional("raw_logprobs", &self.raw_logprobs, &other.raw_logprobs);
        rows.lists("dense_logprobs", &self.dense_logprobs, &other.dense_logprobs, Float::to_string);
    }
}

/// Names a document from elsewhere may hold anything: control characters are shown and not obeyed.
fn shown_status(names: &[String]) -> String {
    format!("[{}]", names.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", "))
}

/// Compares the fields of one request, row by row.
struct Rows<'a> {
    name: String,
    lines: &'a mut Vec<String>,
}

impl Rows<'_> {
    fn compare<T: PartialEq>(&mut self, field: &str, mine: &[T], theirs: &[T], show: impl Fn(&T) -> String) {
        if mine.len() != theirs.len() {
            self.lines.push(format!("{}: {field} of {} rows, other {}", self.name, mine.len(), theirs.len()));
        }
        for (row, (a, b)) in mine.iter().zip(theirs).enumerate().filter(|(_, (a, b))| a != b) {
            self.lines.push(format!("{}, row {row}: {field} {}, other {}", self.name, show(a), show(b)));
        }
    }

    /// Whether both sides have the field; says so where only one does.
    fn both<'b, T>(&mut self, field: &str, mine: &'b Option<T>, theirs: &'b Option<T>) -> Option<(&'b T, &'b T)> {
        match (mine, theirs) {
            (Some(mine), Some(theirs)) => return Some((mine, theirs)),
            (None, None) => {}
            (Some(_), None) => self.lines.push(format!("{}: {field} given, other not", self.name)),
            (None, Some(_)) => self.lines.push(format!("{}: {field} not given, other is", self.name)),
        }
        None
    }

    fn optional(&mut self, field: &str, mine: &Option<Vec<Float>>, theirs: &Option<Vec<Float>>) {
        if let Some((mine, theirs)) = self.both(field, mine, theirs) {
            self.compare(field, mine, theirs, Float::to_string);
        }
    }

    fn lists<T: PartialEq>(
        &mut self,
        field: &str,
        mine: &Option<Vec<Vec<T>>>,
        theirs: &Option<Vec<Vec<T>>>,
        show: impl Fn(&T) -> String,
    ) {
        let Some((mine, theirs)) = self.both(field, mine, theirs) else { return };
        if mine.len() != theirs.len() {
            self.lines.push(format!("{}: {field} of {} rows, other {}", self.name, mine.len(), theirs.len()));
        }
        for (row, (a, b)) in mine.iter().zip(theirs).enumerate() {
            if a.len() != b.len() {
                let (name, a, b) = (&self.name, a.len(), b.len());
                self.lines.push(format!("{name}, row {row}: {field} of {a} entries, other {b}"));
            }
            for (entry, (a, b)) in a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b) {
                let (name, a, b) = (&self.name, show(a), show(b));
                self.lines.push(format!("{name}, row {row}: {field}[{entry}] {a}, other {b}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn documents_that_are_not_are_refused_and_differences_are_named() {
        for bad in ["", "[]", "{}", "{\"requests\": [{}]}", "{\"requests\": [], \"x\": 1}"] {
            let Err(Error::StepFile { place, .. }) = ResultDocument::parse(bad) else { panic!("{bad}") };
            assert_eq!(place, "result document");
        }
        let one = r#"{"requests": [{"id": "a", "tokens": [3, -1], "accepted": 0, "logprobs": [-0.0, null], "ranks": [1, null],
        "kept": [2, 2], "status": [[], ["nan_logits"]], "top_logprobs": [[[3, -0.5], [1, -1.5]], []]}]}"#;
        let mine = ResultDocument::parse(one).unwrap();
        assert_eq!(mine.differences(&mine), Vec::<String>::new());
        assert_eq!(ResultDocument::parse(&mine.to_json().unwrap()).unwrap(), mine);
        let other = one.replace("[3, -1]", "[4, -1]").replace("-0.0,", "0.0,").replace("[1, null]", "[2, null]");
        let other = other.replace("[[], [", "[[\"empty_row\"], [").replace("-1.5", "-1.25").replace("[2, 2]", "[2]");
        let expected = [
            "request \"a\", row 0: tokens 3, other 4",
            "request \"a\", row 0: logprobs -0.0, other 0.0",
            "request \"a\", row 0: ranks 1, other 2",
            "request \"a\": kept of 2 rows, other 1",
            "request \"a\", row 0: status [], other [empty_row]",
            "request \"a\", row 0: top_logprobs[1] 1: -1.5, other 1: -1.25",
        ];
        assert_eq!(mine.differences(&ResultDocument::parse(&other).unwrap()), expected);
        let other = ResultDocument::parse(&one.replace("nan_logits", "\\u001b[31m\\nall equal")).unwrap();
        let expected = ["request \"a\", row 1: status [nan_logits], other [\\u{1b}[31m\\nall equal]"];
        assert_eq!(mine.differences(&other), expected);
        let other = one.replace("\"top_logprobs\"", "\"dense_logprobs\"").replace("[3, -0.5], [1, -1.5]", "-1");
        let expected =
            ["request \"a\": top_logprobs given, other not", "request \"a\": dense_logprobs not given, other is"];
        assert_eq!(mine.differences(&ResultDocument::parse(&other).unwrap()), expected);
    }
}
