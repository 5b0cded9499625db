//! `reverse-cumsum`, `cumsum` and `affine-scan`: .npy files in, a .npy file out.

use super::array::{Input, Output};
use super::format::Tuple;
use super::{BackendChoice, Failure, Outcome, Result};
use ptxscan::Operation;
use std::path::{Path, PathBuf};

const LONG_HELP: &str = "Files are .npy files of 32-bit floats in C order, as numpy.save writes them. OUT may be one of the \
                         inputs: it appears, or is replaced, when the result is complete, and not at all after an error.";

/// A command with one input.
#[derive(clap::Args)]
#[command(after_help = LONG_HELP)]
pub struct OneInput {
    /// The array to read
    #[arg(value_name = "IN.npy")]
    input: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// A command with two inputs.
#[derive(clap::Args)]
#[command(after_help = LONG_HELP)]
pub struct TwoInputs {
    /// The factors a; the first one of each sequence is not used
    #[arg(value_name = "A.npy")]
    a: PathBuf,
    /// The terms b, of the same shape
    #[arg(value_name = "B.npy")]
    b: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// The array to write
    #[arg(value_name = "OUT.npy")]
    output: PathBuf,
    /// The axis to go along; -1 is the last one
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    axis: isize,
    /// What to compute on; auto is the first usable GPU, else the CPU
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t)]
    backend: BackendChoice,
}

impl OneInput {
    /// Runs `operation` on the file.
    pub fn scan(&self, operation: Operation) -> Result<Outcome> {
        self.common.scan(operation, &[&self.input])
    }
}

impl TwoInputs {
    /// Runs `operation` on the files.
    pub fn scan(&self, operation: Operation) -> Result<Outcome> {
        self.common.scan(operation, &[&self.a, &self.b])
    }
}

/// The inputs of one operation are not of one shape.
#[derive(Debug, thiserror::Error)]
#[error("expected shape {} as in {}, got {}", Tuple(expected), first.display(), Tuple(got))]
struct ShapeMismatch {
    expected: Vec<usize>,
    first: PathBuf,
    got: Vec<usize>,
}

impl Common {
    fn scan(&self, operation: Operation, paths: &[&Path]) -> Result<Outcome> {
        let open = |&path: &&Path| Input::<f32>::open(path).map_err(Failure::file(path));
        let inputs = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
        let (first, shape) = (paths[0], inputs[0].shape());
        for (path, input) in paths.iter().zip(&inputs) {
            if input.shape() != shape {
                return Err(Failure::file(path)(ShapeMismatch {
                    expected: shape.to_owned(),
                    first: first.to_owned(),
                    got: input.shape().to_owned(),
                }));
            }
        }
        ptxscan::extents::<f32>(operation, shape, self.axis).map_err(Failure::file(first))?;

        let engine = self.backend.engine()?;
        let write_failure = Failure::file(&self.output);
        let mut output = Output::create(&self.output, shape).map_err(&write_failure)?;
        let slices: Vec<&[f32]> = inputs.iter().map(Input::data).collect();
        engine.scan_into(operation, &slices, shape, self.axis, output.data())?;
        output.commit().map_err(&write_failure)?;
        Ok(Outcome::Good)
    }
}
