//! Command line of samedraw: run sampling steps from disk, compare devices, look at what is there,
//! take times.
//!
//! Exit codes: 0 done (and, where something was compared, equal), 1 a comparison found a difference, 2 a bad file, flag
//! or device.

mod bench;
mod demo;
mod devices;
mod kernels;
mod output;
mod run;
mod table;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use output::Failure;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "samedraw",
    version,
    about = "The same logits, seed, position and parameters give the same token on any device"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a sampling step from a step file.
    Run(run::Arguments),
    /// List the platforms: what is there, or why it is not.
    Devices(devices::Arguments),
    /// Print the kernels of a target and the commands that build them ahead of time.
    Kernels(kernels::Arguments),
    /// Sample 24 rows of real logits that come with the program.
    Demo(demo::Arguments),
    /// Time a step over rows, vocabularies and filters.
    Bench(bench::Arguments),
}

/// What a command that did its work found.
enum Outcome {
    Done,
    Different,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    let done = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match done {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Different) => ExitCode::from(1),
        Err(Failure(message)) => {
            output::complain(&message);
            ExitCode::from(2)
        }
    }
}

/// Help and version as they are asked for; what is wrong with the arguments on one line, as any other failure.
fn refused(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        error.exit();
    }
    let text = error.to_string();
    // What follows the first blank line is usage.
    let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    output::complain(&what.split_whitespace().collect::<Vec<_>>().join(" "));
    ExitCode::from(2)
}
