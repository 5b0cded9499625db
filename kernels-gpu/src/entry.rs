//! The kernels: name, parameters, instantiation. This is the one place that knows the order of a kernel's
//! arguments.

use crate::{
    columns::scan_columns,
    direction::{Direction, Forward, Order, Reverse},
    monoid::{Affine, Sum},
    rows::scan_rows,
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

/// How a sequence lies in memory, and so which strategy scans it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Steps are neighbours: [`scan_rows`], with the arguments (inputs…, output, rows, len).
    Rows,
    /// Steps lie `inner` elements apart: [`scan_columns`], with the arguments (inputs…, output, outer, len, inner, stages).
    Columns,
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
    /// The layout that it is for.
    pub layout: Layout,
    /// The name of the elements' type.
    pub element: &'static str,
    /// Its parameters, in order. Each is 64 bits: the address of an array, or a number.
    pub parameters: &'static [&'static str],
}

/// The kernel for an operator, a direction, a layout, and a type of elements.
#[must_use]
pub fn find(
    operator: Operator,
    direction: Direction,
    layout: Layout,
    element: &str,
) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| {
        (kernel.operator, kernel.direction, kernel.layout) == (operator, direction, layout)
            && kernel.element == element
    })
}

macro_rules! kernels {
    ($($name:ident: $operator:ident $aggregate:ident<$element:ident> [$($input:ident)*] -> $output:ident, $order:ident, $layout:ident;)*) => {
        /// All kernels.
        pub const KERNELS: &[Kernel] = &[$(Kernel {
            name: stringify!($name),
            operator: Operator::$operator,
            direction: <$order as Order>::DIRECTION,
            layout: Layout::$layout,
            element: stringify!($element),
            parameters: kernels!(@parameters $layout $($input)* $output),
        }),*];
        $(kernels!(@kernel $layout $name: $operator $aggregate<$element> [$($input)*] -> $output, $order);)*
    };
    (@parameters Rows $($array:ident)*) => { &[$(stringify!($array),)* "rows", "len"] };
    (@parameters Columns $($array:ident)*) => { &[$(stringify!($array),)* "outer", "len", "inner", "stages"] };
    (@kernel Rows $name:ident: $operator:ident $aggregate:ident<$element:ident> [$($input:ident)*] -> $output:ident, $order:ident) => {
        /// [`scan_rows`] of
        #[doc = concat!("[`", stringify!($aggregate), "`], [`", stringify!($order), "`], ", stringify!($element), ".")]
        ///
        /// # Safety
        /// As [`scan_rows`].
        #[kernel]
        pub unsafe fn $name($($input: Global<$element>,)* $output: Global<$element>, rows: u64, len: u64) {
            const INPUTS: usize = Operator::$operator.inputs();
            // SAFETY: the caller's obligations are the callee's.
            unsafe {
                scan_rows::<$aggregate<$element>, $order, INPUTS, { subtiles(INPUTS) }>(
                    [$($input),*], $output, rows, len,
                );
            }
        }
    };
    (@kernel Columns $name:ident: $operator:ident $aggregate:ident<$element:ident> [$($input:ident)*] -> $output:ident, $order:ident) => {
        /// [`scan_columns`] of
        #[doc = concat!("[`", stringify!($aggregate), "`], [`", stringify!($order), "`], ", stringify!($element), ".")]
        ///
        /// # Safety
        /// As [`scan_columns`].
        #[kernel]
        pub unsafe fn $name($($input: Global<$element>,)* $output: Global<$element>, outer: u64, len: u64, inner: u64, stages: u64) {
            // SAFETY: the caller's obligations are the callee's.
            unsafe {
                scan_columns::<$aggregate<$element>, $order, { Operator::$operator.inputs() }>(
                    [$($input),*], $output, outer, len, inner, stages,
                );
            }
        }
    };
}

kernels! {
    cumsum_rows_f32: Cumsum Sum<f32> [x] -> y, Forward, Rows;
    reverse_cumsum_rows_f32: Cumsum Sum<f32> [x] -> y, Reverse, Rows;
    cumsum_columns_f32: Cumsum Sum<f32> [x] -> y, Forward, Columns;
    reverse_cumsum_columns_f32: Cumsum Sum<f32> [x] -> y, Reverse, Columns;
    affine_scan_rows_f32: AffineScan Affine<f32> [a b] -> h, Forward, Rows;
    reverse_affine_scan_rows_f32: AffineScan Affine<f32> [a b] -> h, Reverse, Rows;
    affine_scan_columns_f32: AffineScan Affine<f32> [a b] -> h, Forward, Columns;
    reverse_affine_scan_columns_f32: AffineScan Affine<f32> [a b] -> h, Reverse, Columns;
}
