//! What the compiler is told of values.

/// The value, of which the compiler is to know nothing: so that what is reckoned from it is reckoned where it is used, and does not fill
/// registers from before a loop on.
#[inline(always)]
#[must_use]
pub fn opaque(value: usize) -> usize {
    #[cfg(target_arch = "nvptx64")]
    let value = crate::imp::opaque(value as u64) as usize;
    value
}
