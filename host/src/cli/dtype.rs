//! The types of elements that cases are measured with.

use clap::ValueEnum;
use ptxscan::Element;
use ptxscan::half::{bf16, f16};

/// A type of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Dtype {
    #[default]
    F32,
    F64,
    F16,
    Bf16,
}

impl Dtype {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 => size_of::<f32>(),
            Dtype::F64 => size_of::<f64>(),
            Dtype::F16 | Dtype::Bf16 => size_of::<f16>(),
        }
    }

    /// Bytes of a state.
    pub fn state_bytes(self) -> usize {
        match self {
            Dtype::F64 => size_of::<f64>(),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => size_of::<f32>(),
        }
    }

    /// The largest relative errors of rounding: in what a scan computes in, and of a result.
    pub fn unit_roundoffs(self) -> (f64, f64) {
        const HALF: f64 = 0.5;
        let f32 = HALF * f64::from(f32::EPSILON);
        match self {
            Dtype::F32 => (f32, 0.0),
            Dtype::F64 => (HALF * f64::EPSILON, 0.0),
            Dtype::F16 => (f32, HALF * f64::from(f16::EPSILON)),
            Dtype::Bf16 => (f32, HALF * f64::from(bf16::EPSILON)),
        }
    }

    /// The nearest number of the type.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Dtype::F32 | Dtype::F64 => value,
            Dtype::F16 => f16::from_f32(value).to_f32(),
            Dtype::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }
}

/// A type of elements that cases are measured with.
pub trait Measured: Element {
    /// What outputs are filled with.
    const NAN: Self;

    /// A number that the type has.
    fn from_f32(value: f32) -> Self;

    /// The same value.
    fn to_f64(self) -> f64;
}

macro_rules! measured {
    ($($type:ty: $from:expr;)*) => { $(
        impl Measured for $type {
            const NAN: Self = <$type>::NAN;

            fn from_f32(value: f32) -> Self {
                ($from)(value)
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    )* };
}
measured! {
    f32: |x| x;
    f64: f64::from;
    f16: f16::from_f32;
    bf16: bf16::from_f32;
}
