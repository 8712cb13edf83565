//! What a header of ours declares: a reader for the few forms our headers use, which refuses any other.

use std::fmt;

/// A struct, union or enum with its members: (name, text after it).
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub members: Vec<(String, String)>,
}

/// Everything a header declares.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// `#define NAME VALUE`.
    pub macros: Vec<(String, String)>,
    /// `static const int NAME = VALUE;`.
    pub variables: Vec<(String, String)>,
    /// `typedef TYPE NAME;`.
    pub aliases: Vec<String>,
    /// `typedef struct NAME NAME;`, of which nothing is known.
    pub opaque: Vec<String>,
    pub enums: Vec<Record>,
    /// Structs and unions.
    pub records: Vec<Record>,
    pub functions: Vec<String>,
}

impl Declarations {
    /// Names of types.
    pub fn type_names(&self) -> impl Iterator<Item = &String> {
        let records = self.enums.iter().chain(&self.records).map(|record| &record.name);
        self.aliases.iter().chain(&self.opaque).chain(records)
    }

    /// Enumerators with their values.
    pub fn enumerators(&self) -> impl Iterator<Item = &(String, String)> {
        self.enums.iter().flat_map(|record| &record.members)
    }
}

impl fmt::Display for Declarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constants = self.macros.len() + self.variables.len() + self.enumerators().count();
        let types = self.type_names().count();
        write!(f, "{} calls, {types} types, {constants} constants", self.functions.len())
    }
}

/// Reads `text`.
pub fn read(text: &str) -> Result<Declarations, String> {
    let mut found = Declarations::default();
    let mut code = String::new();
    for line in without_comments(text)?.lines() {
        match line.trim().strip_prefix('#') {
            None => code += &format!("{line}\n"),
            Some(directive) => {
                if let Some(rest) = directive.strip_prefix("define ") {
                    let (name, value) = rest.split_once(' ').ok_or(format!("a macro without a value: {line}"))?;
                    found.macros.push((name.to_owned(), value.trim().to_owned()));
                }
            }
        }
    }
    let mut rest = code.trim();
    while !rest.is_empty() {
        // A declaration ends with the first semicolon outside of braces.
        let mut depth = 0;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ';' && depth == 0
        });
        let end = end.ok_or_else(|| format!("a declaration without an end: {rest}"))?;
        declaration(&rest[..end].split_whitespace().collect::<Vec<_>>().join(" "), &mut found)?;
        rest = rest[end + 1..].trim_start();
    }
    Ok(found)
}

fn without_comments(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out += before;
        rest = after.split_once("*/").ok_or("a comment without an end")?.1;
    }
    Ok(out + rest)
}

fn declaration(text: &str, found: &mut Declarations) -> Result<(), String> {
    let unknown = || format!("a declaration of no known form: {text}");
    if let Some(rest) = text.strip_prefix("static const int ") {
        let (name, value) = rest.split_once(" = ").ok_or_else(unknown)?;
        found.variables.push((name.to_owned(), value.to_owned()));
        return Ok(());
    }
    let Some(type_) = text.strip_prefix("typedef ") else {
        let (before, _) = text.split_once('(').ok_or_else(unknown)?;
        found.functions.push(last_word(before).ok_or_else(unknown)?);
        return Ok(());
    };
    let Some((head, body)) = type_.split_once('{') else {
        let name = last_word(type_).ok_or_else(unknown)?;
        if type_.starts_with("struct ") {
            found.opaque.push(name)
        } else {
            found.aliases.push(name)
        }
        return Ok(());
    };
    let (body, name) = body.rsplit_once('}').ok_or_else(unknown)?;
    let name = name.trim().to_owned();
    match head.split_whitespace().next() {
        Some("enum") => {
            let members = body.split(',').map(str::trim).filter(|member| !member.is_empty());
            let members =
                members.map(|member| member.split_once(" = ").ok_or_else(unknown)).collect::<Result<Vec<_>, _>>()?;
            let members = members.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            found.enums.push(Record { name, members });
        }
        Some("struct" | "union") => {
            let members = body.split(';').map(str::trim).filter(|member| !member.is_empty());
            let members = members
                .map(|member| {
                    let (plain, array) = member.split_once('[').unwrap_or((member, ""));
                    Some((last_word(plain)?, array.to_owned()))
                })
                .collect::<Option<Vec<_>>>();
            found.records.push(Record { name, members: members.ok_or_else(unknown)? });
        }
        _ => return Err(unknown()),
    }
    Ok(())
}

fn last_word(text: &str) -> Option<String> {
    let word = text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|word| !word.is_empty())?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_others_are_refused() {
        let found = read(
            "/* a comment; with { */\n#include <x.h>\n#define A 0x1\nstatic const int B = 2;\ntypedef void *h;\n\
             typedef struct s s;\ntypedef enum e {\n E1 = 1,\n E2 = -2,\n} e;\ntypedef struct { e k; uint32_t v[4]; h *p; } r;\n\
             const char *f(void);\ne g(\n h a, const char **b);\n",
        )
        .unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found.macros, [pair("A", "0x1")]);
        assert_eq!(found.variables, [pair("B", "2")]);
        assert_eq!((&found.aliases[..], &found.opaque[..]), (&["h".to_owned()][..], &["s".to_owned()][..]));
        assert_eq!(found.enums, [Record { name: "e".into(), members: vec![pair("E1", "1"), pair("E2", "-2")] }]);
        assert_eq!(found.records[0].members, [pair("k", ""), pair("v", "4]"), pair("p", "")]);
        assert_eq!(found.functions, ["f", "g"]);
        for refused in
            ["typedef enum { A } e;", "int x;", "int f(void)", "/* open", "#define A", "typedef class { int a; } c;"]
        {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
