//! The kernels' sources.

use std::borrow::Cow;

use crate::domain::lab::{Format, Kernel, Layout};

macro_rules! shader {
    ($name:literal) => {
        include_str!(concat!("../../assets/shaders/", $name, ".wgsl"))
    };
}

/// The tiny kernel of the dispatch lab.
pub(super) const DISPATCH: &str = shader!("dispatch");

/// Source of a kernel.
pub(super) fn source(kernel: Kernel) -> Cow<'static, str> {
    match kernel {
        Kernel::Copy => shader!("copy").into(),
        Kernel::Read => shader!("read").into(),
        Kernel::Write => shader!("write").into(),
        Kernel::MatVec { format, layout } => {
            let common = shader!("matvec/common");
            let (format, layout_source) = (loads(format, layout.is_vector()), distribution(layout));
            let sources: Vec<&str> = format
                .iter()
                .copied()
                .chain([common, layout_source])
                .collect();
            sources.join("\n").into()
        }
    }
}

/// How weights are loaded; what comes first may hold an `enable`.
const fn loads(format: Format, vector: bool) -> &'static [&'static str] {
    match (format, vector) {
        (Format::F32, false) => &[shader!("matvec/f32_scalar")],
        (Format::F32, true) => &[shader!("matvec/f32_vector")],
        (Format::F16, false) => &["enable f16;", shader!("matvec/f16_scalar")],
        (Format::F16, true) => &[shader!("matvec/f16_vector")],
        (Format::Q4, false) => &[shader!("matvec/q4_common"), shader!("matvec/q4_scalar")],
        (Format::Q4, true) => &[shader!("matvec/q4_common"), shader!("matvec/q4_vector")],
    }
}

/// Weights of one load.
pub(super) const fn chunk(format: Format, vector: bool) -> u64 {
    match (format, vector) {
        (Format::F32 | Format::F16, false) => 1,
        (Format::F32, true) => 4,
        (Format::F16, true) | (Format::Q4, false) => 8,
        (Format::Q4, true) => 32,
    }
}

const fn distribution(layout: Layout) -> &'static str {
    match layout {
        Layout::ThreadPerRow | Layout::ThreadPerRowVector => shader!("matvec/thread_per_row"),
        Layout::GroupPerRow | Layout::GroupPerRowVector => shader!("matvec/group_per_row"),
        Layout::GroupOfSubgroups => shader!("matvec/group_of_subgroups"),
        Layout::SubgroupPerRow => shader!("matvec/subgroup_per_row"),
        Layout::FourRows => shader!("matvec/four_rows"),
        Layout::SubgroupFourRows => shader!("matvec/subgroup_four_rows"),
    }
}

/// Rows that one work group takes at once; `lanes` of a sub-group.
pub(super) fn rows_per_group(layout: Layout, lanes: u32) -> u64 {
    /// As the shaders say.
    const THREADS: u64 = 64;
    const INVOCATIONS: u64 = 128;
    let subgroups = INVOCATIONS.div_ceil(u64::from(lanes.max(1)));
    match layout {
        Layout::ThreadPerRow | Layout::ThreadPerRowVector => THREADS,
        Layout::GroupPerRow | Layout::GroupPerRowVector | Layout::GroupOfSubgroups => 1,
        Layout::SubgroupPerRow => subgroups,
        Layout::FourRows => 4,
        Layout::SubgroupFourRows => 4 * subgroups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vulkan::spirv;

    #[test]
    fn every_kernel_is_valid_wgsl() {
        for kernel in Kernel::all() {
            if let Err(error) = spirv(&source(kernel)) {
                panic!("{kernel}: {error}");
            }
        }
        spirv(DISPATCH).unwrap();
    }

    #[test]
    fn a_row_is_a_whole_number_of_loads() {
        for format in Format::ALL {
            for vector in [false, true] {
                assert_eq!(super::super::data::COLUMNS % chunk(format, vector), 0);
            }
        }
    }
}
