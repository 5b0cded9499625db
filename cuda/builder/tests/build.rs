//! Builds of the crate in `fixture`. Each is a process of its own, as a build script is: this program again, in
//! the role that [`SCRIPT`] asks for.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

use cuda_builder::{CudaBuilder, NvptxArch};
use libtest_mimic::{Arguments, Failed, Trial};

const SCRIPT: &str = "CUDA_BUILDER_TEST_SCRIPT";
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture");

fn main() {
    if let Some(kernels) = env::var_os(SCRIPT) {
        let copy = Path::new(&env::var_os("OUT_DIR").expect("set by Script::run"))
            .join("copy/kernels.ptx");
        match CudaBuilder::new(kernels)
            .arch(NvptxArch::Compute80)
            .copy_to(&copy)
            .build()
        {
            Ok(built) => {
                assert_eq!(built.ptx, copy);
                println!("rustc: {}", built.rustc);
            }
            Err(error) => println!("error: {error}"),
        }
        return;
    }
    let ignored = !core_can_be_built();
    let trials = vec![
        Trial::test("builds_once", builds_once).with_ignored_flag(ignored),
        Trial::test("another_folder", another_folder).with_ignored_flag(ignored),
        Trial::test("nightly_missing", nightly_missing),
        Trial::test("rust_src_missing", rust_src_missing),
        Trial::test("kernels_missing", kernels_missing),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Whether there is a nightly with the sources of Rust's library.
fn core_can_be_built() -> bool {
    [&["rustc"][..], &["rustup", "run", "nightly", "rustc"]]
        .iter()
        .any(|rustc| {
            let ask = |question: &str| {
                let output = Command::new(rustc[0])
                    .args(&rustc[1..])
                    .arg(question)
                    .output();
                String::from_utf8(output.ok()?.stdout).ok()
            };
            let sources = |sysroot: String| {
                Path::new(sysroot.trim_end())
                    .join("lib/rustlib/src/rust/library/Cargo.lock")
                    .is_file()
            };
            ask("-V").is_some_and(|version| version.contains("-nightly"))
                && ask("--print=sysroot").is_some_and(sources)
        })
}

/// A build script's process.
struct Script {
    command: Command,
    out_dir: PathBuf,
}

impl Script {
    /// One for the kernels in `kernels`, as in an outer build with that profile. All share a target folder, which
    /// later runs of the tests find again.
    fn new(kernels: impl AsRef<Path>, profile: &str) -> Self {
        let out_dir = tmp("target").join(profile).join("build/host-0/out");
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command
            .env(SCRIPT, kernels.as_ref())
            .env("OUT_DIR", &out_dir)
            .env(
                "CARGO",
                env::var_os("CARGO").unwrap_or(env!("CARGO").into()),
            )
            .env("RUSTC", "rustc");
        Self { command, out_dir }
    }

    fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What the script prints.
    fn run(mut self) -> Result<String, Failed> {
        let output = self.command.output()?;
        let text = String::from_utf8(output.stdout)?;
        if !output.status.success() {
            return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(text)
    }

    /// Runs a script that shall succeed; returns the PTX, when it was written, and what the script printed.
    fn build(self) -> Result<(String, SystemTime, String), Failed> {
        let ptx = self.out_dir.join("copy/kernels.ptx");
        let output = self.run()?;
        if !output.contains("\nrustc: rustc ") {
            return Err(output.into());
        }
        Ok((
            fs::read_to_string(&ptx)?,
            fs::metadata(&ptx)?.modified()?,
            output,
        ))
    }

    /// Runs a script that shall fail, and returns the error's text.
    fn error(self) -> Result<String, Failed> {
        let output = self.run()?;
        match output.split_once("error: ") {
            Some((_, error)) => Ok(error.to_owned()),
            None => Err(format!("no error in:\n{output}").into()),
        }
    }
}

fn builds_once() -> Result<(), Failed> {
    let (ptx, written, output) = Script::new(FIXTURE, "debug").build()?;
    assert!(ptx.contains("\n.version 7.4\n.target sm_80\n"), "{ptx}");
    assert!(ptx.contains(".visible .entry evens("), "{ptx}");
    // The workspace's profile asks for these.
    assert!(!ptx.contains(".loc\t"), "{ptx}");
    assert!(!ptx.contains("mul_overflow"), "{ptx}");
    // ".rs" as the bytes of a string.
    assert!(!ptx.contains("46, 114, 115"), "{ptx}");
    let fixture = fs::canonicalize(FIXTURE)?;
    for watched in [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "lane/Cargo.toml",
        "lane/src",
    ] {
        let line = format!(
            "cargo::rerun-if-changed={}\n",
            fixture.join(watched).display()
        );
        assert!(output.contains(&line), "{line}{output}");
    }

    assert_eq!(
        Script::new(FIXTURE, "debug").build()?,
        (ptx.clone(), written, output.clone())
    );

    let mut script = Script::new(FIXTURE, "debug");
    for (name, value) in [
        ("RUSTFLAGS", "-Copt-level=0"),
        ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=sm_90"),
        (
            "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS",
            "-Ctarget-cpu=sm_90",
        ),
        ("CARGO_BUILD_TARGET", "x86_64-unknown-linux-gnu"),
        ("CARGO_BUILD_RUSTC", "/nonexistent"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "true"),
        ("CARGO_TARGET_DIR", "/nonexistent"),
        ("RUSTC_WRAPPER", "/nonexistent"),
        ("RUSTC_WORKSPACE_WRAPPER", "/nonexistent"),
        ("TARGET", "x86_64-unknown-linux-gnu"),
        ("PROFILE", "debug"),
        ("OPT_LEVEL", "0"),
    ] {
        script = script.env(name, value);
    }
    assert_eq!(script.build()?, (ptx, written, output));
    Ok(())
}

fn another_folder() -> Result<(), Failed> {
    let (ptx, ..) = Script::new(FIXTURE, "release").build()?;
    let copy = tmp("a copy (of the fixture)");
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "src/lib.rs",
        "lane/Cargo.toml",
        "lane/src/lib.rs",
    ] {
        write(
            &copy.join(file),
            &fs::read_to_string(Path::new(FIXTURE).join(file))?,
        )?;
    }
    assert_eq!(Script::new(&copy, "copy").build()?.0, ptx);

    let lane = copy.join("lane/src/lib.rs");
    let source = fs::read_to_string(&lane)?;
    write(&lane, &source.replace("2 * i", "2.0 * i"))?;
    let error = Script::new(&copy, "copy").error()?;
    assert!(
        error.starts_with("cargo could not build the GPU kernels in "),
        "{error}"
    );
    assert!(error.contains("error[E0277]: cannot multiply"), "{error}");

    write(&lane, &source.replace("2 * i", "3 * i"))?;
    assert_ne!(Script::new(&copy, "copy").build()?.0, ptx);
    Ok(())
}

fn nightly_missing() -> Result<(), Failed> {
    let error = with_toolchains("nightly_missing", "1.90.0", None)?;
    assert_eq!(
        error,
        "compiling GPU kernels needs a nightly Rust toolchain, and none was found; install one with \
         `rustup toolchain install nightly --component rust-src`\n"
    );
    Ok(())
}

fn rust_src_missing() -> Result<(), Failed> {
    let error = with_toolchains("rust_src_missing", "1.90.0", Some("1.92.0-nightly"))?;
    assert_eq!(
        error,
        "compiling GPU kernels needs the component rust-src, and the toolchain nightly lacks it; \
         install it with `rustup component add rust-src --toolchain nightly`\n"
    );
    let error = with_toolchains("rust_src_missing_here", "1.92.0-nightly", None)?;
    assert!(
        error.contains("the toolchain nightly-of-mine lacks it"),
        "{error}"
    );
    assert!(
        error.contains("`rustup component add rust-src --toolchain nightly-of-mine`"),
        "{error}"
    );
    Ok(())
}

/// The error where the outer build's rustc is of release `own` and rustup's nightly, if any, of release
/// `nightly`; neither has the library's sources.
fn with_toolchains(folder: &str, own: &str, nightly: Option<&str>) -> Result<String, Failed> {
    let folder = tmp(folder);
    for (name, release) in [("own", Some(own)), ("nightly", nightly)] {
        let Some(release) = release else { continue };
        let rustc = folder.join(name).join("bin/rustc");
        program(
            &rustc,
            &format!("echo 'rustc {release}'; echo 'release: {release}'"),
        )?;
    }
    // cargo asks about more than the sysroot: that is answered by the real one.
    let rustc = folder.join("rustc");
    let sysroot = folder.join("own");
    let real = "RUSTUP_TOOLCHAIN=$REAL_TOOLCHAIN PATH=$REAL_PATH exec rustc \"$@\"";
    program(
        &rustc,
        &format!(
            "[ \"$*\" = '--print sysroot' ] && echo '{}' || {{ {real}; }}",
            sysroot.display()
        ),
    )?;
    let sysroot = folder.join("nightly");
    let rustup = match nightly {
        Some(_) => format!(
            "[ \"$*\" = 'run nightly rustc --print sysroot' ] && echo '{}'",
            sysroot.display()
        ),
        None => "echo \"error: toolchain 'nightly' is not installed\" >&2; exit 1".into(),
    };
    program(&folder.join("path/rustup"), &rustup)?;

    Script::new(FIXTURE, "debug")
        .env("RUSTC", rustc)
        .env("RUSTUP_TOOLCHAIN", "nightly-of-mine")
        .env(
            "REAL_TOOLCHAIN",
            env::var_os("RUSTUP_TOOLCHAIN").unwrap_or_default(),
        )
        .env("REAL_PATH", env::var_os("PATH").unwrap_or_default())
        .env("PATH", folder.join("path"))
        .error()
}

fn kernels_missing() -> Result<(), Failed> {
    let error = Script::new("/nonexistent/kernels", "debug").error()?;
    assert!(
        error.starts_with("cannot find /nonexistent/kernels: "),
        "{error}"
    );
    Ok(())
}

fn tmp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn write(path: &Path, text: &str) -> Result<(), Failed> {
    fs::create_dir_all(path.parent().ok_or("a path without a folder")?)?;
    Ok(fs::write(path, text)?)
}

/// Makes an executable shell script.
fn program(path: &Path, body: &str) -> Result<(), Failed> {
    write(path, &format!("#!/bin/sh\n{body}\n"))?;
    Ok(fs::set_permissions(path, PermissionsExt::from_mode(0o755))?)
}
