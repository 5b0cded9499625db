//! `bench`: cases against a plain copy of the same bytes, for people and for programs.

use super::case::{Case, Variation, columns, label};
use super::format::{self, Column, Table, Tuple, widest};
use super::measure::{Measurement, measure};
use super::runner::{Choice, shortage};
#[cfg(feature = "cuda")]
use super::small;
use super::{BackendChoice, Failure, Outcome, Result, command_name, complain, npy, startup, sweep};
use clap::ValueEnum;
use ptxscan::plan::{self, Strategy};
use ptxscan::{Engine, Operation, Operator};
use std::io::Write;
use std::path::{Path, PathBuf};

fn after_help() -> String {
    let named: Vec<String> = Case::all()
        .iter()
        .map(|case| {
            let label = label(case.operation, &case.shape, case.axis as isize);
            format!("  {:<4} {label}", case.name)
        })
        .collect();
    format!(
        "Named cases, which are all measured where none is asked for:\n{}\n\n\
         A median is of that many single runs, timed by events on a GPU and by the wall clock on a CPU, after a warm-up and \
         a check against 64-bit arithmetic. The copy is of half the case's bytes, so that as many are moved: by the driver on \
         a GPU, by all threads on a CPU. Bytes are those of all arrays that are read or written, masks and states included. \
         A case that does not fit in memory is left out.",
        named.join("\n")
    )
}

/// The arguments of `bench`.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Arguments {
    /// Cases by name
    #[arg(value_name = "CASE", hide_possible_values = true, value_parser = clap::builder::PossibleValuesParser::new(Case::names()))]
    cases: Vec<String>,
    /// A case of your own: its operation
    #[arg(
        long,
        value_enum,
        value_name = "OPERATION",
        requires = "shape",
        requires = "axis",
        conflicts_with = "cases"
    )]
    op: Option<OperationChoice>,
    /// Its shape, as in 32,4096,256
    #[arg(long, value_name = "EXTENTS", value_delimiter = ',', requires = "op")]
    shape: Vec<usize>,
    /// Its axis; -1 is the last one
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "op")]
    axis: Option<isize>,
    #[command(flatten)]
    variation: Variation,
    /// What to compute on; auto is the first usable GPU, else the CPU
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t)]
    backend: BackendChoice,
    /// How a GPU is to go about it, whatever the rules for plans say
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<StrategyChoice>,
    /// Measure all ways to go about the cases, in a few runs each, and mark what the rules for plans pick; where no case is asked for,
    /// on a grid of shapes of 2^24 to 2^28 elements
    #[arg(long, conflicts_with_all = ["strategy", "samples"])]
    sweep: bool,
    /// Measure the time from the start to a first result, in place of cases
    #[arg(long, conflicts_with_all = ["cases", "op", "sweep", "strategy", "samples", "Variation"])]
    startup: bool,
    /// Measure small scans beside a kernel that does nothing, by replay of a CUDA graph, in place of cases
    #[arg(long, conflicts_with_all = ["cases", "op", "sweep", "startup", "strategy", "samples", "Variation"])]
    small: bool,
    /// How many runs a median is of, 20 at least
    #[arg(long, value_name = "RUNS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(20..))]
    samples: u32,
    /// The seed of the random data
    #[arg(long, default_value_t)]
    seed: u64,
    /// Write the results to this file too, as a JSON array of one object a row
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// `--op`.
#[derive(Clone, Copy, ValueEnum)]
enum OperationChoice {
    ReverseCumsum,
    Cumsum,
    AffineScan,
}

impl OperationChoice {
    fn operation(self) -> Operation {
        match self {
            OperationChoice::ReverseCumsum => Operation::REVERSE_CUMSUM,
            OperationChoice::Cumsum => Operation::CUMSUM,
            OperationChoice::AffineScan => Operation::AFFINE_SCAN,
        }
    }
}

/// `--strategy`.
#[derive(Clone, Copy, ValueEnum)]
enum StrategyChoice {
    /// A block takes a row or a strip of columns
    Whole,
    /// All blocks share its tiles
    Split,
    /// A lane takes a few channels of columns, some lanes a short row
    Lanes,
    /// A block takes several tiles of few channels at once
    Narrow,
}

/// A row of the results.
#[derive(serde::Serialize)]
pub struct Row {
    case: String,
    op: String,
    shape: Vec<usize>,
    axis: usize,
    dtype: &'static str,
    backend: &'static str,
    device: String,
    median_ms: f64,
    min_ms: f64,
    bytes: usize,
    gbps: f64,
    copy_gbps: f64,
    of_copy: f64,
    rel_error: f64,
    /// Of a sweep: how it was gone about, …
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<&'static str>,
    /// … and whether that is what the rules pick.
    #[serde(skip_serializing_if = "Option::is_none")]
    picked: Option<bool>,
}

impl Row {
    pub fn new(
        case: &Case,
        choice: Option<&Choice>,
        engine: &Engine,
        measurement: &Measurement,
    ) -> Self {
        Self {
            case: case.name.clone(),
            op: command_name(case.operation),
            shape: case.shape.clone(),
            axis: case.axis,
            dtype: case.variation.dtype.name(),
            backend: engine.backend().name(),
            device: engine.device_name(),
            median_ms: measurement.median * 1e3,
            min_ms: measurement.min * 1e3,
            bytes: measurement.bytes,
            gbps: measurement.gbps(),
            copy_gbps: measurement.copy_gbps(),
            of_copy: measurement.of_copy(),
            rel_error: measurement.check.rel_error,
            strategy: choice.map(|choice| choice.name),
            picked: choice.map(|choice| choice.is_picked),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Outcome> {
    let mut cases = arguments.cases()?;
    for case in &mut cases {
        case.strategy = arguments.strategy.map(|choice| match choice {
            StrategyChoice::Whole => plan::whole(case.extents),
            StrategyChoice::Split => plan::split(case.extents),
            StrategyChoice::Lanes if case.extents.inner == 1 => Strategy::ShortRows,
            StrategyChoice::Lanes => Strategy::Lanes,
            StrategyChoice::Narrow => Strategy::Narrow,
        });
    }
    if let Some(path) = &arguments.json {
        // Before minutes are spent on a file that cannot be written. What is in it stays until there is a row.
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(npy::Error::Write)
            .map_err(Failure::file(path))?;
    }
    let json = arguments.json.as_deref();
    if arguments.startup {
        return startup::run(arguments.backend, json, out);
    }
    let engine = arguments.backend.engine()?;
    if arguments.small {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = engine.as_gpu() {
            return small::run(gpu, json, out);
        }
        return Err(Failure::SmallNeedsGpu);
    }
    if arguments.sweep {
        return sweep::run(&engine, &cases, arguments.seed, json, out);
    }
    let mut rows = Vec::new();
    writeln!(
        out,
        "{} on the back end {} ({}), medians of {} runs\n",
        arguments.variation.dtype.name(),
        engine.backend().name(),
        engine.device_name(),
        arguments.samples
    )?;
    let table = table(&cases);
    table.head(out)?;

    let mut outcome = Outcome::Good;
    for case in &cases {
        if let Some(shortage) = shortage(&engine, case)? {
            complain(format_args!("{}: left out: {shortage}", case.name));
            continue;
        }
        let measurement = measure(&engine, case, arguments.samples as usize, arguments.seed)?;
        table.row(out, cells(case, &measurement))?;
        if !measurement.check.passed() {
            outcome = Outcome::Wrong;
        }
        rows.push(Row::new(case, None, &engine, &measurement));
        write_json(json, &rows)?;
    }
    if rows.is_empty() {
        return Err(Failure::NothingRan);
    }
    Ok(outcome)
}

impl Arguments {
    fn cases(&self) -> Result<Vec<Case>> {
        let cases = match (self.op, self.axis) {
            (Some(op), Some(axis)) => vec![Case::new(op.operation(), &self.shape, axis)?],
            _ if self.cases.is_empty() => {
                let all = if self.sweep {
                    sweep::grid()
                } else {
                    Case::all()
                };
                let has_gradient = |case: &Case| case.operation.operator == Operator::AffineScan;
                all.into_iter()
                    .filter(|case| !self.variation.backward || has_gradient(case))
                    .collect()
            }
            _ => self
                .cases
                .iter()
                .filter_map(|name| Case::named(name))
                .collect(),
        };
        cases
            .into_iter()
            .map(|case| case.varied(&self.variation, self.seed))
            .collect()
    }
}

fn table(cases: &[Case]) -> Table<10> {
    let [operation, shape, axis] = columns(cases);
    Table::new([
        Column::left(
            "case",
            widest(cases.iter().map(|case| short_name(case).to_owned())),
        ),
        operation,
        shape,
        axis,
        Column::right("median", 8),
        Column::right("min", 8),
        Column::right("GB/s", 6),
        Column::right("copy's", 6),
        Column::right("of copy", 0),
        Column::left("error", 15),
    ])
}

fn cells(case: &Case, measurement: &Measurement) -> [String; 10] {
    let check = &measurement.check;
    let verdict = if check.passed() { "" } else { " FAILED" };
    [
        short_name(case).to_owned(),
        command_name(case.operation),
        Tuple(&case.shape).to_string(),
        case.axis.to_string(),
        format::time(measurement.median),
        format::time(measurement.min),
        format!("{:.1}", measurement.gbps()),
        format!("{:.1}", measurement.copy_gbps()),
        format!("{:.3}", measurement.of_copy()),
        format!("{:.1e}{verdict}", check.rel_error),
    ]
}

/// The name of a named case; of another one, what is different about it, as the columns beside it say the rest.
fn short_name(case: &Case) -> &str {
    match case.name.rsplit_once(" axis ") {
        None => &case.name,
        Some((_, axis)) => axis.find('-').map_or("-", |different| &axis[different..]),
    }
}

/// An array with an object a line, of a row or more; if there is a file for it.
pub fn write_json(path: Option<&Path>, rows: &[impl serde::Serialize]) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let lines: Vec<String> = rows
        .iter()
        .map(|row| serde_json::to_string(row).map(|row| format!("  {row}")))
        .collect::<Result<_, _>>()
        .map_err(Failure::file(path))?;
    std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n")))
        .map_err(npy::Error::Write)
        .map_err(Failure::file(path))
}
