//! Loading the driver, on machines with and without one, and from stand-ins for drivers that are too old or
//! incomplete. A process binds once, so every case is a process of its own: this program again, in the
//! role that [`PROBE`] asks for.

use std::path::Path;
use std::process::Command;
use std::{fs, ptr};

use cuda_driver::REQUIRED;
use cust::sys::{self, CUresult};
use libtest_mimic::{Arguments, Failed, Trial};

const PROBE: &str = "CUDA_DRIVER_TEST_PROBE";

/// A function that is not in [`REQUIRED`].
const OPTIONAL: &str = "cuGraphDebugDotPrint";

fn main() {
    if std::env::var_os(PROBE).is_some() {
        return probe();
    }
    let rustc = Command::new("rustc")
        .arg("-V")
        .output()
        .is_ok_and(|output| output.status.success());
    let stand_in = |name, check: fn() -> Result<(), Failed>| {
        Trial::test(name, check).with_ignored_flag(!rustc)
    };
    let trials = vec![
        Trial::test("this_machine", this_machine),
        stand_in("complete_driver", complete_driver),
        stand_in("lacking_an_optional_function", lacking_an_optional_function),
        stand_in("lacking_a_required_function", lacking_a_required_function),
        stand_in("too_old", too_old),
        stand_in("stub_library", stub_library),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The child's role: prints what a program sees before and after loading, a line each.
fn probe() {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has /proc");
    println!("linked: {}", maps.contains("libcuda"));
    println!("before: {:?}", init());
    match cuda_driver::load() {
        Ok(driver) => {
            assert!(std::ptr::eq(driver, cuda_driver::load().unwrap()));
            println!("version: {}", driver.version());
            println!("lacks: {:?}", driver.lacks());
            if driver.lacks().contains(&OPTIONAL) {
                // SAFETY: the function is absent, so that nothing looks at the arguments.
                let code = unsafe { sys::cuGraphDebugDotPrint(ptr::null_mut(), c"".as_ptr(), 0) };
                println!("absent: {code:?}");
            }
        }
        Err(error) => {
            assert_eq!(cuda_driver::load().unwrap_err(), error);
            println!("error: {error}");
        }
    }
    println!("after: {:?}", init());
}

fn init() -> CUresult {
    // SAFETY: 0 is the one value that the function takes.
    unsafe { sys::cuInit(0) }
}

/// What [`probe`] prints where the loader looks in `libraries` first.
fn run_probe(libraries: Option<&Path>) -> Result<String, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(PROBE, "1");
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{text}{errors}", output.status).into());
    }
    Ok(text)
}

/// What [`probe`] prints with a library in the driver's place that has `functions`, which all succeed, and
/// a `cuDriverGetVersion` that gives `version` and returns `code`.
fn with_stand_in(functions: &[&str], version: i32, code: i32) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let mut source = format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"C\" fn cuDriverGetVersion(out: *mut i32) -> i32 {{
             unsafe {{ *out = {version} }};
             {code}
         }}\n"
    );
    for name in functions
        .iter()
        .filter(|name| **name != "cuDriverGetVersion")
    {
        source += &format!("#[unsafe(no_mangle)] pub extern \"C\" fn {name}() -> i32 {{ 0 }}\n");
    }
    let file = folder.path().join("driver.rs");
    fs::write(&file, source)?;
    let compiled = Command::new("rustc")
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "-Anon-snake-case",
            "-o",
        ])
        .arg(folder.path().join("libcuda.so.1"))
        .arg(&file)
        .output()?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr)
            .into_owned()
            .into());
    }
    run_probe(Some(folder.path()))
}

fn expect(output: &str, lines: &[&str]) -> Result<(), Failed> {
    match lines
        .iter()
        .find(|line| !output.lines().any(|got| got.starts_with(**line)))
    {
        None => Ok(()),
        Some(line) => Err(format!("no line that starts with {line:?} in:\n{output}").into()),
    }
}

fn this_machine() -> Result<(), Failed> {
    let output = run_probe(None)?;
    expect(&output, &["linked: false", "before: CUDA_ERROR_NO_DEVICE"])?;
    // SAFETY: this is the driver's library, as in the crate itself.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        expect(&output, &["version: ", "after: CUDA_SUCCESS"])
    } else {
        expect(
            &output,
            &[
                "error: the CUDA driver's library libcuda.so.1 was not loaded: libcuda.so.1: cannot",
                "after: CUDA_ERROR_NO_DEVICE",
            ],
        )
    }
}

fn complete_driver() -> Result<(), Failed> {
    let functions: Vec<&str> = REQUIRED.iter().copied().chain([OPTIONAL]).collect();
    let output = with_stand_in(&functions, 13000, 0)?;
    expect(
        &output,
        &[
            "linked: false",
            "before: CUDA_ERROR_NO_DEVICE",
            "version: 13.0",
            "after: CUDA_SUCCESS",
        ],
    )?;
    assert!(!output.contains(OPTIONAL));
    Ok(())
}

fn lacking_an_optional_function() -> Result<(), Failed> {
    let output = with_stand_in(REQUIRED, 11040, 0)?;
    assert!(output.contains(OPTIONAL));
    expect(
        &output,
        &[
            "version: 11.4",
            "absent: CUDA_ERROR_NOT_FOUND",
            "after: CUDA_SUCCESS",
        ],
    )
}

fn lacking_a_required_function() -> Result<(), Failed> {
    let functions: Vec<&str> = REQUIRED
        .iter()
        .copied()
        .filter(|name| *name != "cuLaunchKernel")
        .collect();
    let output = with_stand_in(&functions, 12080, 0)?;
    expect(
        &output,
        &[
            "error: the CUDA driver's library libcuda.so.1 lacks cuLaunchKernel",
            "after: CUDA_ERROR_NO_DEVICE",
        ],
    )
}

fn too_old() -> Result<(), Failed> {
    let output = with_stand_in(&["cuInit"], 11030, 0)?;
    expect(
        &output,
        &[
            "error: the CUDA driver is too old: it supports CUDA 11.3, and at least CUDA 11.4",
            "after: CUDA_ERROR_NO_DEVICE",
        ],
    )
}

fn stub_library() -> Result<(), Failed> {
    let output = with_stand_in(REQUIRED, 0, 34)?;
    expect(
        &output,
        &[
            "error: the CUDA driver did not tell its version: cuDriverGetVersion returned error 34",
            "after: CUDA_ERROR_NO_DEVICE",
        ],
    )
}
