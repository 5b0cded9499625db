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
