//! The kernels' PTX, split by kernel: the driver compiles what it loads, which takes some 15 ms a kernel.

use ptxscan_kernels::entry::Kernel;
use std::ops::Range;

/// All kernels, as one PTX module.
pub const MODULE: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// The name of each entry of [`MODULE`], and where it is there: to look for it would take milliseconds.
const ENTRIES: &[(&str, Range<usize>)] = include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// A PTX module with one kernel of [`MODULE`], and all that is not an entry there; `None` where it has no such kernel.
#[must_use]
pub fn module(kernel: &Kernel) -> Option<String> {
    let common = &MODULE[..ENTRIES.first()?.1.start];
    let (_, range) = ENTRIES.iter().find(|(name, _)| *name == kernel.name)?;
    Some([common, &MODULE[range.clone()]].concat())
}

/// The value of a directive such as `.target` or `.version` in the module's head.
#[must_use]
pub fn directive(name: &str) -> Option<&'static str> {
    MODULE
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptxscan_kernels::entry::KERNELS;

    #[test]
    fn a_module_has_one_kernel_and_the_head() {
        for kernel in KERNELS {
            let module = module(kernel).expect(kernel.name);
            assert_eq!(module.matches(".entry").count(), 1);
            assert!(module.contains(&format!(".entry {}(", kernel.name)));
            for directive in [
                ".version ",
                ".target ",
                ".address_size ",
                ".extern .shared ",
            ] {
                assert_eq!(
                    module.matches(directive).count(),
                    1,
                    "{directive}in {}",
                    kernel.name
                );
            }
            assert_eq!(module.matches('{').count(), module.matches('}').count());
        }
    }

    #[test]
    fn there_are_as_many_entries_as_kernels() {
        assert_eq!(ENTRIES.len(), KERNELS.len());
    }
}
