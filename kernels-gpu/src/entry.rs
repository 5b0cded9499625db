//! The kernels: name, parameters, instantiation. This is the one place that knows the order of a kernel's
//! arguments.

use crate::{
    arrays::Arrays,
    columns::scan_columns,
    direction::{Direction, Forward, Order, Reverse},
    monoid::{Action, Affine, Restarting, Sum},
    rows::scan_rows,
    split_columns::scan_split_columns,
    split_rows::scan_split_rows,
    tiling::{
        columns::lane_channels,
        rows::{subtiles, vector},
    },
};
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

/// How sequences are scanned. Each takes the addresses of the inputs, the output, the initial and the final carries, the mask, the
/// boundaries and the scratch memory, then numbers.
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

/// The kernel for an operator, a direction, a strategy, a mask or none, and a type of elements.
#[must_use]
pub fn find(
    operator: Operator,
    direction: Direction,
    strategy: Strategy,
    is_masked: bool,
    element: &str,
) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| {
        (kernel.operator, kernel.direction, kernel.strategy) == (operator, direction, strategy)
            && (kernel.is_masked, kernel.element) == (is_masked, element)
    })
}

/// The kernels of a type of elements: for each strategy and direction a function, and its line in the table.
macro_rules! kernels {
    ($($element:ident $name:ident {
        $($strategy:ident $is_masked:literal $operator:ident $aggregate:ty, [$($input:ident)*], $forward:ident $reverse:ident;)*
    })*) => {
        /// All kernels.
        pub const KERNELS: &[Kernel] = &[$($(
            kernels!(@row $element $name $strategy $is_masked $operator $aggregate, [$($input)*], Forward $forward),
            kernels!(@row $element $name $strategy $is_masked $operator $aggregate, [$($input)*], Reverse $reverse),
        )*)*];
        $($(
            kernels!(@kernel $element $strategy $operator $aggregate, [$($input)*], Forward $forward);
            kernels!(@kernel $element $strategy $operator $aggregate, [$($input)*], Reverse $reverse);
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
                    stringify!($forward) => kernels!(@numbers $strategy pass $element, [$($input)*], $forward, arrays, numbers),
                    stringify!($reverse) => kernels!(@numbers $strategy pass $element, [$($input)*], $reverse, arrays, numbers),
                )*)*
                name => panic!("{name} is not a kernel"),
            }
        }
    };
    (@row $element:ident $name:ident $strategy:ident $is_masked:literal $operator:ident $aggregate:ty, [$($input:ident)*], $order:ident $function:ident) => {
        Kernel {
            name: stringify!($function),
            operator: Operator::$operator,
            direction: <$order as Order>::DIRECTION,
            strategy: Strategy::$strategy,
            is_masked: $is_masked,
            element: stringify!($name),
            element_bytes: size_of::<$element>(),
            aggregate_bytes: size_of::<$aggregate>(),
            carry_bytes: size_of::<<$aggregate as Action>::Carry>(),
            parameters: kernels!(@numbers $strategy parameters $($input)*),
        }
    };
    // The numbers of a strategy, in order, given to another rule.
    (@numbers Rows $rule:ident $($rest:tt)*) => { kernels! { @$rule (rows len flags options) $($rest)* } };
    (@numbers Columns $rule:ident $($rest:tt)*) => { kernels! { @$rule (outer len inner stages flags options) $($rest)* } };
    (@numbers SplitRows $rule:ident $($rest:tt)*) => { kernels! { @$rule (rows len options) $($rest)* } };
    (@numbers SplitColumns $rule:ident $($rest:tt)*) => { kernels! { @$rule (outer len inner carriers options) $($rest)* } };
    (@parameters ($($number:ident)*) $($input:ident)*) => {
        &[$(stringify!($input),)* "out", "initial", "last", "mask", "boundaries", "scratch", $(stringify!($number)),*]
    };
    (@kernel $element:ident Rows $($rest:tt)*) => {
        kernels!(@numbers Rows function $element scan_rows [{ subtiles(INPUTS, size_of::<$element>()) }] [] $($rest)*);
    };
    (@kernel $element:ident Columns $($rest:tt)*) => {
        kernels!(@numbers Columns function $element scan_columns [] [{ lane_channels(size_of::<$element>()) }] $($rest)*);
    };
    (@kernel $element:ident SplitRows $($rest:tt)*) => {
        kernels!(@numbers SplitRows function $element scan_split_rows [{ subtiles(INPUTS, size_of::<$element>()) }] [] $($rest)*);
    };
    (@kernel $element:ident SplitColumns $($rest:tt)*) => {
        kernels!(@numbers SplitColumns function $element scan_split_columns [] [{ lane_channels(size_of::<$element>()) }] $($rest)*);
    };
    (@function ($($number:ident)*) $element:ident $body:ident [$($subtiles:tt)?] [$($channels:tt)?] $operator:ident $aggregate:ty, [$($input:ident)*], $order:ident $name:ident) => {
        #[doc = concat!("[`", stringify!($body), "`] of `", stringify!($aggregate), "`, [`", stringify!($order), "`], elements ", stringify!($element), ".")]
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($body), "`].")]
        #[kernel]
        #[allow(clippy::too_many_arguments, reason = "a kernel has no other way to get them")]
        pub unsafe fn $name(
            $($input: Global<$element>,)*
            out: Global<$element>,
            initial: Global<<$aggregate as Action>::Carry>,
            last: Global<<$aggregate as Action>::Carry>,
            mask: Global<u8>,
            boundaries: Global<u64>,
            scratch: Global<u64>,
            $($number: u64),*
        ) {
            const INPUTS: usize = Operator::$operator.inputs();
            let arrays = Arrays { inputs: [$($input),*], output: out, initial, last, mask, boundaries, scratch };
            // SAFETY: the caller's obligations are the callee's.
            unsafe {
                $body::<$aggregate, $element, $order, INPUTS, $($subtiles,)? { vector(size_of::<$element>()) } $(, $channels)?>(&arrays, $($number),*);
            }
        }
    };
    (@pass ($($number:ident)*) $element:ident, [$($input:ident)*], $name:ident, $arrays:ident, $numbers:ident) => {{
        let (&[$($input,)* out, initial, last, mask, boundaries, scratch], &[$($number),*]) = ($arrays, $numbers) else {
            panic!("{} takes other parameters", stringify!($name));
        };
        // SAFETY: the caller's obligations are the kernel's.
        unsafe {
            $name(
                $(view::<$element>($input),)*
                view::<$element>(out),
                view(initial),
                view(last),
                view(mask),
                view(boundaries),
                view(scratch),
                $($number),*
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
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_f32 reverse_cumsum_columns_f32;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_f32 reverse_cumsum_split_rows_f32;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_f32 reverse_cumsum_split_columns_f32;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_f32 reverse_cumsum_masked_rows_f32;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_f32 reverse_cumsum_masked_columns_f32;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_f32 reverse_affine_scan_rows_f32;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_f32 reverse_affine_scan_columns_f32;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_f32 reverse_affine_scan_split_rows_f32;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_f32 reverse_affine_scan_split_columns_f32;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_f32 reverse_affine_scan_masked_rows_f32;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_f32 reverse_affine_scan_masked_columns_f32;
    }
    f64 f64 {
        Rows false Cumsum Sum<f64>, [x], cumsum_rows_f64 reverse_cumsum_rows_f64;
        Columns false Cumsum Sum<f64>, [x], cumsum_columns_f64 reverse_cumsum_columns_f64;
        SplitRows false Cumsum Sum<f64>, [x], cumsum_split_rows_f64 reverse_cumsum_split_rows_f64;
        SplitColumns false Cumsum Sum<f64>, [x], cumsum_split_columns_f64 reverse_cumsum_split_columns_f64;
        Rows true Cumsum Restarting<Sum<f64>>, [x], cumsum_masked_rows_f64 reverse_cumsum_masked_rows_f64;
        Columns true Cumsum Restarting<Sum<f64>>, [x], cumsum_masked_columns_f64 reverse_cumsum_masked_columns_f64;
        Rows false AffineScan Affine<f64>, [a b], affine_scan_rows_f64 reverse_affine_scan_rows_f64;
        Columns false AffineScan Affine<f64>, [a b], affine_scan_columns_f64 reverse_affine_scan_columns_f64;
        SplitRows false AffineScan Affine<f64>, [a b], affine_scan_split_rows_f64 reverse_affine_scan_split_rows_f64;
        SplitColumns false AffineScan Affine<f64>, [a b], affine_scan_split_columns_f64 reverse_affine_scan_split_columns_f64;
        Rows true AffineScan Restarting<Affine<f64>>, [a b], affine_scan_masked_rows_f64 reverse_affine_scan_masked_rows_f64;
        Columns true AffineScan Restarting<Affine<f64>>, [a b], affine_scan_masked_columns_f64 reverse_affine_scan_masked_columns_f64;
    }
    F16 f16 {
        Rows false Cumsum Sum<f32>, [x], cumsum_rows_f16 reverse_cumsum_rows_f16;
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_f16 reverse_cumsum_columns_f16;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_f16 reverse_cumsum_split_rows_f16;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_f16 reverse_cumsum_split_columns_f16;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_f16 reverse_cumsum_masked_rows_f16;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_f16 reverse_cumsum_masked_columns_f16;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_f16 reverse_affine_scan_rows_f16;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_f16 reverse_affine_scan_columns_f16;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_f16 reverse_affine_scan_split_rows_f16;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_f16 reverse_affine_scan_split_columns_f16;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_f16 reverse_affine_scan_masked_rows_f16;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_f16 reverse_affine_scan_masked_columns_f16;
    }
    BF16 bf16 {
        Rows false Cumsum Sum<f32>, [x], cumsum_rows_bf16 reverse_cumsum_rows_bf16;
        Columns false Cumsum Sum<f32>, [x], cumsum_columns_bf16 reverse_cumsum_columns_bf16;
        SplitRows false Cumsum Sum<f32>, [x], cumsum_split_rows_bf16 reverse_cumsum_split_rows_bf16;
        SplitColumns false Cumsum Sum<f32>, [x], cumsum_split_columns_bf16 reverse_cumsum_split_columns_bf16;
        Rows true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_rows_bf16 reverse_cumsum_masked_rows_bf16;
        Columns true Cumsum Restarting<Sum<f32>>, [x], cumsum_masked_columns_bf16 reverse_cumsum_masked_columns_bf16;
        Rows false AffineScan Affine<f32>, [a b], affine_scan_rows_bf16 reverse_affine_scan_rows_bf16;
        Columns false AffineScan Affine<f32>, [a b], affine_scan_columns_bf16 reverse_affine_scan_columns_bf16;
        SplitRows false AffineScan Affine<f32>, [a b], affine_scan_split_rows_bf16 reverse_affine_scan_split_rows_bf16;
        SplitColumns false AffineScan Affine<f32>, [a b], affine_scan_split_columns_bf16 reverse_affine_scan_split_columns_bf16;
        Rows true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_rows_bf16 reverse_affine_scan_masked_rows_bf16;
        Columns true AffineScan Restarting<Affine<f32>>, [a b], affine_scan_masked_columns_bf16 reverse_affine_scan_masked_columns_bf16;
    }
    i32 i32 {
        Rows false Cumsum Sum<i32>, [x], cumsum_rows_i32 reverse_cumsum_rows_i32;
        Columns false Cumsum Sum<i32>, [x], cumsum_columns_i32 reverse_cumsum_columns_i32;
        SplitRows false Cumsum Sum<i32>, [x], cumsum_split_rows_i32 reverse_cumsum_split_rows_i32;
        SplitColumns false Cumsum Sum<i32>, [x], cumsum_split_columns_i32 reverse_cumsum_split_columns_i32;
        Rows true Cumsum Restarting<Sum<i32>>, [x], cumsum_masked_rows_i32 reverse_cumsum_masked_rows_i32;
        Columns true Cumsum Restarting<Sum<i32>>, [x], cumsum_masked_columns_i32 reverse_cumsum_masked_columns_i32;
    }
    i64 i64 {
        Rows false Cumsum Sum<i64>, [x], cumsum_rows_i64 reverse_cumsum_rows_i64;
        Columns false Cumsum Sum<i64>, [x], cumsum_columns_i64 reverse_cumsum_columns_i64;
        SplitRows false Cumsum Sum<i64>, [x], cumsum_split_rows_i64 reverse_cumsum_split_rows_i64;
        SplitColumns false Cumsum Sum<i64>, [x], cumsum_split_columns_i64 reverse_cumsum_split_columns_i64;
        Rows true Cumsum Restarting<Sum<i64>>, [x], cumsum_masked_rows_i64 reverse_cumsum_masked_rows_i64;
        Columns true Cumsum Restarting<Sum<i64>>, [x], cumsum_masked_columns_i64 reverse_cumsum_masked_columns_i64;
    }
    Complex32 c64 {
        Rows false Cumsum Sum<Complex32>, [x], cumsum_rows_c64 reverse_cumsum_rows_c64;
        Columns false Cumsum Sum<Complex32>, [x], cumsum_columns_c64 reverse_cumsum_columns_c64;
        SplitRows false Cumsum Sum<Complex32>, [x], cumsum_split_rows_c64 reverse_cumsum_split_rows_c64;
        SplitColumns false Cumsum Sum<Complex32>, [x], cumsum_split_columns_c64 reverse_cumsum_split_columns_c64;
        Rows true Cumsum Restarting<Sum<Complex32>>, [x], cumsum_masked_rows_c64 reverse_cumsum_masked_rows_c64;
        Columns true Cumsum Restarting<Sum<Complex32>>, [x], cumsum_masked_columns_c64 reverse_cumsum_masked_columns_c64;
        Rows false AffineScan Affine<Complex32>, [a b], affine_scan_rows_c64 reverse_affine_scan_rows_c64;
        Columns false AffineScan Affine<Complex32>, [a b], affine_scan_columns_c64 reverse_affine_scan_columns_c64;
        SplitRows false AffineScan Affine<Complex32>, [a b], affine_scan_split_rows_c64 reverse_affine_scan_split_rows_c64;
        SplitColumns false AffineScan Affine<Complex32>, [a b], affine_scan_split_columns_c64 reverse_affine_scan_split_columns_c64;
        Rows true AffineScan Restarting<Affine<Complex32>>, [a b], affine_scan_masked_rows_c64 reverse_affine_scan_masked_rows_c64;
        Columns true AffineScan Restarting<Affine<Complex32>>, [a b], affine_scan_masked_columns_c64 reverse_affine_scan_masked_columns_c64;
    }
}
