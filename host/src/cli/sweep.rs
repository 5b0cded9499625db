//! `bench --sweep`: all ways to go about a case, on a grid of shapes.

use super::bench::{Row, write_json};
use super::case::{Case, columns};
use super::format::{self, Column, Table, Tuple};
use super::measure::sweep;
use super::runner::shortage;
use super::{Failure, Outcome, Result, command_name, complain};
use ptxscan::{Engine, Operation};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;

/// The extents of the grid: before the axis, along it and after it, …
const EXTENTS: [usize; 7] = [1, 2, 7, 64, 1000, 4096, 65536];
/// … as far as they make so many elements.
const ELEMENTS: RangeInclusive<usize> = 1 << 24..=1 << 28;

/// The cases of the grid.
pub fn grid() -> Vec<Case> {
    let shapes = EXTENTS.into_iter().flat_map(|outer| {
        EXTENTS
            .into_iter()
            .flat_map(move |len| EXTENTS.map(|inner| [outer, len, inner]))
    });
    let shapes: Vec<_> = shapes
        .filter(|shape| ELEMENTS.contains(&shape.iter().product()))
        .collect();
    [Operation::CUMSUM, Operation::AFFINE_SCAN]
        .into_iter()
        .flat_map(|operation| {
            let case = move |shape: &[usize; 3]| Case::new(operation, shape, 1);
            shapes.iter().map(case).collect::<Vec<_>>()
        })
        .map(|case| case.expect("the grid's shapes are measurable"))
        .collect()
}

/// Measures all choices of the cases, and tells which of those that the rules pick are slow, or not the fastest.
pub fn run(
    engine: &Engine,
    cases: &[Case],
    seed: u64,
    json: Option<&Path>,
    out: &mut dyn Write,
) -> Result<Outcome> {
    writeln!(
        out,
        "{} on the back end {} ({}), medians of a few runs; * is what the rules pick\n",
        cases[0].variation.dtype.name(),
        engine.backend().name(),
        engine.device_name(),
    )?;
    let table = table(cases);
    table.head(out)?;

    let mut groups: Vec<Vec<Case>> = Vec::new();
    for case in cases {
        if let Some(shortage) = shortage(engine, case)? {
            complain(format_args!("{}: left out: {shortage}", case.name));
            continue;
        }
        match groups
            .iter_mut()
            .find(|group| group[0].operation == case.operation)
        {
            Some(group) => group.push(case.clone()),
            None => groups.push(vec![case.clone()]),
        }
    }
    let mut outcome = Outcome::Good;
    let (mut rows, mut summary) = (Vec::new(), Summary::default());
    for group in &groups {
        sweep(engine, group, seed, |case, choice, measurement| {
            let check = &measurement.check;
            let verdict = if check.passed() { "" } else { " FAILED" };
            if !check.passed() {
                outcome = Outcome::Wrong;
            }
            let mark = if choice.is_picked { "*" } else { "" };
            let cells = [
                command_name(case.operation),
                Tuple(&case.shape).to_string(),
                case.axis.to_string(),
                format!("{}{mark}", choice.name),
                format::time(measurement.median),
                format!("{:.1}", measurement.gbps()),
                format!("{:.3}", measurement.of_copy()),
                format!("{:.1e}{verdict}", check.rel_error),
            ];
            table.row(out, cells)?;
            summary.add(case, choice.is_picked, measurement.of_copy());
            rows.push(Row::new(case, Some(choice), engine, measurement));
            Ok(())
        })?;
        write_json(json, &rows)?;
    }
    if rows.is_empty() {
        return Err(Failure::NothingRan);
    }
    summary.write(out)?;
    Ok(outcome)
}

fn table(cases: &[Case]) -> Table<8> {
    let [operation, shape, axis] = columns(cases);
    Table::new([
        operation,
        shape,
        axis,
        Column::left("strategy", "split columns*".len()),
        Column::right("median", 8),
        Column::right("GB/s", 6),
        Column::right("of copy", 0),
        Column::left("error", 0),
    ])
}

/// Shares of the copy's rate: of what the rules pick, and of the best there is.
#[derive(Default)]
struct Summary {
    cases: Vec<(String, f64, f64)>,
}

impl Summary {
    /// The first choice of a case is the one that the rules pick.
    fn add(&mut self, case: &Case, is_picked: bool, of_copy: f64) {
        match self.cases.last_mut() {
            Some((_, _, best)) if !is_picked => *best = best.max(of_copy),
            _ => self.cases.push((case.name.clone(), of_copy, of_copy)),
        }
    }

    fn write(&self, out: &mut dyn Write) -> Result<()> {
        /// As many of the slowest are told.
        const TOLD: usize = 5;
        /// What another choice has to gain to be told.
        const GAIN: f64 = 1.05;
        let mut slowest: Vec<_> = self.cases.iter().collect();
        slowest.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
        writeln!(out, "\nThe slowest that the rules pick:")?;
        for (name, picked, _) in slowest.into_iter().take(TOLD) {
            writeln!(out, "  {picked:.3}  {name}")?;
        }
        let better = self.cases.iter();
        let better: Vec<_> = better
            .filter(|(_, picked, best)| *best > GAIN * picked)
            .collect();
        writeln!(
            out,
            "Another choice is faster by more than 5 % in {} of {} cases:",
            better.len(),
            self.cases.len()
        )?;
        for (name, picked, best) in better {
            writeln!(out, "  {picked:.3} to {best:.3}  {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_all_shapes_of_its_sizes_for_both_operators() {
        let grid = grid();
        let (sums, affine) = grid.split_at(grid.len() / 2);
        for (sum, affine) in sums.iter().zip(affine) {
            assert_eq!(sum.operation, Operation::CUMSUM);
            assert_eq!(affine.operation, Operation::AFFINE_SCAN);
            assert_eq!(sum.shape, affine.shape);
            assert!((1 << 24..=1 << 28).contains(&sum.extents.elements()));
        }
        for shape in [[1, 4096, 4096], [65536, 4096, 1], [7, 65536, 64]] {
            assert!(sums.iter().any(|case| case.shape == shape), "{shape:?}");
        }
    }

    #[test]
    fn a_summary_tells_what_is_slow_and_what_would_be_faster() {
        let mut summary = Summary::default();
        let case = |len| Case::new(Operation::CUMSUM, &[len], 0).unwrap();
        for (len, is_picked, of_copy) in [
            (5, true, 0.9),
            (5, false, 0.92),
            (6, true, 0.5),
            (6, false, 0.75),
            (7, true, 1.0),
        ] {
            summary.add(&case(len), is_picked, of_copy);
        }
        let mut text = Vec::new();
        summary.write(&mut text).unwrap();
        let expected = "\nThe slowest that the rules pick:\n  0.500  cumsum (6,) axis 0\n  0.900  cumsum (5,) axis 0\n  \
                        1.000  cumsum (7,) axis 0\nAnother choice is faster by more than 5 % in 1 of 3 cases:\n  \
                        0.500 to 0.750  cumsum (6,) axis 0\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
