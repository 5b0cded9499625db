//! The suite on the back ends that need no GPU: the sequential reference, and the CPU's.

mod common;

use common::checks::suite;
use common::gradient::ByGradient;
use common::{Backend, Reference, cases, checks, options};
use libtest_mimic::Arguments;
use ptxscan::{Cpu, Engine};
use std::sync::OnceLock;

fn reference() -> Result<&'static dyn Backend, String> {
    Ok(&Reference)
}

fn cpu() -> Result<&'static dyn Backend, String> {
    static CPU: Cpu = Cpu::new();
    Ok(&CPU)
}

fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    Ok(ENGINE.get_or_init(Engine::cpu))
}

fn gradient() -> Result<&'static dyn Backend, String> {
    static GRADIENT: OnceLock<ByGradient> = OnceLock::new();
    let engine = engine()?;
    Ok(GRADIENT.get_or_init(|| ByGradient {
        engine,
        depth: |_, extents| extents.len,
    }))
}

/// More threads than most machines have processors, and a number that divides no extent.
fn threads() -> Result<&'static dyn Backend, String> {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    Ok(CPU.get_or_init(|| Cpu::with_threads(7).expect("seven threads")))
}

fn main() {
    let trials = [
        vec![checks::trial(
            "reference::vectors",
            reference,
            checks::vectors,
        )],
        suite("cpu", cpu),
        vec![checks::trial("cpu::misaligned", cpu, checks::misaligned)],
        options::suite("cpu", engine),
        checks::all_on("cpu::gradient", gradient, cases::all),
        suite("cpu_of_7_threads", threads),
        checks::integers_on("cpu_of_7_threads::many", threads, cases::many),
    ];
    libtest_mimic::run(
        &Arguments::from_args(),
        trials.into_iter().flatten().collect(),
    )
    .exit();
}
