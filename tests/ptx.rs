//! The PTX contract: what the kernels' PTX promises to the host that launches it, and to whoever compiles it.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use ptxscan::gpu::ptx;
use ptxscan::plan::{DeviceLimits, Plan, PlanBuilder};
use ptxscan::{Extents, Operation};
use ptxscan_kernels::entry::{KERNELS, Kernel, Operator, Strategy};
use ptxscan_kernels::tiling::{columns, lanes, narrow};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

type Outcome = Result<Completion, Failed>;

/// Architectures that the PTX is compiled for; the first is the one that it is written for.
const TARGETS: [&str; 5] = ["sm_80", "sm_90", "sm_86", "sm_89", "sm_100"];
/// The targets that a `ptxas` must know to be of use.
const REQUIRED_TARGETS: usize = 2;
/// The version of the PTX: a newer one would ask for a newer driver than that of CUDA 11.4.
const VERSION: &str = "7.4";

fn main() {
    let test = |name: &str, check: fn() -> Outcome| Trial::ignorable_test(name, check);
    let mut trials = vec![
        test("head", head),
        test("entries", entries),
        test("nothing_but_kernels", nothing_but_kernels),
        test("words_of_numbers", words_of_numbers),
        test("checked_in", checked_in),
    ];
    for kernel in KERNELS {
        // The kernels of other types are of the same source.
        if kernel.element == "f32" && !kernel.is_masked {
            trials.push(Trial::ignorable_test(
                format!("instructions::{}", kernel.name),
                || instructions(kernel),
            ));
        }
        for target in TARGETS {
            let name = format!("ptxas::{target}::{}", kernel.name);
            trials.push(Trial::ignorable_test(name, move || compile(kernel, target)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The PTX that the library was built with.
fn built_ptx() -> &'static str {
    ptx::MODULE
}

/// The PTX in the sources, where they can be reached.
fn checked_in_ptx() -> io::Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx/kernels.ptx"))
}

/// The text of a kernel, from the list of its parameters on.
fn text(kernel: &Kernel) -> &'static str {
    let head = format!(".visible .entry {}(", kernel.name);
    let (_, text) = built_ptx().split_once(&head).expect("`entries` holds");
    text.split(".visible .entry ")
        .next()
        .expect("a split has a first part")
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}

fn head() -> Outcome {
    for (name, expected) in [
        (".version", VERSION),
        (".target", TARGETS[0]),
        (".address_size", "64"),
    ] {
        let got = ptx::directive(name);
        ensure(got == Some(expected), || {
            format!("`{name}` is {got:?}, expected {expected}")
        })?;
    }
    Ok(Completion::Completed)
}

/// Each kernel of the table is an entry with as many parameters, of 64 bits each; and there is no other.
fn entries() -> Outcome {
    let mut found = Vec::new();
    for entry in built_ptx().split(".entry ").skip(1) {
        let (name, rest) = entry.split_once('(').ok_or("an entry without parameters")?;
        let (parameters, _) = rest.split_once(')').ok_or("an entry without end")?;
        let kernel = KERNELS.iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or_else(|| format!("the entry {name} is not in the table"))?;
        let parameters: Vec<_> = parameters.split(',').map(str::trim).collect();
        let (got, expected) = (parameters.len(), kernel.parameters.len());
        ensure(got == expected, || {
            format!("{name} has {got} parameters, expected {expected}")
        })?;
        for parameter in parameters {
            ensure(parameter.starts_with(".param .u64 "), || {
                format!("{name}: `{parameter}` is not of 64 bits")
            })?;
        }
        found.push(name);
    }
    for kernel in KERNELS {
        let count = found.iter().filter(|&&name| name == kernel.name).count();
        ensure(count == 1, || {
            format!("{} has {count} entries", kernel.name)
        })?;
    }
    Ok(Completion::Completed)
}

/// No functions, no calls, no variables but the launch's shared memory and constants, no memory of a thread's own where that is not said.
fn nothing_but_kernels() -> Outcome {
    let mut kernel = "";
    for line in built_ptx().lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        if let Some(entry) = code.strip_prefix(".visible .entry ") {
            kernel = entry;
        }
        // What a lane of a split strip keeps of its parts, where their loops are not unrolled.
        let has_local = kernel.contains("_split_columns_");
        let mut words = code.split_whitespace();
        let first = words.next().unwrap_or_default();
        let is_foreign = match first {
            ".visible" => words.next() != Some(".entry"),
            ".extern" => words.next() != Some(".shared"),
            // What the compiler makes of a constant.
            ".global" => !code.contains(" anon_"),
            ".func" | ".const" | ".weak" | ".common" | ".shared" => true,
            _ => first.starts_with("call") || code.contains(".local") && !has_local,
        };
        ensure(!is_foreign, || format!("`{code}`"))?;
    }
    Ok(Completion::Completed)
}

/// No store of the low word of a 64-bit register in kernels of f64: where it holds one, `ptxas` makes a conversion to an integer
/// of it.
fn words_of_numbers() -> Outcome {
    let of_f64 = |kernel: &&Kernel| text(kernel).contains(".f64");
    for kernel in KERNELS.iter().filter(of_f64) {
        for line in text(kernel).lines() {
            let is_store = line.trim_start().starts_with("st.");
            let is_narrow = [".b32", ".b16", ".b8"]
                .iter()
                .any(|width| line.contains(width));
            let of_wide = line.contains("], %rd") || line.contains("], {%rd");
            ensure(!(is_store && is_narrow && of_wide), || {
                format!("{}: `{line}`", kernel.name)
            })?;
        }
    }
    ensure(KERNELS.iter().any(|kernel| of_f64(&kernel)), || {
        "no kernel computes in f64".into()
    })?;
    Ok(Completion::Completed)
}

/// What the strategy of a kernel stands on.
fn instructions(kernel: &Kernel) -> Outcome {
    let text = text(kernel);
    let lines = |parts: &[&str]| {
        text.lines()
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .count()
    };
    let at_least = |count: usize, parts: &[&str]| {
        let got = lines(parts);
        ensure(got >= count, || {
            format!(
                "{}: {got} instructions {parts:?}, expected {count} or more",
                kernel.name
            )
        })
    };
    let none = |parts: &[&str]| {
        ensure(lines(parts) == 0, || {
            format!("{}: there are instructions {parts:?}", kernel.name)
        })
    };
    let first = kernel.parameters.iter().position(|&name| name == "initial");
    let arrays = first.ok_or("a kernel takes initial states")?;
    let outputs = if kernel.is_gradient { 2 } else { 1 };
    let inputs = arrays - outputs;
    if kernel.strategy != Strategy::SplitColumns {
        at_least(1, &["vote.sync"])?;
    }
    match kernel.strategy {
        Strategy::Rows => {
            // One before the warps' aggregates are read, one in the turns of a replay.
            at_least(2, &["bar.sync"])?;
            at_least(5, &["shfl.sync.up"])?;
            at_least(2, &["shfl.sync.idx"])?;
            at_least(inputs, &["ld.global", ".v4"])?;
            at_least(outputs, &["st.global", ".v4"])?;
        }
        Strategy::SplitRows | Strategy::SplitColumns => {
            at_least(2, &["bar.sync"])?;
            at_least(inputs, &["cp.async", ".shared.global", "], 16"])?;
            at_least(2, &["cp.async.commit_group"])?;
            // Tickets, and what is published and looked for.
            at_least(2, &["atom.relaxed.gpu.global.add.u64"])?;
            at_least(1, &["st.relaxed.gpu.global.b64"])?;
            at_least(2, &["ld.relaxed.gpu.global.b64"])?;
        }
        Strategy::ShortRows => {
            none(&["bar.sync"])?;
            // Of vectors, and of pieces.
            at_least(2 * inputs, &["ld.global.L1::no_allocate", ".v4"])?;
            at_least(2, &["st.global.L1::no_allocate", ".v4"])?;
            at_least(2, &["bar.warp.sync"])?;
        }
        Strategy::Lanes => {
            none(&["bar.sync"])?;
            // A whole run of steps, and some of one.
            let runs = 2 * columns::STEPS * inputs;
            let width = (lanes::channels(kernel.element_bytes) * kernel.element_bytes) / 4;
            let vector = [".b64", ".v4.b32"][usize::from(width == 4)];
            at_least(runs, &["ld.global.L1::no_allocate", vector])?;
            at_least(columns::STEPS, &["st.global.L1::no_allocate", vector])?;
        }
        Strategy::Narrow => {
            // Before steps, aggregates and results are read, and for the vote.
            at_least(4, &["bar.sync"])?;
            at_least(3, &["bar.warp.sync"])?;
            at_least(inputs, &["cp.async", ".shared.global", "], 16"])?;
            at_least(inputs, &["cp.async", ".shared.global", "], 4"])?;
            at_least(1, &["st.global.L1::no_allocate", ".v4.b32"])?;
            for pending in 1..narrow::MAX_STAGES {
                at_least(1, &[&format!("cp.async.wait_group {pending};")])?;
            }
        }
        Strategy::Columns => {
            // Before the aggregates are read, and in a replay.
            at_least(2, &["bar.sync"])?;
            at_least(1, &["bar.warp.sync"])?;
            at_least(inputs, &["cp.async", ".shared.global", "], 16"])?;
            at_least(inputs, &["cp.async", ".shared.global", "], 4"])?;
            at_least(2, &["cp.async.commit_group"])?;
            for pending in 0..columns::MAX_STAGES - 1 {
                at_least(1, &[&format!("cp.async.wait_group {pending};")])?;
            }
        }
    }
    // Each rounding is as the source has it: what is not `.rn` the assembler may fuse.
    for operation in ["add.f32", "mul.f32", "add.ftz", "mul.ftz", "approx"] {
        none(&[operation])?;
    }
    match kernel.operator {
        Operator::Cumsum => at_least(1, &["add.rn.f32"])?,
        Operator::AffineScan if kernel.is_gradient => {
            at_least(1, &["add.rn.f32"])?;
            at_least(1, &["mul.rn.f32"])?;
            at_least(1, &["fma.rn.f32"])?;
        }
        Operator::AffineScan => at_least(1, &["fma.rn.f32"])?,
    }
    // Only the sanctioned forms of what synchronises, and no wider arithmetic than that of the elements.
    for operation in [
        "shfl.up",
        "shfl.idx",
        "vote.all",
        "vote.any",
        "membar.sys",
        "fence.sc",
        ".f64",
    ] {
        none(&[operation])?;
    }
    Ok(Completion::Completed)
}

/// The PTX in the sources is what they give, where the same compiler made both.
fn checked_in() -> Outcome {
    let Ok(checked_in) = checked_in_ptx() else {
        return Ok(Completion::ignored_with("the sources are not here"));
    };
    let compiler = |ptx: &str| {
        ptx.lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("// ")
            .to_owned()
    };
    let (theirs, ours) = (compiler(&checked_in), compiler(built_ptx()));
    if theirs != ours {
        return Ok(Completion::ignored_with(format!(
            "nothing was compared: it is of {theirs}, this of {ours}"
        )));
    }
    let difference = checked_in
        .lines()
        .zip(built_ptx().lines())
        .position(|(theirs, ours)| theirs != ours);
    ensure(checked_in == built_ptx(), || {
        let line = difference.map_or("the end".to_owned(), |line| format!("line {}", line + 1));
        format!("host/ptx/kernels.ptx is not what the sources give, from {line} on")
    })?;
    Ok(Completion::Completed)
}

/// `ptxas`: what `PTXAS` names, else the one on the path, else that of a CUDA installation.
fn find_ptxas() -> Option<PathBuf> {
    let of_installation =
        |variable| env::var_os(variable).map(|home| Path::new(&home).join("bin/ptxas"));
    let candidates = [
        env::var_os("PTXAS").map(PathBuf::from),
        Some("ptxas".into()),
        of_installation("CUDA_HOME"),
        of_installation("CUDA_PATH"),
    ];
    let runs = |ptxas: &PathBuf| {
        Command::new(ptxas)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    candidates.into_iter().flatten().find(runs)
}

/// What is disassembled.
const DISASSEMBLED: &str = "sm_90";

/// Accesses with a cache policy name a descriptor, a pair of uniform registers. Where they run out, `ptxas` 13.0 can name an odd one, which
/// is none: an illegal instruction, if it is ever met. Nothing is looked at without an `nvdisasm`, named by `NVDISASM`.
fn descriptors_exist(cubin: &Path) -> Result<(), Failed> {
    let nvdisasm = env::var_os("NVDISASM").filter(|path| !path.is_empty());
    let Some(nvdisasm) = nvdisasm else {
        return Ok(());
    };
    let output = Command::new(nvdisasm).arg("-c").arg(cubin).output()?;
    ensure(output.status.success(), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    let code = String::from_utf8_lossy(&output.stdout);
    let mut named = 0;
    for line in code.lines() {
        let Some((_, rest)) = line.split_once("desc[UR") else {
            continue;
        };
        named += 1;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        // 63 is the register that is always 0.
        let is_pair = number
            .parse::<u32>()
            .is_ok_and(|number| number < 62 && number.is_multiple_of(2));
        ensure(is_pair, || format!("no such descriptor: {}", line.trim()))?;
    }
    ensure(named > 0, || "no access names a descriptor".to_owned())
}

/// `ptxas` accepts a kernel's module, as the driver gets it, and compiles it with the plan's registers, which are enough.
fn compile(kernel: &'static Kernel, target: &str) -> Outcome {
    let Some(ptxas) = find_ptxas() else {
        return Ok(Completion::ignored_with(
            "no ptxas: not in PTXAS, on the path, or in CUDA_HOME",
        ));
    };
    let help = Command::new(&ptxas).arg("--help").output()?.stdout;
    if !String::from_utf8_lossy(&help).contains(&format!("'{target}'")) {
        let is_required = TARGETS[..REQUIRED_TARGETS].contains(&target);
        ensure(!is_required, || {
            format!("{} does not know {target}", ptxas.display())
        })?;
        return Ok(Completion::ignored_with(format!(
            "this ptxas does not know {target}"
        )));
    }
    let registers = planned_registers(kernel);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kernel.ptx");
    fs::write(
        &path,
        ptx::module(kernel).ok_or("the module lacks the kernel")?,
    )?;
    let output = Command::new(&ptxas)
        .args([
            "--verbose",
            "--gpu-name",
            target,
            "--maxrregcount",
            &registers.to_string(),
            "--output-file",
        ])
        .arg(folder.path().join("kernel.cubin"))
        .arg(&path)
        .output()?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    ensure(output.status.success(), || report.clone())?;
    if target == DISASSEMBLED {
        descriptors_exist(&folder.path().join("kernel.cubin"))?;
    }

    // A few words are spilled where rows are scanned again in serial order, and in some kernels of 8-byte elements.
    // Those that find what enters tiles of 8-byte elements have more to remember than registers: the aggregates that they asked for.
    let most = match (kernel.element_bytes, kernel.strategy) {
        (8, Strategy::SplitRows) => 3072,
        (8, Strategy::SplitColumns) => 640,
        // Three inputs, strides, and a mask: for compute capability 8.0 ptxas spills more of that than elsewhere.
        (_, Strategy::Columns) if kernel.is_gradient && kernel.is_masked && target == "sm_80" => {
            208
        }
        // Of two inputs, what joins tiles.
        (_, Strategy::Lanes) => 168,
        (8, _) => 128,
        // Three inputs or a mask, and what a group of tiles is found by.
        _ if kernel.is_gradient || kernel.is_masked => 88,
        // What shared memory holds of a lane's vectors of 8 elements.
        (2, Strategy::ShortRows) if target == "sm_80" => 64,
        // Before compute capability 9.0, of two inputs, also what tiles side by side are found by.
        (_, Strategy::SplitColumns | Strategy::Narrow) => 76,
        _ => 44,
    };
    let spilled: u32 = report
        .split_once(" bytes spill stores")
        .and_then(|(before, _)| before.rsplit(' ').next())
        .ok_or_else(|| format!("no number of spills:\n{report}"))?
        .parse()?;
    ensure(spilled <= most, || {
        format!("{spilled} bytes are spilled, expected {most} at most:\n{report}")
    })?;
    let used = report
        .split_once("Used ")
        .and_then(|(_, rest)| rest.split_whitespace().next());
    let used: u32 = used
        .ok_or_else(|| format!("no number of registers:\n{report}"))?
        .parse()?;
    ensure(used <= registers, || {
        format!("{used} registers, expected {registers} at most")
    })?;
    Ok(Completion::Completed)
}

/// The most registers that a thread of the kernel may have, says a plan that launches it.
fn planned_registers(kernel: &'static Kernel) -> u32 {
    let inner = match kernel.strategy {
        Strategy::Rows | Strategy::SplitRows | Strategy::ShortRows => 1,
        Strategy::Columns | Strategy::SplitColumns | Strategy::Lanes | Strategy::Narrow => 2,
    };
    let extents = Extents {
        outer: 1,
        len: if kernel.strategy == Strategy::ShortRows {
            16
        } else {
            1 << 20
        },
        inner,
    };
    let limits = DeviceLimits {
        multiprocessors: 132,
        shared_bytes_per_multiprocessor: 228 << 10,
        shared_bytes_per_block: 227 << 10,
        shared_bytes_reserved: 1 << 10,
    };
    let operation = Operation::new(kernel.operator, kernel.direction);
    let plan = PlanBuilder::new(operation, kernel.element, extents)
        .gradient(kernel.is_gradient)
        .masked(kernel.is_masked)
        .strategy(Some(kernel.strategy))
        .build(&limits);
    match plan {
        Some(Plan::Scan { launches, .. }) => {
            assert_eq!(launches[0].kernel, kernel, "the plan launches it first");
            launches[0].registers
        }
        other => panic!("{}: {other:?} is no launch", kernel.name),
    }
}
