//! What nested commands get of the build script's environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::Command;

use crate::BuildError;

/// A variable that cargo sets for build scripts.
pub(crate) fn variable(name: &'static str) -> Result<OsString, BuildError> {
    env::var_os(name).ok_or(BuildError::NotABuildScript { variable: name })
}

/// A command that inherits nothing which would change what it builds, and for which rustup installs nothing.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if changes_builds(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command
}

/// A clean command for a program of the outer build's toolchain: where that is rustup's stand-in, it chooses
/// as it does in the outer build.
pub(crate) fn outer(variable_of_program: &'static str) -> Result<Command, BuildError> {
    let mut command = clean(variable(variable_of_program)?);
    if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    Ok(command)
}

fn changes_builds(name: &str) -> bool {
    // Where packages and toolchains are, and how they are fetched.
    const KEPT: &[&str] = &[
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "RUSTUP_",
    ];
    const PREFIXES: &[&str] = &["CARGO", "__CARGO", "RUST", "DEP_"];
    const NAMES: &[&str] = &[
        "RUSTUP_TOOLCHAIN",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "OUT_DIR",
        "MAKEFLAGS",
        "MFLAGS",
    ];
    let starts_with = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    NAMES.contains(&name) || starts_with(PREFIXES) && !starts_with(KEPT)
}

#[cfg(test)]
mod tests {
    use super::changes_builds;

    #[test]
    fn what_is_kept() {
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "RUSTUP_HOME",
            "TARGETS",
        ] {
            assert!(!changes_builds(name), "{name}");
        }
        for name in [
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_TARGET",
            "CARGO_PROFILE_RELEASE_LTO",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "RUST_TARGET_PATH",
            "TARGET",
            "DEP_Z_ROOT",
        ] {
            assert!(changes_builds(name), "{name}");
        }
    }
}
