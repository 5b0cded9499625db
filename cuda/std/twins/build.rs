//! Compiles the twins to PTX for the test, where there is a toolchain that can.

use cuda_builder::CudaBuilder;
use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The nested build comes here too.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("nvptx64") {
        return;
    }
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let built = CudaBuilder::new(".").build();
    let result = match &built {
        Ok(built) => fs::read_to_string(&built.ptx).expect("the PTX that was just built"),
        Err(error) => format!("// not built: {error}").replace('\n', " "),
    };
    fs::write(Path::new(&out).join("twins.ptx"), result).expect("OUT_DIR can be written");
}
