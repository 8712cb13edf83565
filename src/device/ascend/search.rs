//! Where CANN's libraries are looked for, and what a library that is no good stops.

use super::unavailable;
use crate::error::{Error, Result};
use libloading::Library;
use libloading::os::unix;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

/// Environment variables that name the root of an installed CANN, in the order they are asked.
const ROOT_VARIABLES: [&str; 2] = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"];
/// Roots of a default installation: of CANN 9, of CANN 8, and the same below a user's home.
const DEFAULT_ROOTS: [&str; 2] = ["/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"];
const HOME_ROOTS: [&str; 2] = ["Ascend/cann", "Ascend/ascend-toolkit/latest"];

/// What to look for.
#[derive(Debug)]
pub(super) struct Search<'a> {
    /// For messages: `CANN runtime`.
    pub what: &'static str,
    /// File names, the preferred one first.
    pub names: &'static [&'static str],
    /// A path that is used and nothing else, if the caller gave one.
    pub explicit: Option<&'a Path>,
    /// How a caller gives one.
    pub variable: &'static str,
    /// A folder to look in before the roots.
    pub beside: Option<&'a Path>,
}

/// Where the first library was found that `accept` took.
///
/// A library that the process has open is preferred, then the roots in their order, then the dynamic linker's own
/// places. The first place with a library decides: one that cannot be opened or is not accepted is an error, and not a
/// reason to use another installation than the one the environment names.
pub(super) fn find<T>(search: &Search<'_>, mut accept: impl FnMut(Library, &str) -> Result<T>) -> Result<T> {
    if let Some(path) = search.explicit {
        let path = path.to_string_lossy();
        return open(&path, unix::RTLD_NOW | unix::RTLD_GLOBAL)
            .map_err(|error| {
                unavailable(format!("the {} cannot be opened: {error}", search.what), vec![path.to_string()])
            })
            .and_then(|library| accept(library, &path));
    }
    let mut tried = Vec::new();
    let open_now = search.names.iter().filter_map(|name| Some((open(name, unix::RTLD_NOW | RTLD_NOLOAD).ok()?, *name)));
    if let Some(done) = first_accepted(open_now.map(|(library, name)| (Ok(library), name.to_owned())), &mut accept) {
        return done;
    }
    for folder in folders(search.beside) {
        let files = search.names.iter().map(|name| folder.join(name));
        let (there, absent): (Vec<PathBuf>, Vec<PathBuf>) = files.partition(|file| file.exists());
        tried.extend(absent.iter().map(|file| file.display().to_string()));
        let opened = there.iter().map(|file| {
            let path = file.display().to_string();
            (open(&path, unix::RTLD_NOW | unix::RTLD_GLOBAL), path)
        });
        if let Some(done) = first_accepted(opened, &mut accept) {
            return done;
        }
    }
    let mut broken = Vec::new();
    for name in search.names {
        match open(name, unix::RTLD_NOW | unix::RTLD_GLOBAL) {
            Ok(library) => return accept(library, name),
            // The linker's message starts with what is missing: the library itself, or one it needs.
            Err(error) if error.contains(&format!("{name}: cannot open")) => tried.push((*name).to_owned()),
            Err(error) => broken.push((Err(error), (*name).to_owned())),
        }
    }
    if let Some(done) = first_accepted(broken.into_iter(), &mut accept) {
        return done;
    }
    Err(unavailable(format!("no {} was found; {} may name one", search.what, search.variable), tried))
}

const RTLD_NOLOAD: c_int = 4;

fn open(name: &str, flags: c_int) -> Result<Library, String> {
    // SAFETY: opening CANN's libraries runs their initialisers, which is what every user of them does.
    let opened = unsafe { unix::Library::open(Some(name), flags) };
    opened.map(Library::from).map_err(|error| {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        text
    })
}

/// The first that is accepted, else the first refusal; `None` of nothing.
fn first_accepted<T>(
    libraries: impl Iterator<Item = (Result<Library, String>, String)>,
    accept: &mut impl FnMut(Library, &str) -> Result<T>,
) -> Option<Result<T>> {
    let mut refusal: Option<Error> = None;
    for (library, path) in libraries {
        let outcome = match library {
            Ok(library) => accept(library, &path),
            Err(error) => Err(unavailable(format!("{path} cannot be opened: {error}"), vec![path])),
        };
        match outcome {
            Ok(accepted) => return Some(Ok(accepted)),
            Err(error) => refusal = Some(refusal.unwrap_or(error)),
        }
    }
    refusal.map(Err)
}

fn folders(beside: Option<&Path>) -> Vec<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = ROOT_VARIABLES.into_iter().filter_map(from);
    let defaults = DEFAULT_ROOTS.into_iter().map(PathBuf::from);
    let home = from("HOME").into_iter().flat_map(|home| HOME_ROOTS.map(|root| home.join(root)));
    let mut all: Vec<PathBuf> = beside.map(Path::to_owned).into_iter().collect();
    for folder in named.chain(defaults).chain(home).map(|root| root.join("lib64")) {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    all
}
