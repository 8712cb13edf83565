//! `cargo xtask abi-check HEADERS`: our declarations of CANN's calls against the vendor's own headers.
//!
//! A C program is written and compiled that includes both, ours under other names, and asserts every size, offset, value
//! and function type. Values the vendor declares as variables are no constants in C; the program compares them when run.

mod declarations;

use declarations::{Declarations, Record, read};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A header of ours, and the vendor's header it stands for.
struct Pair {
    ours: &'static str,
    vendors: &'static str,
    /// Not in every set of the vendor's headers.
    optional: bool,
}

const PAIRS: [Pair; 2] = [
    Pair { ours: "acl_abi.h", vendors: "acl/acl.h", optional: false },
    Pair { ours: "aclrtc_abi.h", vendors: "acl/acl_rt_compile.h", optional: true },
];

/// Compares every header of ours with its counterpart below `headers`.
pub fn run(root: &Path, headers: &Path) -> Result<(), String> {
    for pair in &PAIRS {
        if pair.optional && !headers.join(pair.vendors).is_file() {
            println!("ffi/{}: NOT COMPARED, there is no {} here (it comes with the toolkit)", pair.ours, pair.vendors);
            continue;
        }
        let path = root.join("ffi").join(pair.ours);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let ours = read(&text).map_err(|what| format!("ffi/{}: {what}", pair.ours))?;
        let folder = root.join("target").join("abi-check");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let source = folder.join(pair.ours).with_extension("c");
        fs::write(&source, program(&ours, &path, pair.vendors))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        compile_and_run(&source, headers)
            .map_err(|what| format!("ffi/{} and {} differ:\n{what}", pair.ours, pair.vendors))?;
        println!("ffi/{} agrees with {}: {ours}", pair.ours, pair.vendors);
    }
    Ok(())
}

fn compile_and_run(source: &Path, headers: &Path) -> Result<(), String> {
    let program = source.with_extension("out");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut compile = Command::new(&compiler);
    compile.args(["-std=gnu11", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-deprecated-declarations", "-I"]);
    compile.arg(headers).arg("-I").arg(headers.join("acl")).arg("-o").arg(&program).arg(source);
    for mut command in [compile, Command::new(&program)] {
        let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            return Err(String::from_utf8_lossy(&text).trim_end().to_owned());
        }
    }
    Ok(())
}

/// The C program.
fn program(ours: &Declarations, path: &Path, vendors: &str) -> String {
    let mut c = format!("#include <stdio.h>\n#include <stddef.h>\n#include <{vendors}>\n\n");
    // Writing to a string does not fail.
    for name in &ours.functions {
        let _ = writeln!(c, "enum {{ declared_{name} = sizeof(&{name}) }};");
    }
    for (name, _) in &ours.macros {
        let _ = writeln!(c, "enum {{ vendors_{name} = {name} }};\n#undef {name}");
    }
    c += "\n// Our types and values, under other names.\n";
    let renamed: Vec<&String> = ours.type_names().chain(ours.enumerators().map(|(name, _)| name)).collect();
    let renamed = || renamed.iter().copied().chain(ours.variables.iter().map(|(name, _)| name));
    renamed().for_each(|name| {
        let _ = writeln!(c, "#define {name} ours_{name}");
    });
    let _ = writeln!(c, "#define SAMEDRAW_ABI_NO_CALLS\n#include \"{}\"\n#undef SAMEDRAW_ABI_NO_CALLS", path.display());
    renamed().for_each(|name| {
        let _ = writeln!(c, "#undef {name}");
    });
    c += "\n// Our calls, with the vendor's types.\n#define SAMEDRAW_ABI_NO_TYPES\n";
    ours.functions.iter().for_each(|name| {
        let _ = writeln!(c, "#define {name} ours_{name}");
    });
    let _ = writeln!(c, "#include \"{}\"", path.display());
    ours.functions.iter().for_each(|name| {
        let _ = writeln!(c, "#undef {name}");
    });
    c += "\n";
    assertions(&mut c, ours);
    c += "\nint main(void)\n{\n    int differences = 0;\n";
    for (name, _) in &ours.variables {
        let _ = writeln!(
            c,
            "    if ({name} != ours_{name}) differences += printf(\"{name}: ours %d, theirs %d\\n\", ours_{name}, {name}) > 0;"
        );
    }
    c += "    return differences != 0;\n}\n";
    c
}

fn assertions(c: &mut String, ours: &Declarations) {
    let mut claim = |condition: String, what: &str| {
        let _ = writeln!(c, "_Static_assert({condition}, \"{what}\");");
    };
    for name in &ours.aliases {
        claim(format!("__builtin_types_compatible_p({name}, ours_{name})"), &format!("type {name}"));
    }
    for record in ours.enums.iter().chain(&ours.records) {
        let name = &record.name;
        claim(format!("sizeof({name}) == sizeof(ours_{name})"), &format!("size of {name}"));
        claim(format!("_Alignof({name}) == _Alignof(ours_{name})"), &format!("alignment of {name}"));
    }
    for Record { name, members } in &ours.records {
        for (member, _) in members {
            let place = format!("{name}.{member}");
            claim(
                format!("offsetof({name}, {member}) == offsetof(ours_{name}, {member})"),
                &format!("offset of {place}"),
            );
            claim(
                format!("sizeof((({name} *)0)->{member}) == sizeof(((ours_{name} *)0)->{member})"),
                &format!("size of {place}"),
            );
        }
    }
    for (name, _) in ours.enumerators() {
        // Enumerators of two enums are compared as numbers.
        claim(format!("(long long){name} == (long long)ours_{name}"), &format!("value of {name}"));
    }
    for (name, value) in &ours.macros {
        claim(format!("vendors_{name} == ({value})"), &format!("value of {name}"));
    }
    for name in &ours.functions {
        claim(
            format!("__builtin_types_compatible_p(__typeof__({name}), __typeof__(ours_{name}))"),
            &format!("function type of {name}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "
        #define LIMIT 7
        static const int CODE = 100;
        typedef int err;
        typedef void *handle;
        typedef enum kind { KIND_A = 1, KIND_B = 4 } kind;
        typedef union value { uint32_t a; uint32_t r[4]; } value;
        typedef struct { kind which; value what; size_t n; } option;
        #if !defined(SAMEDRAW_ABI_NO_CALLS)
        err load(handle h, const option *o, size_t n);
        #endif
    ";

    /// What the vendor might have instead, and what the comparison must then say.
    const FAULTS: [(&str, &str, &str); 10] = [
        ("LIMIT 7", "LIMIT 8", "value of LIMIT"),
        ("CODE = 100", "CODE = 101", "CODE: ours 100, theirs 101"),
        ("typedef int err", "typedef long err", "type err"),
        ("KIND_B = 4", "KIND_B = 5", "value of KIND_B"),
        ("uint32_t r[4]", "uint32_t r[5]", "size of value"),
        ("kind which; value what;", "value what; kind which;", "offset of option.what"),
        ("size_t n; } option", "int n; } option", "size of option.n"),
        (
            "err load(handle h, const option *o, size_t n)",
            "err load(handle h, option *o, size_t n)",
            "function type of load",
        ),
        (
            "err load(handle h, const option *o, size_t n)",
            "err load(handle h, const option *o, int n)",
            "function type of load",
        ),
        ("err load(", "err lode(", "load"),
    ];

    fn outcome(name: &str, vendors: &str) -> Result<(), String> {
        let folder = std::env::temp_dir().join(format!("samedraw-abi-check-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let prelude = "#include <stddef.h>\n#include <stdint.h>\n";
        fs::write(folder.join("vendor.h"), format!("{prelude}{vendors}")).unwrap();
        // Types and calls are left out by the macros our headers have.
        let (types, calls) = OURS.split_once("#if").unwrap();
        let guarded = format!("#if !defined(SAMEDRAW_ABI_NO_TYPES)\n{prelude}{types}\n#endif\n#if{calls}");
        fs::write(folder.join("ours.h"), &guarded).unwrap();
        let source = folder.join("check.c");
        fs::write(&source, program(&read(&guarded).unwrap(), &folder.join("ours.h"), "vendor.h")).unwrap();
        let done = compile_and_run(&source, &folder);
        fs::remove_dir_all(&folder).unwrap();
        done
    }

    #[test]
    fn equal_headers_agree_and_every_difference_is_named() {
        assert_eq!(outcome("equal", OURS), Ok(()));
        for (number, (find, replace, says)) in FAULTS.into_iter().enumerate() {
            assert_eq!(OURS.matches(find).count(), 1, "{find}");
            let said = outcome(&number.to_string(), &OURS.replace(find, replace)).unwrap_err();
            assert!(said.contains(says), "{replace}: {said}");
        }
    }

    #[test]
    fn the_headers_are_read_whole() {
        for pair in &PAIRS {
            let text = fs::read_to_string(crate::root().join("ffi").join(pair.ours)).unwrap();
            let ours = read(&text).unwrap();
            // Counted by other means than the reader's.
            let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
            assert_eq!(ours.functions.len(), lines("aclError acl") + lines("const char *acl"), "{}", pair.ours);
            assert_eq!(ours.macros.len(), lines("#define "), "{}", pair.ours);
            assert_eq!(ours.variables.len(), lines("static const int "), "{}", pair.ours);
        }
    }
}
