//! Arrays in .npy files.
//!
//! The data is not copied: an input is mapped into memory, and an output is computed into the mapped file. If another
//! process truncates an input meanwhile, this one is ended by SIGBUS; the output's place is then as it was before.

use super::npy::{Dtype, Error, Header, Order, preamble};
use super::replacement::Replacement;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// A file whose header was read, but not yet its data.
pub struct Opened {
    file: File,
    pub header: Header,
}

impl Opened {
    /// Opens the file at `path`.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::Open)?;
        let header = Header::read(&mut file)?;
        Ok(Self { file, header })
    }
}

/// An array in a file, read-only.
pub struct Input<T> {
    shape: Vec<usize>,
    order: Order,
    data: Data<T>,
}

enum Data<T> {
    /// A file's bytes from the `start`th on.
    Mapped { map: Mmap, start: usize },
    /// A copy, of what cannot be mapped (a pipe) or does not lie at a multiple of its alignment.
    Copied(Vec<T>),
}

impl<T: Dtype> Input<T> {
    /// Opens the file at `path`, as [`read`](Self::read) does.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Opened::new(path).and_then(Self::read)
    }

    /// As [`read`](Self::read), in C order.
    pub fn read_in_c_order(opened: Opened) -> Result<Self, Error> {
        match opened.header.order() {
            Order::C => Self::read(opened),
            Order::Fortran => Err(Error::FortranOrder {
                shape: opened.header.shape,
            }),
        }
    }

    /// Checks that the file holds just an array of `T`s.
    pub fn read(Opened { mut file, header }: Opened) -> Result<Self, Error> {
        let order = header.order();
        let expected = header.data_bytes::<T>()?;
        let length_error = |got| Error::DataLength {
            shape: header.shape.clone(),
            expected,
            got,
        };

        let metadata = file.metadata().map_err(Error::Read)?;
        if metadata.is_file() {
            let start = file.stream_position().map_err(Error::Read)?;
            let got = metadata.len().saturating_sub(start);
            if got != expected as u64 {
                return Err(length_error(got));
            }
            let start = start as usize; // as the length is a header's and the data's, it fits
            // SAFETY: the mapping is only read, and private to this value; that nobody changes or truncates the file
            // meanwhile is left to the user, as the module's documentation says.
            let map = || unsafe { MmapOptions::new().len(start + expected).map(&file) };
            if start.is_multiple_of(align_of::<T>())
                && let Ok(map) = map()
            {
                return Ok(Self {
                    shape: header.shape,
                    order,
                    data: Data::Mapped { map, start },
                });
            }
        }
        let data = copy(&mut file, expected, length_error)?;
        Ok(Self {
            shape: header.shape,
            order,
            data: Data::Copied(data),
        })
    }

    /// The array's shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// In which order its elements follow each other.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The array's elements.
    pub fn data(&self) -> &[T] {
        match &self.data {
            Data::Mapped { map, start } => bytemuck::cast_slice(&map[*start..]),
            Data::Copied(data) => data,
        }
    }
}

/// `expected` bytes, which are all that `file` still has.
fn copy<T: Dtype>(
    file: &mut File,
    expected: usize,
    length_error: impl Fn(u64) -> Error,
) -> Result<Vec<T>, Error> {
    // In steps, so that a broken header makes no more memory needed than there is data.
    const STEP: usize = 1 << 22;
    let elements = expected / size_of::<T>();
    let mut data: Vec<T> = Vec::new();
    while data.len() < elements {
        let begin = data.len();
        let end = elements.min(begin + STEP);
        data.try_reserve(end - begin)
            .map_err(|_| Error::Memory(expected))?;
        data.resize(end, T::default());
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut data[begin..]);
        while !rest.is_empty() {
            match file.read(rest) {
                Ok(0) => return Err(length_error((end * size_of::<T>() - rest.len()) as u64)),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Read(error)),
            }
        }
    }
    match io::copy(file, &mut io::sink()).map_err(Error::Read)? {
        0 => Ok(data),
        more => Err(length_error(expected as u64 + more)),
    }
}

/// An array to be written to a file.
///
/// A regular file appears, or replaces the one that was there, in one step on [`commit`](Self::commit). Anything else (a
/// pipe, a device) is written to then.
pub struct Output<T> {
    target: Target,
    preamble: Vec<u8>,
    data: Buffer<T>,
}

enum Target {
    File(Replacement),
    Stream(Box<dyn Write>),
}

enum Buffer<T> {
    /// The file itself, preamble included.
    Mapped(MmapMut),
    Memory(Vec<T>),
}

impl<T: Dtype> Output<T> {
    /// An array of `shape`, all zeros, for the file at `path`.
    pub fn create(path: &Path, shape: &[usize], order: Order) -> Result<Self, Error> {
        let preamble = preamble::<T>(shape, order);
        let elements = shape.iter().product();
        let target = Target::open(path).map_err(Error::Write)?;
        let data = match &target {
            Target::File(file) => Buffer::map(file, &preamble, elements).map_err(Error::Write)?,
            Target::Stream(_) => None,
        };
        let data = match data {
            Some(mapped) => mapped,
            None => Buffer::allocate(elements)?,
        };
        Ok(Self {
            target,
            preamble,
            data,
        })
    }

    /// The array's elements.
    pub fn data(&mut self) -> &mut [T] {
        match &mut self.data {
            Buffer::Mapped(map) => bytemuck::cast_slice_mut(&mut map[self.preamble.len()..]),
            Buffer::Memory(data) => data,
        }
    }

    /// Lets the file appear.
    pub fn commit(mut self) -> Result<(), Error> {
        if let Buffer::Memory(data) = &self.data {
            let mut file;
            let writer: &mut dyn Write = match &mut self.target {
                Target::File(replacement) => {
                    file = replacement.file();
                    &mut file
                }
                Target::Stream(stream) => stream,
            };
            [&self.preamble, bytemuck::cast_slice(data)]
                .into_iter()
                .try_for_each(|bytes| writer.write_all(bytes))
                .and_then(|()| writer.flush())
                .map_err(Error::Write)?;
        }
        match self.target {
            Target::File(file) => file.commit().map_err(Error::Write),
            Target::Stream(_) => Ok(()),
        }
    }
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        // Where standard output is a file, this path leads to it: it is to be written, not replaced.
        if path == Path::new("/dev/stdout") {
            return Ok(Target::Stream(Box::new(io::stdout())));
        }
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                let stream = OpenOptions::new().write(true).open(path)?;
                Ok(Target::Stream(Box::new(stream)))
            }
            _ => Ok(Target::File(Replacement::create(path)?)),
        }
    }
}

impl<T: Dtype> Buffer<T> {
    /// The file's own pages, if the file system can map them and promise room for them.
    fn map(file: &Replacement, preamble: &[u8], elements: usize) -> io::Result<Option<Self>> {
        let bytes = preamble.len() + elements * size_of::<T>();
        if !file.reserve(bytes)? {
            return Ok(None);
        }
        // SAFETY: the file is new, and no other process has a name or a use for it.
        let Ok(mut map) = (unsafe { MmapMut::map_mut(file.file()) }) else {
            return Ok(None);
        };
        map[..preamble.len()].copy_from_slice(preamble);
        Ok(Some(Buffer::Mapped(map)))
    }

    fn allocate(elements: usize) -> Result<Self, Error> {
        let mut data = Vec::new();
        data.try_reserve_exact(elements)
            .map_err(|_| Error::Memory(elements * size_of::<T>()))?;
        data.resize(elements, T::default());
        Ok(Buffer::Memory(data))
    }
}
