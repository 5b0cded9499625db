//! Transposing a square.

use super::LANES;

/// The rows of a square as its columns.
#[inline(always)]
pub fn transposed<S: Copy + Default>(square: &[[S; LANES]; LANES]) -> [[S; LANES]; LANES] {
    let mut columns = [[S::default(); LANES]; LANES];
    // The compiler would move the numbers one by one.
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        const { assert!(LANES == 4) };
        let from = |row: usize, column: usize| (&raw const square[row][column]).cast();
        if size_of::<S>() == 4 {
            // SAFETY: a row is a register. These moves change no bits, whatever they mean.
            unsafe {
                let mut a = _mm_loadu_ps(from(0, 0));
                let mut b = _mm_loadu_ps(from(1, 0));
                let mut c = _mm_loadu_ps(from(2, 0));
                let mut d = _mm_loadu_ps(from(3, 0));
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                _mm_storeu_ps(columns[0].as_mut_ptr().cast(), a);
                _mm_storeu_ps(columns[1].as_mut_ptr().cast(), b);
                _mm_storeu_ps(columns[2].as_mut_ptr().cast(), c);
                _mm_storeu_ps(columns[3].as_mut_ptr().cast(), d);
            }
            return columns;
        }
        if size_of::<S>() == 8 {
            let from = |row: usize, column: usize| (&raw const square[row][column]).cast();
            for row in [0, 2] {
                for column in [0, 2] {
                    // SAFETY: half a row is a register.
                    unsafe {
                        let a = _mm_loadu_pd(from(row, column));
                        let b = _mm_loadu_pd(from(row + 1, column));
                        let to = (&raw mut columns[column][row]).cast();
                        _mm_storeu_pd(to, _mm_unpacklo_pd(a, b));
                        let to = (&raw mut columns[column + 1][row]).cast();
                        _mm_storeu_pd(to, _mm_unpackhi_pd(a, b));
                    }
                }
            }
            return columns;
        }
    }
    for row in 0..LANES {
        for column in 0..LANES {
            columns[column][row] = square[row][column];
        }
    }
    columns
}
