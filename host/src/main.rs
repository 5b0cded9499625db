//! `ptxscan`: scans of .npy files, a demonstration and a benchmark.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
