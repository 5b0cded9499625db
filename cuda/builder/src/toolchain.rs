//! The choice of a toolchain that can build `core`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::{BuildError, environment, watch};

pub(crate) struct Toolchain {
    sysroot: PathBuf,
    /// What `rustc -vV` prints.
    pub(crate) version: String,
}

impl Toolchain {
    /// The outer build's toolchain where it will do, else rustup's `nightly`.
    pub(crate) fn find() -> Result<Self, BuildError> {
        let own = environment::outer("RUSTC")?;
        let own_name = env::var("RUSTUP_TOOLCHAIN").ok();
        let mut nightly = environment::clean("rustup");
        nightly.args(["run", "nightly", "rustc"]);

        let mut without_sources = None;
        for (name, rustc) in [(own_name, own), (None, nightly)] {
            let Some(toolchain) = Self::of(rustc).filter(Self::is_nightly) else {
                continue;
            };
            if toolchain
                .sysroot
                .join("lib/rustlib/src/rust/library/Cargo.lock")
                .is_file()
            {
                return Ok(toolchain);
            }
            without_sources = Some(name.unwrap_or_else(|| "nightly".into()));
        }
        Err(match without_sources {
            Some(toolchain) => BuildError::RustSrcMissing {
                command: format!("rustup component add rust-src --toolchain {toolchain}"),
                toolchain,
            },
            None => BuildError::NightlyMissing {
                command: "rustup toolchain install nightly --component rust-src".into(),
            },
        })
    }

    /// The toolchain of a rustc, where that runs. The build script runs again when it is updated or gets
    /// another component.
    fn of(mut rustc: Command) -> Option<Self> {
        let sysroot = PathBuf::from(output(rustc.args(["--print", "sysroot"]))?.trim_end());
        watch(&sysroot.join("bin/rustc"));
        watch(&sysroot.join("lib/rustlib/components"));
        let version = output(environment::clean(sysroot.join("bin/rustc")).arg("-vV"))?;
        Some(Self { sysroot, version })
    }

    fn is_nightly(&self) -> bool {
        let release = self
            .version
            .lines()
            .find_map(|line| line.strip_prefix("release: "));
        release.is_some_and(|release| release.ends_with("-nightly") || release.ends_with("-dev"))
    }

    /// What `rustc -V` prints.
    pub(crate) fn rustc(&self) -> &str {
        self.version.lines().next().unwrap_or_default()
    }

    /// A command for the toolchain's cargo, or for the outer build's where it has none.
    pub(crate) fn cargo(&self) -> Result<Command, BuildError> {
        let cargo = self.sysroot.join("bin/cargo");
        let cargo = if cargo.is_file() {
            cargo
        } else {
            environment::variable("CARGO")?.into()
        };
        let mut command = environment::clean(cargo);
        command.env("RUSTC", self.sysroot.join("bin/rustc"));
        Ok(command)
    }
}

/// What a command prints, where it can be run and succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}
