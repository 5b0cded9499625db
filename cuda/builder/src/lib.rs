//! Compiles a crate of GPU kernels to PTX from a build script, with rustc's own NVPTX back end.
//!
//! The interface is that of Rust-CUDA's crate of this name. In `build.rs`:
//!
//! ```no_run
//! use cuda_builder::{CudaBuilder, NvptxArch};
//!
//! let built = CudaBuilder::new("../kernels").arch(NvptxArch::Compute80).build()?;
//! println!("cargo::rustc-env=KERNELS_PTX={}", built.ptx.display());
//! # Ok::<(), cuda_builder::BuildError>(())
//! ```
//!
//! and in the program `include_str!(env!("KERNELS_PTX"))`.
//!
//! # The kernels crate
//!
//! An ordinary `no_std` library, so that the host program can depend on it too. Where `target_arch` is
//! `"nvptx64"` it has a panic handler, and its kernels are `extern "ptx-kernel"` functions with
//! `#[unsafe(no_mangle)]`. Its sources, and those of the path dependencies, are in the packages' `src`.
//!
//! # What is built, and when
//!
//! A nested cargo compiles the crate and `core` for `nvptx64-nvidia-cuda`, with fat link-time optimisation;
//! no linker and no part of CUDA takes part. The workspace's release profile, the configured `rustflags` and the
//! environment of the outer cargo have no influence on the PTX, and neither have the folders in which the
//! crate, the toolchain and cargo's caches are: the same sources and the same rustc give the same bytes.
//!
//! The build has one folder under the outer target folder, which all profiles share. The build script runs
//! again when the kernels, a path dependency, the lock file or the toolchain change.
//!
//! # The toolchain
//!
//! rustc builds `core` on nightly only, from the component `rust-src`. The outer build's own toolchain is
//! taken where it is such a nightly, else rustup's `nightly`; nothing is ever installed. (The first
//! nested build in a fresh `CARGO_HOME` does fetch the packages that the library's lock file names.)
//! Where there is no such toolchain, the error says what to install. Installing the first nightly is the one
//! change that does not run a build script again; touch the script, or clean its package.

mod environment;
mod toolchain;

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::Command;

use toolchain::Toolchain;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// The settings of the release profile that reach the PTX, whatever the workspace's manifest says.
const PROFILE: &[&str] = &[
    "opt-level=3",
    "lto='fat'",
    "codegen-units=1",
    "panic='abort'",
    "debug=false",
    "debug-assertions=false",
    "overflow-checks=false",
    "incremental=false",
];

/// A GPU architecture, by compute capability. PTX for one runs on it and on all later ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum NvptxArch {
    /// Volta: V100.
    Compute70,
    /// Turing: T4, RTX 20.
    Compute75,
    /// Ampere: A100.
    Compute80,
    /// Ampere: A40, RTX 30.
    Compute86,
    /// Ada: L4, L40, RTX 40.
    Compute89,
    /// Hopper: H100, H200.
    Compute90,
    /// Blackwell: B200.
    Compute100,
    /// Blackwell: RTX 50.
    Compute120,
}

impl NvptxArch {
    /// The name in PTX, as `sm_80`.
    pub fn target(self) -> &'static str {
        self.properties().0
    }

    /// The version of PTX, as (7, 4): that of CUDA 11.4, or the first that knows the architecture.
    pub fn ptx_version(self) -> (u32, u32) {
        self.properties().1
    }

    fn properties(self) -> (&'static str, (u32, u32)) {
        match self {
            Self::Compute70 => ("sm_70", (7, 4)),
            Self::Compute75 => ("sm_75", (7, 4)),
            Self::Compute80 => ("sm_80", (7, 4)),
            Self::Compute86 => ("sm_86", (7, 4)),
            Self::Compute89 => ("sm_89", (7, 8)),
            Self::Compute90 => ("sm_90", (7, 8)),
            Self::Compute100 => ("sm_100", (8, 6)),
            Self::Compute120 => ("sm_120", (8, 7)),
        }
    }
}

/// A build of a kernels crate, to be started from a build script.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    kernels: PathBuf,
    arch: NvptxArch,
    copy_to: Option<PathBuf>,
}

/// What a build made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// The PTX, as an absolute path: the file that [`CudaBuilder::copy_to`] names, else one in the target folder.
    pub ptx: PathBuf,
    /// The compiler, as `rustc -V` prints it: `rustc 1.97.0-nightly (e50aa6fba 2026-05-19)`.
    pub rustc: String,
}

/// Why there is no PTX, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no nightly toolchain.
    #[error(
        "compiling GPU kernels needs a nightly Rust toolchain, and none was found; install one with `{command}`"
    )]
    NightlyMissing {
        /// The command that installs what is missing.
        command: String,
    },
    /// There is a nightly toolchain, without the sources of Rust's library.
    #[error(
        "compiling GPU kernels needs the component rust-src, and the toolchain {toolchain} lacks it; \
         install it with `{command}`"
    )]
    RustSrcMissing {
        /// The name of the toolchain.
        toolchain: String,
        /// The command that installs what is missing.
        command: String,
    },
    /// cargo failed: most often the kernels do not compile.
    #[error("cargo could not build the GPU kernels in {}; correct what it says:\n{stderr}", .kernels.display())]
    Cargo {
        /// The folder of the kernels crate.
        kernels: PathBuf,
        /// What cargo and the compiler wrote.
        stderr: String,
    },
    /// The PTX is for something else than what was asked for.
    #[error(
        "{} has `{directive} {got}` where `{directive} {expected}` was asked for; look for a cargo \
         configuration or a compiler wrapper that changes flags",
        .ptx.display()
    )]
    WrongPtx {
        /// The PTX file.
        ptx: PathBuf,
        /// `.target` or `.version`.
        directive: &'static str,
        /// What was asked for.
        expected: String,
        /// What the file says, or nothing.
        got: String,
    },
    /// A variable that cargo sets for build scripts is not set.
    #[error("the environment variable {variable} is not set; call this from a build script")]
    NotABuildScript {
        /// The variable.
        variable: &'static str,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}; check the path and its permissions", .path.display())]
    Io {
        /// What was tried: "read", "write" and so on.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl BuildError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl CudaBuilder {
    /// A build of the crate in the folder `kernels`, which is absolute or relative to the manifest of the
    /// package whose build script this is. The architecture is [`NvptxArch::Compute80`].
    pub fn new(kernels: impl Into<PathBuf>) -> Self {
        Self {
            kernels: kernels.into(),
            arch: NvptxArch::Compute80,
            copy_to: None,
        }
    }

    /// Sets the oldest architecture on which the kernels shall run.
    pub fn arch(mut self, arch: NvptxArch) -> Self {
        self.arch = arch;
        self
    }

    /// Copies the PTX to `path`, which is absolute or relative as in [`CudaBuilder::new`], and creates its
    /// folder; a file with the same content is left as it is.
    pub fn copy_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(path.into());
        self
    }

    /// Builds the PTX where it is not up to date, and tells cargo when to run the build script again.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`]; each says what to do. A script that goes on after an error runs again when
    /// something changes, as after a success.
    pub fn build(self) -> Result<Built, BuildError> {
        let out_dir = PathBuf::from(environment::variable("OUT_DIR")?);
        let kernels =
            fs::canonicalize(&self.kernels).map_err(BuildError::io("find", &self.kernels))?;
        println!("cargo::rerun-if-env-changed=RUSTUP_HOME");
        watch_sources(&kernels)?;
        let toolchain = Toolchain::find()?;

        let target = self.arch.target();
        let (major, minor) = self.arch.ptx_version();
        let flags = [
            format!("-Ctarget-cpu={target}"),
            format!("-Ctarget-feature=+ptx{major}{minor}"),
            // On a GPU, a call and an array that a variable indexes both go through a thread's own memory.
            "-Cllvm-args=-inline-threshold=10000 -unroll-threshold=3000".to_owned(),
            // Panic messages would hold the paths of the sources.
            "-Zlocation-detail=none".into(),
        ];
        // A build that differs in any of these must not take another's results for its own.
        let mut hasher = DefaultHasher::new();
        (&kernels, &toolchain.version, &flags, PROFILE).hash(&mut hasher);
        let name = kernels.file_name().unwrap_or_default().to_string_lossy();
        let folder = outer_target_dir(&out_dir)
            .join("cuda-builder")
            .join(format!("{name}-{target}-{:016x}", hasher.finish()));
        let ptx = folder.join(format!("{name}.ptx"));

        let mut command = toolchain.cargo()?;
        command
            .current_dir(&kernels)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .args([
                "rustc",
                "--release",
                "--locked",
                "-Zbuild-std=core",
                "--target",
                TARGET,
            ])
            // A static library is optimised as a whole, and is the one such product that takes no linker.
            .args([
                "--lib",
                "--crate-type=staticlib",
                "--color=never",
                "--target-dir",
            ])
            .arg(&folder);
        for setting in PROFILE {
            command
                .arg("--config")
                .arg(format!("profile.release.{setting}"));
        }
        let mut emit = OsString::from("--emit=asm=");
        emit.push(&ptx);
        command.arg("--").arg(emit);
        run(&mut command, &kernels)?;

        let text = fs::read_to_string(&ptx).map_err(BuildError::io("read", &ptx))?;
        expect_directive(&text, ".target", target, &ptx)?;
        expect_directive(&text, ".version", &format!("{major}.{minor}"), &ptx)?;
        let ptx = match self.copy_to {
            Some(copy) => {
                let copy = path::absolute(&copy).map_err(BuildError::io("find", &copy))?;
                write_if_changed(&copy, &text)?;
                copy
            }
            None => ptx,
        };
        Ok(Built {
            ptx,
            rustc: toolchain.rustc().to_owned(),
        })
    }
}

/// The folder above those of the profiles: `OUT_DIR` is `<folder>/<profile>/build/…`.
fn outer_target_dir(out_dir: &Path) -> &Path {
    let build = out_dir
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "build"));
    build
        .and_then(|build| build.parent()?.parent())
        .unwrap_or(out_dir)
}

/// Has cargo run the build script again when the kernels crate or one of its path dependencies changes.
fn watch_sources(kernels: &Path) -> Result<(), BuildError> {
    let mut command = environment::outer("CARGO")?;
    command
        .current_dir(kernels)
        .env("RUSTC", environment::variable("RUSTC")?)
        .args([
            "tree",
            "--locked",
            "--target",
            TARGET,
            "--edges=normal,build",
            "--color=never",
        ])
        .args(["--prefix=none", "--format={p}"]);
    for package in run(&mut command, kernels)?
        .lines()
        .filter_map(package_folder)
    {
        for part in ["Cargo.toml", "build.rs", "src"] {
            watch(&package.join(part));
        }
    }
    if let Some(workspace) = kernels
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file())
    {
        watch(&workspace.join("Cargo.lock"));
        watch(&workspace.join("Cargo.toml"));
    }
    Ok(())
}

/// Has cargo run the build script again when the file, or anything in the folder, changes. What does not
/// exist is left out, since cargo would take it for a change each time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The folder in a line of `cargo tree` as `name v1.0.0 (proc-macro) (/folder)`; none for a registry's package.
fn package_folder(line: &str) -> Option<&Path> {
    let line = line.strip_suffix(" (*)").unwrap_or(line);
    let (_, source) = line.split_once(" (")?;
    let source = source.strip_prefix("proc-macro) (").unwrap_or(source);
    let folder = Path::new(source.strip_suffix(')')?);
    folder.is_absolute().then_some(folder)
}

/// Runs cargo to its end and returns its output.
fn run(command: &mut Command, kernels: &Path) -> Result<String, BuildError> {
    let output = command
        .output()
        .map_err(BuildError::io("run", Path::new(command.get_program())))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_owned();
        return Err(BuildError::Cargo {
            kernels: kernels.to_owned(),
            stderr,
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks the first line that starts with `directive`.
fn expect_directive(
    text: &str,
    directive: &'static str,
    expected: &str,
    ptx: &Path,
) -> Result<(), BuildError> {
    let got = text
        .lines()
        .find_map(|line| line.strip_prefix(directive))
        .unwrap_or_default()
        .trim();
    if got == expected {
        return Ok(());
    }
    Err(BuildError::WrongPtx {
        ptx: ptx.to_owned(),
        directive,
        expected: expected.to_owned(),
        got: got.to_owned(),
    })
}

fn write_if_changed(path: &Path, text: &str) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
    }
    fs::write(path, text).map_err(BuildError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_folders() {
        let folder = |line| package_folder(line).and_then(Path::to_str);
        assert_eq!(
            folder("kernels v0.1.0 (/a/kernels (new))"),
            Some("/a/kernels (new)")
        );
        assert_eq!(
            folder("macros v0.1.0 (proc-macro) (/a/macros) (*)"),
            Some("/a/macros")
        );
        assert_eq!(folder("quote v1.0.0"), None);
        assert_eq!(folder("derive v1.0.0 (proc-macro)"), None);
        assert_eq!(
            folder("other v1.0.0 (https://example.org/other#0123abcd)"),
            None
        );
    }

    #[test]
    fn outer_target_dirs() {
        let folder = |out_dir| outer_target_dir(Path::new(out_dir)).to_str().unwrap();
        assert_eq!(
            folder("/build/p/target/debug/build/p-0123/out"),
            "/build/p/target"
        );
        assert_eq!(
            folder("/t/x86_64-unknown-linux-gnu/release/build/p-0123/out"),
            "/t/x86_64-unknown-linux-gnu"
        );
        assert_eq!(folder("/t/debug/build/p/0123/out"), "/t");
        assert_eq!(folder("/elsewhere/out"), "/elsewhere/out");
    }

    #[test]
    fn directives() {
        let ptx = "//\n.version 7.4\n.target sm_80\n";
        let check =
            |directive, expected| expect_directive(ptx, directive, expected, Path::new("a.ptx"));
        check(".target", "sm_80").unwrap();
        check(".version", "7.4").unwrap();
        let error = check(".target", "sm_8").unwrap_err().to_string();
        assert!(
            error.starts_with("a.ptx has `.target sm_80` where `.target sm_8` was asked for"),
            "{error}"
        );
    }
}
