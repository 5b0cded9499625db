//! Opens the driver's library and fills the table.

mod symbols;

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;

use libloading::Library;

use self::symbols::SYMBOLS;
use crate::{Driver, LoadError, OLDEST_SUPPORTED, REQUIRED, Version};

const LIBRARY: &str = "libcuda.so.1";

pub(crate) fn bind() -> Result<Driver, LoadError> {
    // SAFETY: by its name this is NVIDIA's driver, whose initialisers any program may run.
    let library = unsafe { Library::new(LIBRARY) }.map_err(|error| LoadError::LibraryNotFound {
        library: LIBRARY,
        reason: error.to_string(),
    })?;
    // Not unloaded on errors either: the driver's library is not made for that.
    let library = ManuallyDrop::new(library);

    // The version first: an old driver also lacks functions, and its age is the better explanation.
    let version = version(&library)?;
    if version < OLDEST_SUPPORTED {
        return Err(LoadError::TooOld {
            got: version,
            needed: OLDEST_SUPPORTED,
        });
    }

    let functions: Vec<Option<*mut ()>> = SYMBOLS
        .iter()
        .map(|symbol| address(&library, symbol.name))
        .collect();
    let lacks: Vec<&'static str> = SYMBOLS
        .iter()
        .zip(&functions)
        .filter(|(_, function)| function.is_none())
        .map(|(symbol, _)| symbol.name)
        .collect();
    let missing: Vec<&'static str> = lacks
        .iter()
        .copied()
        .filter(|name| REQUIRED.contains(name))
        .collect();
    if !missing.is_empty() {
        return Err(LoadError::MissingSymbols {
            library: LIBRARY,
            names: missing,
        });
    }

    for (symbol, function) in SYMBOLS.iter().zip(functions) {
        // SAFETY: the address was looked up under the symbol's name, and the library is never unloaded.
        unsafe { symbol.bind(function) };
    }
    Ok(Driver { version, lacks })
}

fn version(library: &Library) -> Result<Version, LoadError> {
    const NAME: &str = "cuDriverGetVersion";
    // SAFETY: the type is that of the driver's documentation.
    let get_version =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(NAME.as_bytes()) }
            .map_err(|_| LoadError::MissingSymbols {
                library: LIBRARY,
                names: vec![NAME],
            })?;
    let mut version: c_int = 0;
    // SAFETY: the pointer is to a live `int`; this function may be called before `cuInit`.
    let code = unsafe { get_version(&mut version) };
    match u32::try_from(version) {
        // 1000 · major + 10 · minor.
        Ok(version) if code == 0 => Ok(Version {
            major: version / 1000,
            minor: version % 1000 / 10,
        }),
        _ => Err(LoadError::VersionUnknown { code }),
    }
}

pub(crate) fn error_text(code: u32) -> Option<(String, String)> {
    // Defined in `symbols`: an error of the driver's own enumeration, as its number.
    unsafe extern "C" {
        fn cuGetErrorName(code: u32, text: *mut *const c_char) -> c_int;
        fn cuGetErrorString(code: u32, text: *mut *const c_char) -> c_int;
    }
    let text = |get: unsafe extern "C" fn(u32, *mut *const c_char) -> c_int| {
        let mut text = std::ptr::null();
        // SAFETY: `text` is a place for an address. What comes back with success is a string that lives for good.
        unsafe {
            (get(code, &mut text) == 0 && !text.is_null())
                .then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    Some((text(cuGetErrorName)?, text(cuGetErrorString)?))
}

/// The address of an exported function.
fn address(library: &Library, name: &str) -> Option<*mut ()> {
    // SAFETY: nothing is called here: the value is the address as a pointer.
    let function = unsafe { library.get::<*mut ()>(name.as_bytes()) }.ok()?;
    Some(*function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_function_is_in_the_table() {
        for name in REQUIRED {
            assert!(SYMBOLS.iter().any(|symbol| symbol.name == *name), "{name}");
        }
    }
}
