//! The kernels: name, parameters, instantiation. This is the one place that knows the order of a kernel's
//! arguments.

use crate::{
    arrays::Arrays,
    columns::scan_columns,
    direction::{Direction, Forward, Order, Reverse},
    lanes::scan_lanes,
    layout::Layout,
    monoid::{Affine, Carry, Gradient, Restarting, Step, Sum},
    narrow::scan_narrow,
    rows::scan_rows,
    short_rows::scan_short_rows,
    split_columns::scan_split_columns,
    split_rows::scan_split_rows,
    tiling::{
        columns::lane_channels,
        lanes,
        rows::{subtiles, vector},
        short_rows, split_columns,
    },
};
use core::marker::PhantomData;
use cuda_std::{BF16, Complex32, F16, Global, kernel};

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

/// How sequences are scanned. Each takes the addresses of the inputs, the outputs, the initial states, the gradients of final states,
/// the carries after the sequences, the mask, the boundaries and the scratch memory, then numbers; with a mask, those of the inputs'
/// [layouts](crate::layout) come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Steps are neighbours, a block scans a row: [`scan_rows`], with the numbers (rows, len, flags, options).
    Rows,
    /// Steps lie `inner` elements apart, a block scans a strip of channels: [`scan_columns`], with the numbers
    /// (outer, len, inner, stages, flags, options).
    Columns,
    /// Steps lie `inner` elements apart, a lane scans its channels alone: [`scan_lanes`], with the numbers (outer, len, inner, options).
    Lanes,
    /// Steps are neighbours, some lanes scan a row: [`scan_short_rows`], with the numbers (rows, len, width, options).
    ShortRows,
    /// As [`Columns`](Self::Columns), of few channels: a block scans several tiles at once, [`scan_narrow`], with the numbers
    /// (outer, len, inner, stages, units, options).
    Narrow,
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
    /// Whether it is the gradient of that scan, which goes the other way.
    pub is_gradient: bool,
    /// How it goes about it.
    pub strategy: Strategy,
    /// Whether a mask says at which steps the scan starts afresh.
    pub is_masked: bool,
    /// The name of the elements' type.
    pub element: &'static str,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Bytes of an aggregate.
    pub aggregate_bytes: usize,
    /// Bytes of a carry.
    pub carry_bytes: usize,
    /// Its parameters, in order. Each is 64 bits: the address of an array, or a number.
    pub parameters: &'static [&'static str],
}

/// The kernel for an operator in a direction or the gradient of that, a strategy, a mask or none, and a type of elements.
#[must_use]
pub fn find(
    operator: Operator,
    direction: Direction,
    is_gradient: bool,
    strategy: Strategy,
    is_masked: bool,
    element: &str,
) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| {
        (kernel.operator, kernel.direction, kernel.is_gradient)
            == (operator, direction, is_gradient)
            && (kernel.strategy, kernel.is_masked, kernel.element) == (strategy, is_masked, element)
    })
}

/// The order in which steps `S` are taken, in a scan in order `D` or the gradient of one.
struct OrderOf<S, D>(PhantomData<(S, D)>);

impl<S: Step, D: Order> Order for OrderOf<S, D> {
    const DIRECTION: Direction = if S::IS_BACKWARD {
        D::DIRECTION.opposite()
    } else {
        D::DIRECTION
    };
}

/// The kernels of a type of elements: for each strategy and direction a function, and its line in the table. A line names the
/// strategy, whether there is a mask, the operator, the steps, the inputs, the outputs (else it is `out`), and the functions.
macro_rules! kernels {
    ($($element:ident $name:ident {
        $($strategy:ident $is_masked:tt $operator:ident $step:ty, [$($input:ident)*] $([$($output:ident)*])?, $forward:ident $reverse:ident;)*
    })*) => {
        /// All kernels.
        pub const KERNELS: &[Kernel] = &[$($(
            kernels!(@row [$($($output)*)?] [$($input)*] $element $name $strategy $is_masked $operator $step, Forward $forward),
            kernels!(@row [$($($output)*)?] [$($input)*] $element $name $strategy $is_masked $operator $step, Reverse $reverse),
        )*)*];
        $($(
            kernels!(@kernel [$($($output)*)?] [$($input)*] $element $strategy $is_masked $step, Forward $forward);
            kernels!(@kernel [$($($output)*)?] [$($input)*] $element $strategy $is_masked $step, Reverse $reverse);
        )*)*

        /// Calls the kernel of that name, with an array for each of its parameters that is one, each of them a [`Global`], and the
        /// numbers.
        ///
        /// # Panics
        /// If the arrays are not of the kernel's types.
        ///
        /// # Safety
        /// As the kernel's.
        #[cfg(not(target_arch = "nvptx64"))]
        pub unsafe fn call(kernel: &Kernel, arrays: &[&dyn core::any::Any], numbers: &[u64]) {
            match kernel.name {
                $($(
                    stringify!($forward) => kernels!(@call [$($($output)*)?] [$($input)*] $element $strategy $is_masked $forward, arrays, numbers),
                    stringify!($reverse) => kernels!(@call [$($($output)*)?] [$($input)*] $element $strategy $is_masked $reverse, arrays, numbers),
                )*)*
                name => panic!("{name} is not a kernel"),
            }
        }
    };
    // The output where none is named.
    (@$rule:ident [] $($rest:tt)*) => { kernels! { @$rule [out] $($rest)* } };
    (@row $outputs:tt $inputs:tt $element:ident $name:ident $strategy:ident $is_masked:tt $operator:ident $step:ty, $order:ident $function:ident) => {
        Kernel {
            name: stringify!($function),
            operator: Operator::$operator,
            direction: <$order as Order>::DIRECTION,
            is_gradient: <$step as Step>::IS_BACKWARD,
            strategy: Strategy::$strategy,
            is_masked: $is_masked,
            element: stringify!($name),
            element_bytes: size_of::<$element>(),
            aggregate_bytes: size_of::<<$step as Step>::Aggregate>(),
            carry_bytes: size_of::<Carry<$step>>(),
            parameters: kernels!(@numbers $strategy $is_masked parameters $outputs $inputs),
        }
    };
    (@call $outputs:tt $inputs:tt $element:ident $strategy:ident $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers $strategy $is_masked pass $outputs $inputs $element $($rest)*)
    };
    // The numbers of a strategy, in order, given to another rule.
    (@numbers Rows $($rest:tt)*) => { kernels! { @layouts (rows len flags options) $($rest)* } };
    (@numbers Columns $($rest:tt)*) => { kernels! { @layouts (outer len inner stages flags options) $($rest)* } };
    (@numbers Lanes false $rule:ident $($rest:tt)*) => { kernels! { @$rule (outer len inner options) () $($rest)* } };
    (@numbers ShortRows false $rule:ident $($rest:tt)*) => { kernels! { @$rule (rows len width options) () $($rest)* } };
    (@numbers Narrow false $rule:ident $($rest:tt)*) => { kernels! { @$rule (outer len inner stages units options) () $($rest)* } };
    (@numbers SplitRows false $rule:ident $($rest:tt)*) => { kernels! { @$rule (rows len options) () $($rest)* } };
    (@numbers SplitColumns false $rule:ident $($rest:tt)*) => { kernels! { @$rule (outer len inner options) () $($rest)* } };
    // Those of layouts: with a mask, of `MOST_INPUTS` of them.
    (@layouts $numbers:tt false $rule:ident $($rest:tt)*) => { kernels! { @$rule $numbers ([]) $($rest)* } };
    (@layouts $numbers:tt true $rule:ident $($rest:tt)*) => {
        kernels! {
            @$rule $numbers ([
                offset_0 outer_0 step_0 channel_0 offset_1 outer_1 step_1 channel_1 offset_2 outer_2 step_2 channel_2
            ]) $($rest)*
        }
    };
    (@parameters ($($number:ident)*) ($([$($layout:ident)*])?) [$($output:ident)*] [$($input:ident)*]) => {
        &[
            $(stringify!($input),)* $(stringify!($output),)*
            "initial", "d_final", "last", "mask", "boundaries", "scratch",
            $(stringify!($number),)* $($(stringify!($layout)),*)?
        ]
    };
    (@kernel $outputs:tt $inputs:tt $element:ident Rows $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers Rows $is_masked function $outputs $inputs $element scan_rows [OUTPUTS] [{ subtiles(INPUTS, size_of::<$element>()) }] [] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident Columns $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers Columns $is_masked function $outputs $inputs $element scan_columns [OUTPUTS] [] [{ lane_channels(size_of::<$element>()) }] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident Lanes $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers Lanes $is_masked function $outputs $inputs $element scan_lanes [OUTPUTS] [] [{ lanes::channels(size_of::<$element>()) }] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident ShortRows $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers ShortRows $is_masked function $outputs $inputs $element scan_short_rows [] [{ short_rows::subtiles(INPUTS, size_of::<$element>()) }] [] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident Narrow $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers Narrow $is_masked function $outputs $inputs $element scan_narrow [OUTPUTS] [] [{ lane_channels(size_of::<$element>()) }] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident SplitRows $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers SplitRows $is_masked function $outputs $inputs $element scan_split_rows [] [{ subtiles(INPUTS, size_of::<$element>()) }] [] $($rest)*);
    };
    (@kernel $outputs:tt $inputs:tt $element:ident SplitColumns $is_masked:tt $($rest:tt)*) => {
        kernels!(@numbers SplitColumns $is_masked function $outputs $inputs $element scan_split_columns [OUTPUTS] [] [{ split_columns::lane_channels(INPUTS, size_of::<$element>()) }] $($rest)*);
    };
    (@function ($($number:ident)*) ($([$($layout:ident)*])?) [$($output:ident)*] [$($input:ident)*] $element:ident $body:ident [$($outputs:tt)?] [$($subtiles:tt)?] [$($channels:tt)?] $step:ty, $order:ident $name:ident) => {
        #[doc = concat!("[`", stringify!($body), "`] of `", stringify!($step), "`, [`", stringify!($order), "`], elements ", stringify!($element), ".")]
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($body), "`].")]
        #[kernel]
        #[allow(clippy::too_many_arguments, reason = "a kernel has no other way to get them")]
        pub unsafe fn $name(
            $($input: Global<$element>,)*
            $($output: Global<$element>,)*
            initial: Global<Carry<$step>>,
            d_final: Global<Carry<$step>>,
            last: Global<Carry<$step>>,
            mask: Global<u8>,
            boundaries: Global<u64>,
            scratch: Global<u64>,
            $($number: u64,)*
            $($($layout: u64),*)?
        ) {
            const INPUTS: usize = [$(stringify!($input)),*].len();
            const OUTPUTS: usize = [$(stringify!($output)),*].len();
            let arrays: Arrays<_, _, INPUTS, OUTPUTS> = Arrays {
                inputs: [$($input),*],
                outputs: [$($output),*],
                initial, d_final, last, mask, boundaries, scratch,
            };
            // SAFETY: the caller's obligations are the callee's.
            unsafe {
                $body::<$step, $element, OrderOf<$step, $order>, INPUTS, $($outputs,)? $($subtiles,)? { vector(size_of::<$element>()) } $(, $channels)?>(&arrays, $($number),* $(, Layout::all([$($layout),*]))?);
            }
        }
    };
    (@pass ($($number:ident)*) ($([$($layout:ident)*])?) [$($output:ident)*] [$($input:ident)*] $element:ident $name:ident, $arrays:ident, $numbers:ident) => {{
        let (&[$($input,)* $($output,)* initial, d_final, last, mask, boundaries, scratch], &[$($number,)* $($($layout),*)?]) = ($arrays, $numbers) else {
            panic!("{} takes other parameters", stringify!($name));
        };
        // SAFETY: the caller's obligations are the kernel's.
        unsafe {
            $name(
                $(view::<$element>($input),)*
                $(view::<$element>($output),)*
                view(initial),
                view(d_final),
                view(last),
                view(mask),
                view(boundaries),
                view(scratch),
                $($number,)*
                $($($layout),*)?
            );
        }
    }};
}

/// An array as the type that a kernel takes.
#[cfg(not(target_arch = "nvptx64"))]
fn view<T: cuda_std::Scalar>(array: &dyn core::any::Any) -> Global<T> {
    let Some(&view) = array.downcast_ref::<Global<T>>() else {
        panic!("an array is not of {}", core::any::type_name::<T>());
    };
    view
}

kernels! {
    f32 f32 {
        Rows false Cumsum Sum<f32>, [x], cumsum_rows_f32 reverse_cumsum_rows_f32;
        ShortRows false Cumsum Sum<f32>, [x], cumsum_short_rows_f32 reverse_cumsum_short_rows_f32;
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_f32 reverse_cumsum_columns_f32;
        Lanes false Cumsum Sum<f32>, [x], cumsum_lanes_f32 reverse_cumsum_lanes_f32;
        Narrow false Cumsum Sum<f32>, [x], cumsum_narrow_f32 reverse_cumsum_narrow_f32;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_f32 reverse_cumsum_split_rows_f32;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_f32 reverse_cumsum_split_columns_f32;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_f32 reverse_cumsum_masked_rows_f32;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_f32 reverse_cumsum_masked_columns_f32;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_f32 reverse_affine_scan_rows_f32;
        ShortRows false AffineScan Affine<f32>, [a b], affine_scan_short_rows_f32 reverse_affine_scan_short_rows_f32;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_f32 reverse_affine_scan_columns_f32;
        Lanes false AffineScan Affine<f32>, [a b], affine_scan_lanes_f32 reverse_affine_scan_lanes_f32;
        Narrow false AffineScan Affine<f32>, [a b], affine_scan_narrow_f32 reverse_affine_scan_narrow_f32;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_f32 reverse_affine_scan_split_rows_f32;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_f32 reverse_affine_scan_split_columns_f32;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_f32 reverse_affine_scan_masked_rows_f32;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_f32 reverse_affine_scan_masked_columns_f32;
        Rows false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_rows_f32 reverse_affine_scan_backward_rows_f32;
        Columns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_columns_f32 reverse_affine_scan_backward_columns_f32;
        SplitColumns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_split_columns_f32 reverse_affine_scan_backward_split_columns_f32;
        Rows true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_rows_f32 reverse_affine_scan_backward_masked_rows_f32;
        Columns true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_columns_f32 reverse_affine_scan_backward_masked_columns_f32;
    }
    f64 f64 {
        Rows false Cumsum Sum<f64>, [x], cumsum_rows_f64 reverse_cumsum_rows_f64;
        ShortRows false Cumsum Sum<f64>, [x], cumsum_short_rows_f64 reverse_cumsum_short_rows_f64;
        Columns false Cumsum Sum<f64>, [x], cumsum_columns_f64 reverse_cumsum_columns_f64;
        Lanes false Cumsum Sum<f64>, [x], cumsum_lanes_f64 reverse_cumsum_lanes_f64;
        Narrow false Cumsum Sum<f64>, [x], cumsum_narrow_f64 reverse_cumsum_narrow_f64;
        SplitRows false Cumsum Sum<f64>, [x], cumsum_split_rows_f64 reverse_cumsum_split_rows_f64;
        SplitColumns false Cumsum Sum<f64>, [x], cumsum_split_columns_f64 reverse_cumsum_split_columns_f64;
        Rows true Cumsum Restarting<Sum<f64>>, [x], cumsum_masked_rows_f64 reverse_cumsum_masked_rows_f64;
        Columns true Cumsum Restarting<Sum<f64>>, [x], cumsum_masked_columns_f64 reverse_cumsum_masked_columns_f64;
        Rows false AffineScan Affine<f64>, [a b], affine_scan_rows_f64 reverse_affine_scan_rows_f64;
        ShortRows false AffineScan Affine<f64>, [a b], affine_scan_short_rows_f64 reverse_affine_scan_short_rows_f64;
        Columns false AffineScan Affine<f64>, [a b], affine_scan_columns_f64 reverse_affine_scan_columns_f64;
        Lanes false AffineScan Affine<f64>, [a b], affine_scan_lanes_f64 reverse_affine_scan_lanes_f64;
        Narrow false AffineScan Affine<f64>, [a b], affine_scan_narrow_f64 reverse_affine_scan_narrow_f64;
        SplitRows false AffineScan Affine<f64>, [a b], affine_scan_split_rows_f64 reverse_affine_scan_split_rows_f64;
        SplitColumns false AffineScan Affine<f64>, [a b], affine_scan_split_columns_f64 reverse_affine_scan_split_columns_f64;
        Rows true AffineScan Restarting<Affine<f64>>, [a b], affine_scan_masked_rows_f64 reverse_affine_scan_masked_rows_f64;
        Columns true AffineScan Restarting<Affine<f64>>, [a b], affine_scan_masked_columns_f64 reverse_affine_scan_masked_columns_f64;
        Rows false AffineScan Gradient<f64>, [a h dh] [da db], affine_scan_backward_rows_f64 reverse_affine_scan_backward_rows_f64;
        Columns false AffineScan Gradient<f64>, [a h dh] [da db], affine_scan_backward_columns_f64 reverse_affine_scan_backward_columns_f64;
        SplitColumns false AffineScan Gradient<f64>, [a h dh] [da db], affine_scan_backward_split_columns_f64 reverse_affine_scan_backward_split_columns_f64;
        Rows true AffineScan Restarting<Gradient<f64>>, [a h dh] [da db], affine_scan_backward_masked_rows_f64 reverse_affine_scan_backward_masked_rows_f64;
        Columns true AffineScan Restarting<Gradient<f64>>, [a h dh] [da db], affine_scan_backward_masked_columns_f64 reverse_affine_scan_backward_masked_columns_f64;
    }
    F16 f16 {
        Rows false Cumsum Sum<f32>, [x], cumsum_rows_f16 reverse_cumsum_rows_f16;
        ShortRows false Cumsum Sum<f32>, [x], cumsum_short_rows_f16 reverse_cumsum_short_rows_f16;
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_f16 reverse_cumsum_columns_f16;
        Lanes false Cumsum Sum<f32>, [x], cumsum_lanes_f16 reverse_cumsum_lanes_f16;
        Narrow false Cumsum Sum<f32>, [x], cumsum_narrow_f16 reverse_cumsum_narrow_f16;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_f16 reverse_cumsum_split_rows_f16;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_f16 reverse_cumsum_split_columns_f16;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_f16 reverse_cumsum_masked_rows_f16;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_f16 reverse_cumsum_masked_columns_f16;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_f16 reverse_affine_scan_rows_f16;
        ShortRows false AffineScan Affine<f32>, [a b], affine_scan_short_rows_f16 reverse_affine_scan_short_rows_f16;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_f16 reverse_affine_scan_columns_f16;
        Lanes false AffineScan Affine<f32>, [a b], affine_scan_lanes_f16 reverse_affine_scan_lanes_f16;
        Narrow false AffineScan Affine<f32>, [a b], affine_scan_narrow_f16 reverse_affine_scan_narrow_f16;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_f16 reverse_affine_scan_split_rows_f16;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_f16 reverse_affine_scan_split_columns_f16;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_f16 reverse_affine_scan_masked_rows_f16;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_f16 reverse_affine_scan_masked_columns_f16;
        Rows false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_rows_f16 reverse_affine_scan_backward_rows_f16;
        Columns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_columns_f16 reverse_affine_scan_backward_columns_f16;
        SplitColumns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_split_columns_f16 reverse_affine_scan_backward_split_columns_f16;
        Rows true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_rows_f16 reverse_affine_scan_backward_masked_rows_f16;
        Columns true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_columns_f16 reverse_affine_scan_backward_masked_columns_f16;
    }
    BF16 bf16 {
        Rows false Cumsum Sum<f32>, [x], cumsum_rows_bf16 reverse_cumsum_rows_bf16;
        ShortRows false Cumsum Sum<f32>, [x], cumsum_short_rows_bf16 reverse_cumsum_short_rows_bf16;
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_bf16 reverse_cumsum_columns_bf16;
        Lanes false Cumsum Sum<f32>, [x], cumsum_lanes_bf16 reverse_cumsum_lanes_bf16;
        Narrow false Cumsum Sum<f32>, [x], cumsum_narrow_bf16 reverse_cumsum_narrow_bf16;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_bf16 reverse_cumsum_split_rows_bf16;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_bf16 reverse_cumsum_split_columns_bf16;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_bf16 reverse_cumsum_masked_rows_bf16;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_bf16 reverse_cumsum_masked_columns_bf16;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_bf16 reverse_affine_scan_rows_bf16;
        ShortRows false AffineScan Affine<f32>, [a b], affine_scan_short_rows_bf16 reverse_affine_scan_short_rows_bf16;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_bf16 reverse_affine_scan_columns_bf16;
        Lanes false AffineScan Affine<f32>, [a b], affine_scan_lanes_bf16 reverse_affine_scan_lanes_bf16;
        Narrow false AffineScan Affine<f32>, [a b], affine_scan_narrow_bf16 reverse_affine_scan_narrow_bf16;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_bf16 reverse_affine_scan_split_rows_bf16;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_bf16 reverse_affine_scan_split_columns_bf16;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_bf16 reverse_affine_scan_masked_rows_bf16;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_bf16 reverse_affine_scan_masked_columns_bf16;
        Rows false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_rows_bf16 reverse_affine_scan_backward_rows_bf16;
        Columns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_columns_bf16 reverse_affine_scan_backward_columns_bf16;
        SplitColumns false AffineScan Gradient<f32>, [a h dh] [da db], affine_scan_backward_split_columns_bf16 reverse_affine_scan_backward_split_columns_bf16;
        Rows true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_rows_bf16 reverse_affine_scan_backward_masked_rows_bf16;
        Columns true AffineScan Restarting<Gradient<f32>>, [a h dh] [da db], affine_scan_backward_masked_columns_bf16 reverse_affine_scan_backward_masked_columns_bf16;
    }
    i32 i32 {
        Rows false Cumsum Sum<i32>, [x], cumsum_rows_i32 reverse_cumsum_rows_i32;
        ShortRows false Cumsum Sum<i32>, [x], cumsum_short_rows_i32 reverse_cumsum_short_rows_i32;
        Columns false Cumsum Sum<i32>, [x], cumsum_columns_i32 reverse_cumsum_columns_i32;
        Lanes false Cumsum Sum<i32>, [x], cumsum_lanes_i32 reverse_cumsum_lanes_i32;
        Narrow false Cumsum Sum<i32>, [x], cumsum_narrow_i32 reverse_cumsum_narrow_i32;
        SplitRows false Cumsum Sum<i32>, [x], cumsum_split_rows_i32 reverse_cumsum_split_rows_i32;
        SplitColumns false Cumsum Sum<i32>, [x], cumsum_split_columns_i32 reverse_cumsum_split_columns_i32;
        Rows true Cumsum Restarting<Sum<i32>>, [x], cumsum_masked_rows_i32 reverse_cumsum_masked_rows_i32;
        Columns true Cumsum Restarting<Sum<i32>>, [x], cumsum_masked_columns_i32 reverse_cumsum_masked_columns_i32;
    }
    i64 i64 {
        Rows false Cumsum Sum<i64>, [x], cumsum_rows_i64 reverse_cumsum_rows_i64;
        ShortRows false Cumsum Sum<i64>, [x], cumsum_short_rows_i64 reverse_cumsum_short_rows_i64;
        Columns false Cumsum Sum<i64>, [x], cumsum_columns_i64 reverse_cumsum_columns_i64;
        Lanes false Cumsum Sum<i64>, [x], cumsum_lanes_i64 reverse_cumsum_lanes_i64;
        Narrow false Cumsum Sum<i64>, [x], cumsum_narrow_i64 reverse_cumsum_narrow_i64;
        SplitRows false Cumsum Sum<i64>, [x], cumsum_split_rows_i64 reverse_cumsum_split_rows_i64;
        SplitColumns false Cumsum Sum<i64>, [x], cumsum_split_columns_i64 reverse_cumsum_split_columns_i64;
        Rows true Cumsum Restarting<Sum<i64>>, [x], cumsum_masked_rows_i64 reverse_cumsum_masked_rows_i64;
        Columns true Cumsum Restarting<Sum<i64>>, [x], cumsum_masked_columns_i64 reverse_cumsum_masked_columns_i64;
    }
    Complex32 c64 {
        Rows false Cumsum Sum<Complex32>, [x], cumsum_rows_c64 reverse_cumsum_rows_c64;
        ShortRows false Cumsum Sum<Complex32>, [x], cumsum_short_rows_c64 reverse_cumsum_short_rows_c64;
        Columns false Cumsum Sum<Complex32>, [x], cumsum_columns_c64 reverse_cumsum_columns_c64;
        Lanes false Cumsum Sum<Complex32>, [x], cumsum_lanes_c64 reverse_cumsum_lanes_c64;
        Narrow false Cumsum Sum<Complex32>, [x], cumsum_narrow_c64 reverse_cumsum_narrow_c64;
        SplitRows false Cumsum Sum<Complex32>, [x], cumsum_split_rows_c64 reverse_cumsum_split_rows_c64;
        SplitColumns false Cumsum Sum<Complex32>, [x], cumsum_split_columns_c64 reverse_cumsum_split_columns_c64;
        Rows true Cumsum Restarting<Sum<Complex32>>, [x], cumsum_masked_rows_c64 reverse_cumsum_masked_rows_c64;
        Columns true Cumsum Restarting<Sum<Complex32>>, [x], cumsum_masked_columns_c64 reverse_cumsum_masked_columns_c64;
        Rows false AffineScan Affine<Complex32>, [a b], affine_scan_rows_c64 reverse_affine_scan_rows_c64;
        ShortRows false AffineScan Affine<Complex32>, [a b], affine_scan_short_rows_c64 reverse_affine_scan_short_rows_c64;
        Columns false AffineScan Affine<Complex32>, [a b], affine_scan_columns_c64 reverse_affine_scan_columns_c64;
        Lanes false AffineScan Affine<Complex32>, [a b], affine_scan_lanes_c64 reverse_affine_scan_lanes_c64;
        Narrow false AffineScan Affine<Complex32>, [a b], affine_scan_narrow_c64 reverse_affine_scan_narrow_c64;
        SplitRows false AffineScan Affine<Complex32>, [a b], affine_scan_split_rows_c64 reverse_affine_scan_split_rows_c64;
        SplitColumns false AffineScan Affine<Complex32>, [a b], affine_scan_split_columns_c64 reverse_affine_scan_split_columns_c64;
        Rows true AffineScan Restarting<Affine<Complex32>>, [a b], affine_scan_masked_rows_c64 reverse_affine_scan_masked_rows_c64;
        Columns true AffineScan Restarting<Affine<Complex32>>, [a b], affine_scan_masked_columns_c64 reverse_affine_scan_masked_columns_c64;
        Rows false AffineScan Gradient<Complex32>, [a h dh] [da db], affine_scan_backward_rows_c64 reverse_affine_scan_backward_rows_c64;
        Columns false AffineScan Gradient<Complex32>, [a h dh] [da db], affine_scan_backward_columns_c64 reverse_affine_scan_backward_columns_c64;
        SplitColumns false AffineScan Gradient<Complex32>, [a h dh] [da db], affine_scan_backward_split_columns_c64 reverse_affine_scan_backward_split_columns_c64;
        Rows true AffineScan Restarting<Gradient<Complex32>>, [a h dh] [da db], affine_scan_backward_masked_rows_c64 reverse_affine_scan_backward_masked_rows_c64;
        Columns true AffineScan Restarting<Gradient<Complex32>>, [a h dh] [da db], affine_scan_backward_masked_columns_c64 reverse_affine_scan_backward_masked_columns_c64;
    }
}
