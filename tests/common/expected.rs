//! What is expected of a scan: the recurrence step by step, and how far a result may be from it.

use super::{Call, Checked};
use ptxscan::{Extents, Operator, reference};
use ptxscan_kernels::tiling::{columns, rows};
use std::fmt::Display;

/// The recurrence after some step.
#[derive(Clone, Copy)]
pub struct State {
    /// As f32 computes it, a step after the other. Where this is not finite, a result is to be the same.
    pub serial: f32,
    /// As f64 computes it.
    pub exact: f64,
    /// Σ |b_s · Π a_r|: the magnitudes of what is summed up.
    magnitude: f64,
    /// How far a result may be from `exact`.
    pub bound: f64,
}

/// How exact results are to be.
#[derive(Clone, Copy)]
pub enum Accuracy {
    /// To the last bit: nothing is rounded, in whatever order it is computed.
    Exact,
    /// Each element goes through so many additions on its way to a result, at most.
    Depth(usize),
}

/// The recurrence after each step of each sequence, in memory order.
///
/// The bound: h_t = Σ_{s≤t} (Π_{s<r≤t} a_r) · b_s, in whatever order the steps are composed. To a term of
/// the sum, each factor a_r brings one rounded multiplication, t − s of them, and each addition that it takes
/// part in, at most `depth` of them, one rounding more. (A fused multiplication and addition is one of both.)
/// With the unit roundoff u = 2⁻²⁴ the computed sum is so Σ term · (1 + δ), |δ| ≤ (depth + t − s) · u to first order;
/// the bound is the sum of |term| · (depth + t − s) · u. For a sum all factors are 1, and bring no
/// rounding. (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapter 3.)
pub fn expected(call: &Call, accuracy: Accuracy) -> Vec<State> {
    const UNIT_ROUNDOFF: f64 = 1.0 / (1 << 24) as f64;
    let (operator, extents) = (call.operation.operator, call.extents());
    let (per_addition, per_factor) = match (accuracy, operator) {
        (Accuracy::Exact, _) => (0.0, 0.0),
        (Accuracy::Depth(depth), Operator::Cumsum) => (depth as f64 * UNIT_ROUNDOFF, 0.0),
        (Accuracy::Depth(depth), Operator::AffineScan) => {
            (depth as f64 * UNIT_ROUNDOFF, UNIT_ROUNDOFF)
        }
    };
    let start = State {
        serial: f32::NAN,
        exact: f64::NAN,
        magnitude: f64::NAN,
        bound: f64::NAN,
    };
    let mut states = vec![start; extents.elements()];
    for outer in 0..extents.outer {
        for inner in 0..extents.inner {
            let mut before: Option<State> = None;
            for i in reference::steps(extents, call.operation.direction, outer, inner) {
                let (a, b) = match call.inputs {
                    [x] => (1.0, x[i]),
                    [a, b] => (a[i], b[i]),
                    _ => unreachable!("no operator has more inputs"),
                };
                let (wide_a, wide_b) = (f64::from(a), f64::from(b));
                let after = match before {
                    None => State {
                        serial: b,
                        exact: wide_b,
                        magnitude: wide_b.abs(),
                        bound: per_addition * wide_b.abs(),
                    },
                    Some(h) => State {
                        serial: a * h.serial + b,
                        exact: wide_a * h.exact + wide_b,
                        magnitude: wide_a.abs() * h.magnitude + wide_b.abs(),
                        bound: wide_a.abs() * (h.bound + per_factor * h.magnitude)
                            + per_addition * wide_b.abs(),
                    },
                };
                states[i] = after;
                before = Some(after);
            }
        }
    }
    states
}

/// How many additions the kernels take an element through on its way to a result, at most.
pub fn kernel_depth(operator: Operator, extents: Extents) -> usize {
    let Extents { len, inner, .. } = extents;
    // A group's tiles, a carry for each group, and one into a tile.
    let across = |tiles: usize, group: usize| tiles.min(group) + tiles.div_ceil(group) + 1;
    if inner == 1 {
        use rows::{subtiles, vector, warp_items, warps};
        const BYTES: usize = size_of::<f32>();
        let inputs = operator.inputs();
        let (k, log2_lanes) = (subtiles(inputs, BYTES), 5);
        // Up: its vector, its warp's lanes, subtiles, the block's warps. Down: to a warp's carry, a subtile's, a lane's, and
        // through a vector.
        let up = (vector(BYTES) - 1) + log2_lanes + (k - 1) + log2_lanes;
        let tile = warps(inputs, BYTES, len) * warp_items(inputs, BYTES);
        let across = across(len.div_ceil(tile), rows::GROUP);
        up + across + 1 + k + 1 + vector(BYTES)
    } else {
        use columns::{STEPS, TILE, WARPS};
        // Up: its thread's steps, the channel's warps. Down: to a thread's carry, and through its steps.
        (STEPS - 1) + WARPS + across(len.div_ceil(TILE), columns::GROUP) + 1 + STEPS
    }
}

/// Compares the results of a call with what is expected; the message names `context` and the first difference.
pub fn compare(call: &Call, got: &[f32], accuracy: Accuracy, context: &dyn Display) -> Checked {
    let states = expected(call, accuracy);
    if got.len() != states.len() {
        let (got, expected) = (got.len(), states.len());
        return Err(format!(
            "{}: {context}: {got} elements, expected {expected}",
            call.operation
        )
        .into());
    }
    let is_right = |got: f32, state: &State| {
        let State {
            serial,
            exact,
            bound,
            ..
        } = *state;
        match accuracy {
            _ if serial.is_nan() => got.is_nan(),
            _ if serial.is_infinite() => got == serial,
            Accuracy::Exact => {
                assert_eq!(
                    f64::from(serial),
                    exact,
                    "{context}: the data are to need no rounding"
                );
                got == serial
            }
            Accuracy::Depth(_) => approx::abs_diff_eq!(f64::from(got), exact, epsilon = bound),
        }
    };
    let mut wrong = (0..)
        .zip(got.iter().zip(&states))
        .filter(|(_, (got, state))| !is_right(**got, state));
    let Some((i, (got, state))) = wrong.next() else {
        return Ok(());
    };
    let Extents { len, inner, .. } = call.extents();
    let State {
        serial,
        exact,
        bound,
        ..
    } = state;
    Err(format!(
        "{}: {context}: element {i} (outer {}, step {}, inner {}) is {got:e}, expected {exact:e} ± {bound:e} \
         (serial f32: {serial:e}); {} more are wrong",
        call.operation,
        i / inner / len,
        i / inner % len,
        i % inner,
        wrong.count(),
    )
    .into())
}
