//! Standard output that survives a closed pipe, and what a command fails with.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};

/// Why a command failed, on one line.
pub struct Failure(pub String);

impl From<samedraw::Error> for Failure {
    fn from(error: samedraw::Error) -> Failure {
        Failure(error.to_string())
    }
}

impl Failure {
    /// Puts what a failure is about in front of it.
    pub fn about(what: impl Display) -> impl FnOnce(samedraw::Error) -> Failure {
        move |error| Failure(format!("{what}: {error}"))
    }
}

/// Prints `text`. A reader that has gone away (`samedraw ... | head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}

/// Prints `text` to standard error. Nobody is left to be told when that fails.
pub fn note(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Prints a failure.
pub fn complain(message: &str) {
    note(&format!("samedraw: {message}\n"));
}

/// Bold, where standard output is a terminal and `NO_COLOR` is not set.
#[derive(Clone, Copy)]
pub struct Style {
    on: bool,
}

impl Style {
    /// The style of standard output.
    pub fn of_stdout() -> Style {
        Style { on: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    /// `text` in bold.
    pub fn bold(self, text: &str) -> String {
        if self.on { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}
