//! The kernels: name, parameters, instantiation. This is the one place that knows the order of a kernel's
//! arguments.

use crate::{
    arrays::Arrays,
    columns::scan_columns,
    direction::{Direction, Forward, Order, Reverse},
    monoid::{Action, Affine, Sum},
    rows::scan_rows,
    split_columns::scan_split_columns,
    split_rows::scan_split_rows,
    tiling::rows::subtiles,
};
use cuda_std::{Global, kernel};

/// The operator that joins the steps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The running sum of one input, `x`.
    Cumsum,
    /// The first-order linear recurrence `h ↦ a·h + b` of two inputs, `a` and `b`.
    AffineScan,
}

impl Operator {
    /// The names of the input tensors, in the order in which they are passed.
    #[must_use]
    pub const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Cumsum => &["x"],
            Self::AffineScan => &["a", "b"],
        }
    }

    /// How many input tensors the operator takes.
    #[must_use]
    pub const fn inputs(self) -> usize {
        self.arguments().len()
    }

    /// The name of the forward operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cumsum => "cumsum",
            Self::AffineScan => "affine_scan",
        }
    }
}

/// How sequences are scanned. Each takes the addresses of the inputs, the output, the initial and the final carries and the
/// scratch memory, then numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Steps are neighbours, a block scans a row: [`scan_rows`], with the numbers (rows, len, flags, options).
    Rows,
    /// Steps lie `inner` elements apart, a block scans a strip of channels: [`scan_columns`], with the numbers
    /// (outer, len, inner, stages, flags, options).
    Columns,
    /// Steps are neighbours, many blocks scan a row: [`scan_split_rows`], with the numbers (rows, len, options).
    SplitRows,
    /// Steps lie `inner` elements apart, many blocks scan a strip: [`scan_split_columns`], with the numbers
    /// (outer, len, inner, options).
    SplitColumns,
}

/// A kernel of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The name of its entry in the PTX, and of its function here.
    pub name: &'static str,
    /// What it scans.
    pub operator: Operator,
    /// From which end.
    pub direction: Direction,
    /// How it goes about it.
    pub strategy: Strategy,
    /// The name of the elements' type.
    pub element: &'static str,
    /// Its parameters, in order. Each is 64 bits: the address of an array, or a number.
    pub parameters: &'static [&'static str],
}

/// The kernel for an operator, a direction, a strategy, and a type of elements.
#[must_use]
pub fn find(
    operator: Operator,
    direction: Direction,
    strategy: Strategy,
    element: &str,
) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| {
        (kernel.operator, kernel.direction, kernel.strategy) == (operator, direction, strategy)
            && kernel.element == element
    })
}

macro_rules! kernels {
    ($($name:ident: $operator:ident $aggregate:ident<$element:ident> [$($input:ident)*] -> $output:ident, $order:ident, $strategy:ident;)*) => {
        /// All kernels.
        pub const KERNELS: &[Kernel] = &[$(Kernel {
            name: stringify!($name),
            operator: Operator::$operator,
            direction: <$order as Order>::DIRECTION,
            strategy: Strategy::$strategy,
            element: stringify!($element),
            parameters: kernels!(@parameters $strategy $($input)* $output initial last scratch),
        }),*];
        $(kernels!(@kernel $strategy $name: $operator $aggregate<$element> [$($input)*] -> $output, $order);)*
    };
    (@parameters Rows $($array:ident)*) => { &[$(stringify!($array),)* "rows", "len", "flags", "options"] };
    (@parameters Columns $($array:ident)*) => { &[$(stringify!($array),)* "outer", "len", "inner", "stages", "flags", "options"] };
    (@parameters SplitRows $($array:ident)*) => { &[$(stringify!($array),)* "rows", "len", "options"] };
    (@parameters SplitColumns $($array:ident)*) => { &[$(stringify!($array),)* "outer", "len", "inner", "options"] };
    (@kernel Rows $($rest:tt)*) => { kernels!(@kernel scan_rows(rows len flags options) [{ subtiles(INPUTS) }] $($rest)*); };
    (@kernel Columns $($rest:tt)*) => { kernels!(@kernel scan_columns(outer len inner stages flags options) [] $($rest)*); };
    (@kernel SplitRows $($rest:tt)*) => { kernels!(@kernel scan_split_rows(rows len options) [{ subtiles(INPUTS) }] $($rest)*); };
    (@kernel SplitColumns $($rest:tt)*) => { kernels!(@kernel scan_split_columns(outer len inner options) [] $($rest)*); };
    (@kernel $body:ident($($number:ident)*) [$($subtiles:tt)?] $name:ident: $operator:ident $aggregate:ident<$element:ident> [$($input:ident)*] -> $output:ident, $order:ident) => {
        #[doc = concat!("[`", stringify!($body), "`] of [`", stringify!($aggregate), "`], [`", stringify!($order), "`], ", stringify!($element), ".")]
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($body), "`].")]
        #[kernel]
        #[allow(clippy::too_many_arguments, reason = "a kernel has no other way to get them")]
        pub unsafe fn $name(
            $($input: Global<$element>,)*
            $output: Global<$element>,
            initial: Global<<$aggregate<$element> as Action>::Carry>,
            last: Global<<$aggregate<$element> as Action>::Carry>,
            scratch: Global<u64>,
            $($number: u64),*
        ) {
            const INPUTS: usize = Operator::$operator.inputs();
            let arrays = Arrays { inputs: [$($input),*], output: $output, initial, last, scratch };
            // SAFETY: the caller's obligations are the callee's.
            unsafe {
                $body::<$aggregate<$element>, $order, INPUTS $(, $subtiles)?>(&arrays, $($number),*);
            }
        }
    };
}

kernels! {
    cumsum_rows_f32: Cumsum Sum<f32> [x] -> y, Forward, Rows;
    cumsum_columns_f32: Cumsum Sum<f32> [x] -> y, Forward, Columns;
    cumsum_split_rows_f32: Cumsum Sum<f32> [x] -> y, Forward, SplitRows;
    cumsum_split_columns_f32: Cumsum Sum<f32> [x] -> y, Forward, SplitColumns;
    reverse_cumsum_rows_f32: Cumsum Sum<f32> [x] -> y, Reverse, Rows;
    reverse_cumsum_columns_f32: Cumsum Sum<f32> [x] -> y, Reverse, Columns;
    reverse_cumsum_split_rows_f32: Cumsum Sum<f32> [x] -> y, Reverse, SplitRows;
    reverse_cumsum_split_columns_f32: Cumsum Sum<f32> [x] -> y, Reverse, SplitColumns;
    affine_scan_rows_f32: AffineScan Affine<f32> [a b] -> h, Forward, Rows;
    affine_scan_columns_f32: AffineScan Affine<f32> [a b] -> h, Forward, Columns;
    affine_scan_split_rows_f32: AffineScan Affine<f32> [a b] -> h, Forward, SplitRows;
    affine_scan_split_columns_f32: AffineScan Affine<f32> [a b] -> h, Forward, SplitColumns;
    reverse_affine_scan_rows_f32: AffineScan Affine<f32> [a b] -> h, Reverse, Rows;
    reverse_affine_scan_columns_f32: AffineScan Affine<f32> [a b] -> h, Reverse, Columns;
    reverse_affine_scan_split_rows_f32: AffineScan Affine<f32> [a b] -> h, Reverse, SplitRows;
    reverse_affine_scan_split_columns_f32: AffineScan Affine<f32> [a b] -> h, Reverse, SplitColumns;
}
