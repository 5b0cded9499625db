//! `reverse-cumsum`, `cumsum` and `affine-scan`: .npy files in, a .npy file out.

use super::array::{Input, Opened, Output};
use super::format::Tuple;
use super::npy::{Bool, Dtype, Error, Order};
use super::{BackendChoice, Failure, Outcome, Result};
use ptxscan::half::f16;
use ptxscan::num_complex::Complex;
use ptxscan::{Element, Layout, Operation, Options};
use std::path::{Path, PathBuf};

const LONG_HELP: &str = "Files are .npy files, as numpy.save writes them, of one type: float16, float32, float64, \
                         complex64, or (sums only) int32 or int64. OUT is in Fortran order if all that is read is, \
                         else in C order. It may be one of the inputs: it appears, or is \
                         replaced, when the result is complete, and not at all after an error.\n\n\
                         States are an array of the shape without the axis; with --boundaries, the number of sequences is \
                         in the place of the axis's extent. Those of float16 arrays are of float32.";

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
    /// Write the state before each step instead of that after it
    #[arg(long)]
    exclusive: bool,
    /// The states before the first steps
    #[arg(long, value_name = "STATES.npy")]
    initial: Option<PathBuf>,
    /// Write the states after the last steps to this file
    #[arg(long = "final", value_name = "STATES.npy")]
    final_state: Option<PathBuf>,
    /// Start afresh where this is true: a bool array of the shape up to the axis
    #[arg(long, value_name = "MASK.npy")]
    reset: Option<PathBuf>,
    /// Where sequences along the axis begin, and the axis ends: an int32 or int64 array, from 0 up
    #[arg(long, value_name = "FILE.npy")]
    boundaries: Option<PathBuf>,
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

/// An option's array does not go with the inputs'.
#[derive(Debug, thiserror::Error)]
#[error("expected shape {}, got {}", Tuple(expected), Tuple(got))]
struct UnexpectedShape {
    expected: Vec<usize>,
    got: Vec<usize>,
}

/// Two outputs are one file.
#[derive(Debug, thiserror::Error)]
#[error("expected a file for the final states, got that of the result")]
struct SameAsOutput;

/// Whether both paths lead to one file, which need not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| {
        path.canonicalize().or_else(|_| {
            let path = std::path::absolute(path)?;
            let folder = path.parent().unwrap_or(&path).canonicalize()?;
            Ok::<_, std::io::Error>(folder.join(path.file_name().unwrap_or_default()))
        })
    };
    match (resolved(one), resolved(other)) {
        (Ok(one), Ok(other)) => one == other,
        // What is wrong is said when it is opened.
        _ => false,
    }
}

impl Common {
    fn scan(&self, operation: Operation, paths: &[&Path]) -> Result<Outcome> {
        if let Some(path) = &self.final_state
            && is_same(path, &self.output)
        {
            return Err(Failure::file(path)(SameAsOutput));
        }
        let opened = Opened::new(paths[0]).map_err(Failure::file(paths[0]))?;
        macro_rules! of_type {
            ($($type:ty),*) => {
                match &opened.header {
                    $(header if header.is::<$type>() => {
                        self.scan_of::<$type>(operation, paths, opened)
                    })*
                    header => {
                        let error = header.none_of(&[$(<$type>::DESCR),*]);
                        Err(Failure::file(paths[0])(error))
                    }
                }
            };
        }
        of_type!(f16, f32, f64, Complex<f32>, i32, i64)
    }

    fn scan_of<T: Dtype + Element<State: Dtype>>(
        &self,
        operation: Operation,
        paths: &[&Path],
        opened: Opened,
    ) -> Result<Outcome> {
        let first = Input::<T>::read(opened).map_err(Failure::file(paths[0]));
        let open = |&path: &&Path| Input::<T>::open(path).map_err(Failure::file(path));
        let inputs = std::iter::once(first)
            .chain(paths[1..].iter().map(open))
            .collect::<Result<Vec<_>>>()?;
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
        ptxscan::extents::<T>(operation, shape, self.axis).map_err(Failure::file(first))?;

        let axis = match usize::try_from(self.axis) {
            Ok(axis) => axis,
            Err(_) => shape.len() - self.axis.unsigned_abs(),
        };
        if !self.has_arrays() && inputs.iter().all(|input| input.order() == Order::Fortran) {
            // It is the C order of the axes the other way round, for the result too.
            let reversed: Vec<usize> = shape.iter().rev().copied().collect();
            let axis = (shape.len() - 1 - axis) as isize;
            let engine = self.backend.engine()?;
            let mut output = self.create(shape, Order::Fortran)?;
            let slices: Vec<&[T]> = inputs.iter().map(Input::data).collect();
            let (options, out) = (self.options(), output.data());
            engine.scan_with_into(operation, &slices, &reversed, axis, options, out)?;
            return self.commit(output);
        }
        let layouts = paths.iter().zip(&inputs).map(|(path, input)| {
            let strides = input.order().strides(shape);
            let layout = Layout::new(shape, &strides, self.axis);
            layout.ok_or_else(|| {
                let shape = shape.to_vec();
                Failure::file(path)(Error::FortranOrder { shape })
            })
        });
        let layouts = layouts.collect::<Result<Vec<_>>>()?;
        let boundaries = self.boundaries.as_deref().map(boundaries).transpose()?;
        let mut states = shape.to_vec();
        match &boundaries {
            Some(boundaries) => states[axis] = boundaries.len().saturating_sub(1),
            None => drop(states.remove(axis)),
        }
        let initial = self.initial.as_deref();
        let initial = initial
            .map(|path| option::<T::State>(path, &states))
            .transpose()?;
        let reset = self.reset.as_deref();
        let reset = reset
            .map(|path| option::<Bool>(path, &shape[..=axis]))
            .transpose()?;
        let reset: Option<Vec<bool>> =
            reset.map(|mask| mask.data().iter().map(|&reset| reset.into()).collect());
        let engine = self.backend.engine()?;
        let create_state = |path: &PathBuf| {
            Output::<T::State>::create(path, &states, Order::C).map_err(Failure::file(path))
        };
        let mut output = self.create(shape, Order::C)?;
        let mut final_state = self.final_state.as_ref().map(create_state).transpose()?;

        let mut options = self.options().layouts(&layouts);
        if let Some(initial) = &initial {
            options = options.initial(initial.data());
        }
        if let Some(final_state) = &mut final_state {
            options = options.final_state(final_state.data());
        }
        if let Some(reset) = &reset {
            options = options.reset(reset);
        }
        if let Some(boundaries) = &boundaries {
            options = options.boundaries(boundaries);
        }
        let slices: Vec<&[T]> = inputs.iter().map(Input::data).collect();
        engine.scan_with_into(operation, &slices, shape, self.axis, options, output.data())?;
        self.commit(output)?;
        if let (Some(file), Some(path)) = (final_state, &self.final_state) {
            file.commit().map_err(Failure::file(path))?;
        }
        Ok(Outcome::Good)
    }

    /// Whether there are arrays besides the tensors.
    fn has_arrays(&self) -> bool {
        let Self {
            initial,
            final_state,
            reset,
            boundaries,
            ..
        } = self;
        [initial, final_state, reset, boundaries]
            .into_iter()
            .any(Option::is_some)
    }

    /// The options that are no arrays.
    fn options<T: Element>(&self) -> Options<'_, T> {
        if self.exclusive {
            Options::new().exclusive()
        } else {
            Options::new()
        }
    }

    fn create<T: Dtype>(&self, shape: &[usize], order: Order) -> Result<Output<T>> {
        Output::create(&self.output, shape, order).map_err(Failure::file(&self.output))
    }

    fn commit<T: Dtype>(&self, output: Output<T>) -> Result<Outcome> {
        output.commit().map_err(Failure::file(&self.output))?;
        Ok(Outcome::Good)
    }
}

/// The array of an option, which is to be of `shape`.
fn option<T: Dtype>(path: &Path, shape: &[usize]) -> Result<Input<T>> {
    let opened = Opened::new(path).and_then(Input::<T>::read_in_c_order);
    let input = opened.map_err(Failure::file(path))?;
    if input.shape() == shape {
        Ok(input)
    } else {
        Err(Failure::file(path)(UnexpectedShape {
            expected: shape.to_owned(),
            got: input.shape().to_owned(),
        }))
    }
}

/// The numbers in a file of boundaries.
fn boundaries(path: &Path) -> Result<Vec<usize>> {
    let read = || {
        let opened = Opened::new(path)?;
        let numbers: Vec<i64> = if opened.header.is::<i32>() {
            let input = Input::<i32>::read(opened)?;
            input.data().iter().map(|&number| number.into()).collect()
        } else if opened.header.is::<i64>() {
            Input::<i64>::read(opened)?.data().to_vec()
        } else {
            return Err(opened.header.none_of(&[i32::DESCR, i64::DESCR]));
        };
        let number =
            |(index, got)| usize::try_from(got).map_err(|_| Error::Negative { index, got });
        numbers.into_iter().enumerate().map(number).collect()
    };
    read().map_err(Failure::file(path))
}
