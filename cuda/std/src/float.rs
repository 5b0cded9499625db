//! Floating-point operations that `core` lacks.

/// Floating-point operations that are one instruction on the GPU, and give the same bits on the host.
pub trait GpuFloat: Copy {
    /// `self · a + b`, rounded once.
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
}

macro_rules! gpu_float {
    ($($t:ident)*) => { $(
        impl GpuFloat for $t {
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                #[cfg(target_arch = "nvptx64")]
                {
                    core::$t::math::mul_add(self, a, b)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    $t::mul_add(self, a, b)
                }
            }
        }
    )* };
}
gpu_float!(f32 f64);

/// The low and the high word of a number.
#[inline(always)]
pub(crate) fn words(value: f64) -> [u32; 2] {
    // LLVM would store the low word of the register as it is (`st.b32` of a `.b64` register), and `ptxas` would take that for a
    // conversion of the number to an integer.
    #[cfg(target_arch = "nvptx64")]
    {
        let (low, high): (u32, u32);
        // SAFETY: a move has no preconditions and no effects.
        unsafe {
            core::arch::asm!("mov.b64 {{{0}, {1}}}, {2};", out(reg32) low, out(reg32) high, in(reg64) value,
                options(pure, nomem, nostack, preserves_flags));
        }
        [low, high]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let bits = value.to_bits();
        [bits as u32, (bits >> 32) as u32]
    }
}

/// A half-precision number, as memory holds it (IEEE 754 binary16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A number of bfloat16, as memory holds it: the upper half of an `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct BF16(pub u16);

/// A complex number of two `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(8))]
pub struct Complex32 {
    /// The real part.
    pub re: f32,
    /// The imaginary part.
    pub im: f32,
}

macro_rules! halves {
    ($($type:ident: $to:literal, $from:literal, $from_two:literal;)*) => { $(
        impl $type {
            /// The same value.
            #[inline(always)]
            #[must_use]
            pub fn to_f32(self) -> f32 {
                #[cfg(target_arch = "nvptx64")]
                {
                    let value: f32;
                    // SAFETY: a conversion has no preconditions and no effects.
                    unsafe {
                        core::arch::asm!($to, out(reg32) value, in(reg16) self.0,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    value
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    on_host::$type::from_bits(self.0).to_f32()
                }
            }

            /// The nearest value; of two, the even one.
            #[inline(always)]
            #[must_use]
            pub fn from_f32(value: f32) -> Self {
                #[cfg(target_arch = "nvptx64")]
                {
                    let bits: u16;
                    // SAFETY: a conversion has no preconditions and no effects.
                    unsafe {
                        core::arch::asm!($from, out(reg16) bits, in(reg32) value,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    Self(bits)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    Self(on_host::$type::from_f32(value).to_bits())
                }
            }

            /// As [`from_f32`](Self::from_f32), of each value; two of them in one instruction.
            #[inline(always)]
            #[must_use]
            pub fn from_f32s<const N: usize>(values: [f32; N]) -> [Self; N] {
                #[cfg(target_arch = "nvptx64")]
                {
                    let mut halves = [Self(0); N];
                    let mut i = 0;
                    while i + 1 < N {
                        let word: u32;
                        // SAFETY: a conversion has no preconditions and no effects.
                        unsafe {
                            core::arch::asm!($from_two, out(reg32) word, in(reg32) values[i], in(reg32) values[i + 1],
                                options(pure, nomem, nostack, preserves_flags));
                        }
                        halves[i] = Self(word as u16);
                        halves[i + 1] = Self((word >> 16) as u16);
                        i += 2;
                    }
                    if i < N {
                        halves[i] = Self::from_f32(values[i]);
                    }
                    halves
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    values.map(Self::from_f32)
                }
            }
        }
    )* };
}
halves! {
    F16: "cvt.f32.f16 {0}, {1};", "cvt.rn.f16.f32 {0}, {1};", "cvt.rn.f16x2.f32 {0}, {2}, {1};";
    BF16: "{{ .reg .b32 %wide; mov.b32 %wide, {{0, {1}}}; mov.b32 {0}, %wide; }}", "cvt.rn.bf16.f32 {0}, {1};", "cvt.rn.bf16x2.f32 {0}, {2}, {1};";
}

#[cfg(not(target_arch = "nvptx64"))]
mod on_host {
    pub(super) use half::{bf16 as BF16, f16 as F16};
}
