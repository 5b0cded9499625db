//! `info`: what there is to compute on.

use super::runner::available_memory;
use super::{Outcome, Result, format};
use ptxscan::Engine;
use std::io::Write;

/// Runs the command.
pub fn run(out: &mut dyn Write) -> Result<Outcome> {
    let engine = Engine::auto();
    writeln!(out, "ptxscan {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(
        out,
        "back end  {} (what --backend auto takes)",
        engine.backend().name()
    )?;
    write!(out, "cpu       {}", Engine::cpu().device_name())?;
    if let Some(bytes) = available_memory() {
        write!(out, ", {} of memory available", format::bytes(bytes))?;
    }
    writeln!(out)?;
    #[cfg(feature = "cuda")]
    super::runner_gpu::info(out)?;
    if let Some(reason) = engine.why_no_gpu() {
        writeln!(out, "no gpu    {reason}")?;
    }
    Ok(Outcome::Good)
}
