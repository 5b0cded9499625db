//! What can be computed: an operator and the direction it runs in.

use std::fmt;

pub use ptxscan_kernels::direction::Direction;
pub use ptxscan_kernels::entry::Operator;

/// An inclusive scan: an operator in a direction.
///
/// In reverse, an operation is the forward one of the reversed sequence, with its result reversed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Operation {
    /// The operator.
    pub operator: Operator,
    /// The direction.
    pub direction: Direction,
}

impl Operation {
    /// `y_j = Σ_{k≤j} x_k`.
    pub const CUMSUM: Self = Self::new(Operator::Cumsum, Direction::Forward);
    /// `y_j = Σ_{k≥j} x_k`, the inclusive suffix sum.
    pub const REVERSE_CUMSUM: Self = Self::new(Operator::Cumsum, Direction::Reverse);
    /// `h_0 = b_0`, `h_t = a_t·h_{t−1} + b_t`.
    pub const AFFINE_SCAN: Self = Self::new(Operator::AffineScan, Direction::Forward);
    /// `h_{L−1} = b_{L−1}`, `h_t = a_t·h_{t+1} + b_t`.
    pub const REVERSE_AFFINE_SCAN: Self = Self::new(Operator::AffineScan, Direction::Reverse);

    /// `operator`, run in `direction`.
    pub const fn new(operator: Operator, direction: Direction) -> Self {
        Self {
            operator,
            direction,
        }
    }

    /// The operation's name, as in errors and in the names of methods.
    pub const fn name(self) -> &'static str {
        match (self.operator, self.direction) {
            (operator, Direction::Forward) => operator.name(),
            (Operator::Cumsum, Direction::Reverse) => "reverse_cumsum",
            (Operator::AffineScan, Direction::Reverse) => "reverse_affine_scan",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments() {
        let names = [
            (Operation::CUMSUM, "cumsum", 1),
            (Operation::REVERSE_CUMSUM, "reverse_cumsum", 1),
            (Operation::AFFINE_SCAN, "affine_scan", 2),
            (Operation::REVERSE_AFFINE_SCAN, "reverse_affine_scan", 2),
        ];
        for (operation, name, inputs) in names {
            assert_eq!(operation.name(), name);
            assert_eq!(format!("{operation:>20}"), format!("{name:>20}"));
            assert_eq!(operation.operator.inputs(), inputs);
        }
    }
}
