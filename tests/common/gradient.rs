//! Scans as gradients: db_t = dh_t + a_{t+1}·db_{t+1} is an affine scan of dh the other way. So all that is known of scans is known
//! of gradients too.

use super::{Backend, Call, Checked};
use ptxscan::{BackwardOptions, Direction, Engine, Extents, Operator, reference};

/// The arrays of a gradient whose db is a scan.
pub struct AsGradient<'a> {
    call: &'a Call<'a>,
    /// The direction of the scan that it is the gradient of.
    pub direction: Direction,
    a: Vec<f32>,
    h: Vec<f32>,
    dh: &'a [f32],
}

impl<'a> AsGradient<'a> {
    pub fn new(call: &'a Call<'a>) -> Checked<Self> {
        let extents = call.extents();
        let (gates, dh) = match *call.inputs {
            [x] => (None, x),
            [a, b] => (Some(a), b),
            _ => return Err("the operator takes other inputs".into()),
        };
        // The gate of the step that comes last is not used.
        let mut a = vec![f32::NAN; extents.elements()];
        for steps in sequences(call) {
            for pair in steps.windows(2) {
                a[pair[0]] = gates.map_or(1.0, |gates| gates[pair[1]]);
            }
        }
        let h = |i| match i % 101 {
            50 => f32::INFINITY,
            _ => (i % 13) as f32 - 6.0,
        };
        Ok(Self {
            call,
            direction: call.operation.direction.opposite(),
            a,
            h: (0..extents.elements()).map(h).collect(),
            dh,
        })
    }

    /// `[a, h, dh]`.
    pub fn inputs(&self) -> [&[f32]; 3] {
        [&self.a, &self.h, self.dh]
    }

    /// The result of the scan, after a check that da goes with it.
    pub fn result(&self, [da, db]: [Vec<f32>; 2]) -> Checked<Vec<f32>> {
        for steps in sequences(self.call) {
            for (t, &i) in steps.iter().enumerate() {
                let want = steps.get(t + 1).map_or(0.0, |&next| db[i] * self.h[next]);
                let got = da[i];
                if got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan()) {
                    return Err(format!("da[{i}] is {got:e}, expected {want:e}").into());
                }
            }
        }
        Ok(db)
    }
}

/// The elements of each sequence, in the order of the scan.
pub fn sequences(call: &Call) -> impl Iterator<Item = Vec<usize>> {
    let (extents, direction) = (call.extents(), call.operation.direction);
    (0..extents.outer)
        .flat_map(move |outer| (0..extents.inner).map(move |inner| (outer, inner)))
        .map(move |(outer, inner)| reference::steps(extents, direction, outer, inner).collect())
}

/// An engine that carries out scans as gradients.
pub struct ByGradient {
    pub engine: &'static Engine,
    pub depth: fn(Operator, Extents) -> usize,
}

impl Backend for ByGradient {
    fn run(&self, call: &Call, _: &[usize]) -> Checked<Vec<f32>> {
        let gradient = AsGradient::new(call)?;
        gradient.result(self.engine.affine_scan_backward(
            gradient.direction,
            gradient.inputs(),
            call.shape,
            call.axis,
            BackwardOptions::new(),
        )?)
    }

    fn depth(&self, operator: Operator, extents: Extents) -> usize {
        (self.depth)(operator, extents)
    }
}
