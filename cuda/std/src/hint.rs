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

/// The word, of which the compiler is to know nothing: so that the parts of which it is made, or into which it is taken apart, are not
/// kept in registers of their own.
#[inline(always)]
#[must_use]
pub fn opaque_word(value: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    let value = crate::imp::opaque_word(value);
    value
}
