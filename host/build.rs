//! Builds the kernels' PTX, or takes the PTX that is checked in where they cannot be built; and notes where each kernel is in it.

use cuda_builder::{CudaBuilder, NvptxArch};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The PTX that is checked in. Its first line says which compiler made it.
const CHECKED_IN: &str = "ptx/kernels.ptx";
/// Makes it an error if the kernels cannot be built.
const REQUIRE: &str = "PTXSCAN_REQUIRE_KERNEL_BUILD";
/// Writes what is built to [`CHECKED_IN`].
const UPDATE: &str = "PTXSCAN_UPDATE_PTX";

fn main() {
    for variable in [REQUIRE, UPDATE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed={CHECKED_IN}");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let ptx = match build() {
        Ok(ptx) => {
            if is_set(UPDATE) {
                write(Path::new(CHECKED_IN), &ptx);
            }
            ptx
        }
        Err(error) if is_set(REQUIRE) => {
            panic!("{REQUIRE} is set, and the kernels were not built: {error}")
        }
        Err(error) => {
            println!(
                "cargo::warning=taking the PTX that is checked in, since the kernels were not built:"
            );
            for line in error.lines() {
                println!("cargo::warning={line}");
            }
            fs::read_to_string(CHECKED_IN).unwrap_or_else(|error| panic!("{CHECKED_IN}: {error}"))
        }
    };
    write(&out.join("kernels.ptx"), &ptx);
    write(&out.join("entries.rs"), &entries(&ptx));
}

/// The name of each kernel and the range of its text, which goes on until the next one's: a slice, as Rust has it.
fn entries(ptx: &str) -> String {
    const ENTRY: &str = ".visible .entry ";
    let starts: Vec<usize> = ptx.match_indices(ENTRY).map(|(start, _)| start).collect();
    let ends = starts.iter().skip(1).copied().chain([ptx.len()]);
    let entries = starts.iter().zip(ends).map(|(&start, end)| {
        let name = ptx[start + ENTRY.len()..].split('(').next();
        format!("({:?}, {start}..{end}),", name.unwrap_or_default())
    });
    format!("&[{}]", entries.collect::<String>())
}

/// The PTX of the kernels as they are, with a first line that says which compiler made it; else why not.
fn build() -> Result<String, String> {
    let kernels = Path::new("../kernels-gpu");
    if !kernels.exists() {
        return Err(format!("{} is not part of this package", kernels.display()));
    }
    let built = CudaBuilder::new(kernels)
        .arch(NvptxArch::Compute80)
        .build()
        .map_err(|error| error.to_string())?;
    let ptx = fs::read_to_string(&built.ptx)
        .map_err(|error| format!("{}: {error}", built.ptx.display()))?;
    Ok(format!("// {}\n{ptx}", built.rustc))
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value != "0" && !value.is_empty())
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
