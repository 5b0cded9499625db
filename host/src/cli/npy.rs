//! .npy files: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! A file is `\x93NUMPY`, a version, the length of the header, the header (a Python dict literal with the keys `descr`,
//! `fortran_order` and `shape`, padded with blanks) and the elements.
//!
//! Headers are read here rather than by a library: npyz 0.9 multiplies a broken shape's extents until they overflow, does not
//! take all that numpy takes, and its errors span lines.

use super::format::Tuple;
use bytemuck::{Pod, Zeroable};
use ptxscan::half::f16;
use ptxscan::num_complex::Complex;
use std::io::{self, Read};

// The elements are used as they lie in the file, which is little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// An element type with a place in the format.
pub trait Dtype: Pod + Default {
    /// Its `descr`.
    const DESCR: &'static str;
    /// What that is, in words.
    const WORDS: &'static str;
}

macro_rules! dtypes {
    ($($type:ty: $descr:literal, $words:literal;)*) => { $(
        impl Dtype for $type {
            const DESCR: &'static str = $descr;
            const WORDS: &'static str = $words;
        }
    )* };
}
dtypes! {
    f16: "<f2", "little-endian float16";
    f32: "<f4", "little-endian float32";
    f64: "<f8", "little-endian float64";
    i32: "<i4", "little-endian int32";
    i64: "<i8", "little-endian int64";
    Complex<f32>: "<c8", "little-endian complex64";
    Bool: "|b1", "bool";
}

/// A truth value, as any byte.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

// SAFETY: it is a byte.
unsafe impl Zeroable for Bool {}
// SAFETY: it is a byte.
unsafe impl Pod for Bool {}

impl From<Bool> for bool {
    fn from(Bool(byte): Bool) -> Self {
        byte != 0
    }
}

/// What is wrong with a file; which one, the caller knows.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open: {0}")]
    Open(io::Error),
    #[error("cannot read: {0}")]
    Read(io::Error),
    #[error("cannot write: {0}")]
    Write(io::Error),
    #[error("cannot hold {0} bytes in memory")]
    Memory(usize),
    #[error("expected a .npy file, which begins with \"{}\", got \"{}\"", MAGIC.escape_ascii(), got.escape_ascii())]
    Magic { got: Vec<u8> },
    #[error("expected .npy format 1.0, 2.0 or 3.0, got {major}.{minor}")]
    Version { major: u8, minor: u8 },
    #[error("expected the length of the header, got the end of the file")]
    NoHeader,
    #[error("expected a header of {expected} bytes, got {got}")]
    HeaderLength { expected: u64, got: usize },
    #[error(
        "expected a header with 'descr', 'fortran_order' and 'shape', got \"{}\"",
        beginning(got)
    )]
    Header { got: String },
    #[error("expected dtype '{expected}' ({words}), got {got}")]
    Dtype {
        expected: &'static str,
        words: &'static str,
        got: String,
    },
    #[error("expected dtype {expected}, got {got}")]
    Dtypes { expected: String, got: String },
    #[error("expected numbers that are not negative, got {got} at index {index}")]
    Negative { index: usize, got: i64 },
    #[error("expected C order, got Fortran order for shape {}", Tuple(shape))]
    FortranOrder { shape: Vec<usize> },
    #[error("expected a shape that memory can hold, got {}", Tuple(shape))]
    Shape { shape: Vec<usize> },
    #[error(
        "expected {expected} bytes of data for shape {}, got {got}",
        Tuple(shape)
    )]
    DataLength {
        shape: Vec<usize>,
        expected: usize,
        got: u64,
    },
}

impl Error {
    /// Whether the reader of an output that is a pipe is gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The beginning of a text, on one line.
fn beginning(text: &str) -> String {
    const CHARACTERS: usize = 100;
    let mut beginning = String::new();
    for character in text.chars().take(CHARACTERS) {
        if character.is_control() {
            beginning.extend(character.escape_default());
        } else {
            beginning.push(character);
        }
    }
    if text.chars().nth(CHARACTERS).is_some() {
        beginning.push('…');
    }
    beginning
}

/// In which order elements follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The last index runs first.
    C,
    /// The first index runs first.
    Fortran,
}

impl Order {
    /// How many elements are from an index to the next along each axis.
    pub fn strides(self, shape: &[usize]) -> Vec<isize> {
        let mut strides = vec![0; shape.len()];
        let mut elements = 1;
        let mut set = |axis: usize| {
            strides[axis] = elements;
            elements *= shape[axis] as isize;
        };
        match self {
            Self::C => (0..shape.len()).rev().for_each(&mut set),
            Self::Fortran => (0..shape.len()).for_each(&mut set),
        }
        strides
    }
}

/// A header, as it is written.
pub struct Header {
    /// With its quotation marks, or the list that describes a structured type.
    descr: String,
    fortran_order: bool,
    pub shape: Vec<usize>,
}

impl Header {
    /// Reads as far as the data.
    pub fn read(file: &mut impl Read) -> Result<Self, Error> {
        let mut next = |length: u64| {
            let mut bytes = Vec::new();
            // Not more than there is, whatever a broken file asks for.
            match file.take(length).read_to_end(&mut bytes) {
                Ok(_) => Ok(bytes),
                Err(error) => Err(Error::Read(error)),
            }
        };
        let got = next(MAGIC.len() as u64 + 2)?;
        let Some(&[major, minor]) = got.strip_prefix(MAGIC) else {
            return Err(Error::Magic { got });
        };
        let bytes_of_length = match (major, minor) {
            (1, 0) => 2,
            (2 | 3, 0) => 4,
            _ => return Err(Error::Version { major, minor }),
        };
        let mut length = [0; 8];
        let got = next(bytes_of_length)?;
        if (got.len() as u64) < bytes_of_length {
            return Err(Error::NoHeader);
        }
        length[..got.len()].copy_from_slice(&got);
        let expected = u64::from_le_bytes(length);
        let text = next(expected)?;
        if (text.len() as u64) < expected {
            return Err(Error::HeaderLength {
                expected,
                got: text.len(),
            });
        }
        let text = String::from_utf8_lossy(&text);
        Self::parse(&text).ok_or_else(|| Error::Header {
            got: text.into_owned(),
        })
    }

    /// The header that `text` is, if it is one.
    fn parse(text: &str) -> Option<Self> {
        let entries = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        for entry in split(entries) {
            let (key, value) = entry.split_once(':')?;
            let value = value.trim();
            match unquote(key.trim())? {
                "descr" => descr = Some(value.to_owned()),
                "fortran_order" => {
                    fortran_order = Some(match value {
                        "True" => true,
                        "False" => false,
                        _ => return None,
                    });
                }
                "shape" => {
                    let extents = value.strip_prefix('(')?.strip_suffix(')')?;
                    // Python 2 wrote `3L`.
                    let extent = |text: &str| text.trim().trim_end_matches('L').parse().ok();
                    shape = Some(split(extents).map(extent).collect::<Option<_>>()?);
                }
                _ => return None,
            }
        }
        Some(Self {
            descr: descr?,
            fortran_order: fortran_order?,
            shape: shape?,
        })
    }

    /// Whether the data are `T`s.
    pub fn is<T: Dtype>(&self) -> bool {
        unquote(&self.descr) == Some(T::DESCR)
    }

    /// That the data are of none of some types.
    pub fn none_of(&self, expected: &[&str]) -> Error {
        let quoted = expected.iter().map(|descr| format!("'{descr}'"));
        Error::Dtypes {
            expected: quoted.collect::<Vec<_>>().join(", "),
            got: beginning(&self.descr),
        }
    }

    /// The order of the data, which can be either where both are the same: with at most one extent above 1, or with no elements.
    pub fn order(&self) -> Order {
        let shape = &self.shape;
        let has_order =
            shape.iter().filter(|&&extent| extent > 1).count() > 1 && !shape.contains(&0);
        if self.fortran_order && has_order {
            Order::Fortran
        } else {
            Order::C
        }
    }

    /// Checks that the data are `T`s, and gives their number of bytes.
    pub fn data_bytes<T: Dtype>(&self) -> Result<usize, Error> {
        if !self.is::<T>() {
            return Err(Error::Dtype {
                expected: T::DESCR,
                words: T::WORDS,
                got: beginning(&self.descr),
            });
        }
        let shape = &self.shape;
        if shape.contains(&0) {
            return Ok(0);
        }
        shape
            .iter()
            .try_fold(size_of::<T>(), |bytes, &extent| bytes.checked_mul(extent))
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| Error::Shape {
                shape: shape.clone(),
            })
    }
}

/// The parts of `text` between its commas, less those inside quotation marks or brackets; a comma may end it.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quote) = (0_usize, None);
    text.trim_end().split_terminator(move |character| {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        character == ',' && depth == 0 && quote.is_none()
    })
}

/// What is between quotation marks of either kind.
fn unquote(text: &str) -> Option<&str> {
    ['\'', '"']
        .iter()
        .find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Everything before the data of an array of `T`s, byte for byte as numpy writes it.
pub fn preamble<T: Dtype>(shape: &[usize], order: Order) -> Vec<u8> {
    let (order, growing) = match order {
        Order::C => ("False", shape.first()),
        Order::Fortran => ("True", shape.last()),
    };
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': {order}, 'shape': {}, }}",
        T::DESCR,
        Tuple(shape)
    );
    // numpy leaves room for the outermost extent to grow in place to any 64-bit number.
    if let Some(extent) = growing {
        let room = 21_usize.saturating_sub(extent.to_string().len());
        text.push_str(&" ".repeat(room));
    }
    // Blanks and a newline until the data begin at a multiple of 64; there is always at least one blank.
    let blanks = |before: usize| 64 - (before + text.len() + 1) % 64;
    let length = |before: usize| text.len() + blanks(before) + 1;
    let (version, length, blanks) = match u16::try_from(length(10)) {
        Ok(length) => ([1, 0], length.to_le_bytes().to_vec(), blanks(10)),
        Err(_) => (
            [2, 0],
            (length(12) as u32).to_le_bytes().to_vec(),
            blanks(12),
        ),
    };
    text.push_str(&" ".repeat(blanks));
    text.push('\n');
    [MAGIC.as_slice(), &version, &length, text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_the_data_are_aligned() {
        // The last ones do not fit into a header of format 1.0.
        for rank in (0..70).chain([21_000, 21_001, 30_000]) {
            let shape: Vec<usize> = (0..rank).map(|axis| axis % 3 * 5).collect();
            let bytes = preamble::<f32>(&shape, Order::C);
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes[6..8], if rank < 21_000 { [1, 0] } else { [2, 0] });
            let mut rest = bytes.as_slice();
            let header = Header::read(&mut rest).unwrap();
            assert_eq!(header.shape, shape);
            assert!(!header.fortran_order && rest.is_empty());
        }
    }

    #[test]
    fn strides_are_products_of_the_extents_that_run_first() {
        let shape = [2, 3, 5];
        assert_eq!(Order::C.strides(&shape), [15, 5, 1]);
        assert_eq!(Order::Fortran.strides(&shape), [1, 2, 6]);
        assert!(Order::Fortran.strides(&[]).is_empty());
    }

    #[test]
    fn commas_in_brackets_and_quotation_marks_do_not_split() {
        let parts = |text| split(text).map(str::trim).collect::<Vec<_>>();
        assert_eq!(parts("1, 2"), ["1", "2"]);
        assert_eq!(parts("(1, 2), [3, (4, 5)], "), ["(1, 2)", "[3, (4, 5)]"]);
        assert_eq!(
            parts("'a, b': \"c, 'd\", 'e'"),
            ["'a, b': \"c, 'd\"", "'e'"]
        );
        assert_eq!(parts(" "), [""; 0]);
    }
}
