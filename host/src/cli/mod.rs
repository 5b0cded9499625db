//! The command line: what the commands are, how they end and how they fail.
//!
//! | module | purpose |
//! |---|---|
//! | `files` | the commands on .npy files, with `array` (input and output), `npy` (the format) and `replacement` (a file that appears when complete) |
//! | `demo`, `bench` | the commands that measure, with `sweep`, `startup` and `small` (other things that `bench` can do), `case` (what), `data` (on what), `runner` (by what), `measure` (how), `check` (is it right) |
//! | `info` | what there is to compute on |
//! | `format` | numbers, shapes and tables for people |

mod array;
mod bench;
mod case;
mod check;
mod data;
mod demo;
mod dtype;
mod files;
mod format;
mod info;
mod measure;
mod npy;
mod replacement;
mod runner;
#[cfg(feature = "cuda")]
mod runner_gpu;
#[cfg(feature = "cuda")]
mod small;
mod startup;
mod sweep;

use clap::{Parser, Subcommand, ValueEnum};
use ptxscan::{Engine, Operation};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Cumulative sums and affine scans along an axis of an array, on a GPU or a CPU.
#[derive(Parser)]
#[command(
    name = "ptxscan",
    version,
    max_term_width = 100,
    after_help = "Without a command, ptxscan runs `ptxscan demo`. Exit status: 0, or 1 when a result fails its check, or 2 \
                  after an error, which is told on standard error: one line, but for a wrong usage."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Compute on random data, check the results, compare the speed with a copy's
    Demo(demo::Arguments),
    #[command(about = "Sum an array from the end along an axis: y[j] = x[j] + x[j+1] + …")]
    ReverseCumsum(files::OneInput),
    #[command(about = "Sum an array from the start along an axis: y[j] = x[0] + … + x[j]")]
    Cumsum(files::OneInput),
    #[command(about = "Run a recurrence along an axis: h[0] = b[0], h[t] = a[t]·h[t−1] + b[t]")]
    AffineScan(files::TwoInputs),
    /// Measure cases against a plain copy of the same bytes
    Bench(bench::Arguments),
    /// Show what there is to compute on, and why a GPU is not used
    Info,
}

/// `--backend`. (The variants have no documentation, so that its help is a line.)
#[derive(Clone, Copy, Default, ValueEnum)]
enum BackendChoice {
    #[default]
    Auto,
    Gpu,
    Cpu,
}

impl BackendChoice {
    fn engine(self) -> Result<Engine> {
        match self {
            BackendChoice::Auto => Ok(Engine::auto()),
            BackendChoice::Gpu => Ok(Engine::gpu(0)?),
            BackendChoice::Cpu => Ok(Engine::cpu()),
        }
    }
}

/// Why a command stopped. What it displays is one line.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}: {problem}", path.display())]
    File {
        path: PathBuf,
        problem: Box<dyn Error>,
    },
    #[error(transparent)]
    Scan(#[from] ptxscan::Error),
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] ptxscan::CudaError),
    #[error("{}: {problem}", case::label(*operation, shape, *axis))]
    Case {
        operation: Operation,
        shape: Vec<usize>,
        axis: isize,
        problem: &'static str,
    },
    #[error("expected a GPU for --small, got the back end cpu")]
    SmallNeedsGpu,
    #[error("no case was run: none fits in memory")]
    NothingRan,
    #[error("standard output: {0}")]
    Stdout(#[from] io::Error),
}

impl Failure {
    /// What makes a problem with the file at `path` a failure.
    fn file<E: Error + 'static>(path: &Path) -> impl Fn(E) -> Self {
        move |problem| Failure::File {
            path: path.to_owned(),
            problem: Box::new(problem),
        }
    }

    /// Whether nobody reads the output any more.
    fn is_broken_pipe(&self) -> bool {
        match self {
            Failure::Stdout(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Failure::File { problem, .. } => problem
                .downcast_ref()
                .is_some_and(npy::Error::is_broken_pipe),
            _ => false,
        }
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// An operation's name as the commands have it.
fn command_name(operation: Operation) -> String {
    operation.name().replace('_', "-")
}

/// How a command that did its work ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Good,
    /// A result is not what 64-bit arithmetic gives.
    Wrong,
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        // As a program ends that leaves SIGPIPE alone: nothing was wrong, but not everything was said either.
        Err(failure) if failure.is_broken_pipe() => ExitCode::from(128 + 13),
        Err(failure) => {
            complain(failure);
            ExitCode::from(2)
        }
    }
}

/// A line on standard error. If that is gone, there is nobody to tell.
fn complain(problem: impl Display) {
    let _ = writeln!(io::stderr(), "ptxscan: {problem}");
}

fn run(arguments: Arguments) -> Result<Outcome> {
    let out = &mut io::stdout().lock();
    let command = arguments
        .command
        .unwrap_or_else(|| Command::Demo(demo::Arguments::default()));
    match command {
        Command::Demo(arguments) => demo::run(&arguments, out),
        Command::ReverseCumsum(files) => files.scan(Operation::REVERSE_CUMSUM),
        Command::Cumsum(files) => files.scan(Operation::CUMSUM),
        Command::AffineScan(files) => files.scan(Operation::AFFINE_SCAN),
        Command::Bench(arguments) => bench::run(&arguments, out),
        Command::Info => info::run(out),
    }
}
