//! A kernel through `cuda_std`'s views is the same instructions as its twin through bare pointers.

use libtest_mimic::{Arguments, Failed, Trial};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/twins.ptx"));
const PAIRS: [&str; 3] = ["vectors", "guarded", "exchange"];

fn main() {
    let arguments = Arguments::from_args();
    let built = !PTX.starts_with("// not built");
    if !built {
        println!("{PTX}");
    }
    let trials = PAIRS
        .map(|pair| Trial::test(format!("twins::{pair}"), || same(pair)).with_ignored_flag(!built))
        .into();
    libtest_mimic::run(&arguments, trials).exit();
}

fn same(pair: &str) -> Result<(), Failed> {
    let body = |which: &str| {
        let name = format!("{pair}_{which}(");
        PTX.split(".visible .entry ")
            .find(|entry| entry.starts_with(&name))
            .ok_or(format!("no entry {pair}_{which} in the PTX"))
    };
    let (views, bare) = (body("views")?, body("bare")?);
    let instructions = instructions(views);
    for access in ["ld.global", "st.global"] {
        if !instructions.iter().any(|line| line.starts_with(access)) {
            return Err(format!("{pair}_views has no {access}:\n{views}").into());
        }
    }
    if instructions != self::instructions(bare) {
        return Err(format!("through views:\n{views}\nthrough bare pointers:\n{bare}").into());
    }
    Ok(())
}

/// The instructions of an entry, sorted (independent ones can come in any order), without the numbers of registers and
/// labels.
fn instructions(entry: &str) -> Vec<String> {
    let (_, body) = entry.split_once("\n{").expect("an entry has a body");
    let (body, _) = body.split_once("\n}").expect("an entry ends");
    let mut lines: Vec<String> = body
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('.') && !line.ends_with(':'))
        .map(|line| {
            let mut text = String::new();
            let mut name = false;
            for c in line.chars() {
                if c == '%' || c == '$' || c == '[' {
                    name = true;
                } else if !c.is_ascii_alphanumeric() && c != '_' {
                    name = false;
                }
                // The numbers of registers, labels and parameters' names; constants stay.
                if !(name && c.is_ascii_digit()) {
                    text.push(c);
                }
            }
            text.replace("_views", "").replace("_bare", "")
        })
        .collect();
    lines.sort();
    lines
}
