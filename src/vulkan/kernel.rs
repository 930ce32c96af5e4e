//! Compute kernels from WGSL: naga makes SPIR-V of it, for any driver of Vulkan 1.1.

use std::rc::Rc;

use ash::vk;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use super::buffer::Buffer;
use super::device::{Device, Gpu};
use super::error::{GpuError, Named};

/// Every shader's entry point.
const ENTRY: &str = "main";
/// The SPIR-V of Vulkan 1.1: the first with sub-groups.
const SPIRV_VERSION: (u8, u8) = (1, 3);

/// What `Gpu::open` enables where a device has it; naga may not use more.
const ENABLED: [spv::Capability; 6] = [
    spv::Capability::Shader,
    spv::Capability::Float16,
    spv::Capability::StorageBuffer16BitAccess,
    spv::Capability::UniformAndStorageBuffer16BitAccess,
    spv::Capability::GroupNonUniform,
    spv::Capability::GroupNonUniformArithmetic,
];

/// A shader with what it is called with: storage buffers 0, 1, … of group 0, and 32-bit immediates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shader<'a> {
    pub(crate) wgsl: &'a str,
    pub(crate) buffers: u32,
    pub(crate) immediates: u32,
}

/// SPIR-V of a shader. Indices are not checked: Flux's own shaders stay inside their buffers, and checks cost time.
pub(crate) fn spirv(wgsl: &str) -> Result<Vec<u32>, GpuError> {
    let wrong = |what: String| GpuError::Shader(what);
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| wrong(e.emit_to_string(wgsl)))?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SUBGROUP
        | Capabilities::SHADER_FLOAT16
        // Unpacking halves is core SPIR-V.
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .subgroup_stages(ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|e| wrong(e.emit_to_string(wgsl)))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: SPIRV_VERSION,
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        capabilities: Some(ENABLED.into_iter().collect()),
        use_storage_input_output_16: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let entry = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: ENTRY.to_owned(),
    };
    spv::write_vec(&module, &info, &options, Some(&entry)).map_err(|e| wrong(e.to_string()))
}

/// A compute pipeline.
pub(crate) struct Kernel {
    device: Rc<Device>,
    layout: vk::DescriptorSetLayout,
    pub(super) pipeline_layout: vk::PipelineLayout,
    pub(super) pipeline: vk::Pipeline,
    buffers: u32,
    pub(super) immediates: u32,
}

impl Kernel {
    /// Compiles a shader for a device.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn new(gpu: &Gpu, shader: &Shader) -> Result<Self, GpuError> {
        if gpu.physical.version < vk::API_VERSION_1_1 {
            return Err(GpuError::Missing("Vulkan 1.1"));
        }
        let code = spirv(shader.wgsl)?;
        let raw = &gpu.device.raw;
        let mut kernel = Self {
            device: Rc::clone(&gpu.device),
            layout: vk::DescriptorSetLayout::null(),
            pipeline_layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
            buffers: shader.buffers,
            immediates: shader.immediates,
        };
        let bindings: Vec<_> = (0..shader.buffers)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let constants = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(4 * shader.immediates)];
        let layout = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let module = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the device is alive, the code is valid SPIR-V for its version and features (naga validated the shader,
        // the caller asked `Features`); what is made is destroyed in `drop`, the module at once.
        unsafe {
            kernel.layout = raw
                .create_descriptor_set_layout(&layout, None)
                .named("vkCreateDescriptorSetLayout")?;
            let layouts = [kernel.layout];
            let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
            if shader.immediates > 0 {
                info = info.push_constant_ranges(&constants);
            }
            kernel.pipeline_layout = raw
                .create_pipeline_layout(&info, None)
                .named("vkCreatePipelineLayout")?;
            let module = raw
                .create_shader_module(&module, None)
                .named("vkCreateShaderModule")?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(kernel.pipeline_layout);
            let made = raw.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            raw.destroy_shader_module(module, None);
            let made = made.map_err(|(_, e)| e).named("vkCreateComputePipelines")?;
            kernel.pipeline = made.first().copied().unwrap_or_default();
        }
        Ok(kernel)
    }

    /// Binds the first bytes of these buffers, in the shader's order.
    ///
    /// # Panics
    /// Another number of buffers than the shader has, or a buffer that is smaller.
    #[expect(unsafe_code, reason = "Vulkan calls")]
    pub(crate) fn bind<'a>(&'a self, buffers: &[(&'a Buffer, u64)]) -> Result<Bound<'a>, GpuError> {
        assert_eq!(buffers.len(), self.buffers as usize);
        assert!(buffers.iter().all(|(buffer, bytes)| *bytes <= buffer.size));
        let raw = &self.device.raw;
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(self.buffers)];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(1)
            .pool_sizes(&sizes);
        // SAFETY: the device is alive; the pool is destroyed in `drop`.
        let pool =
            unsafe { raw.create_descriptor_pool(&info, None) }.named("vkCreateDescriptorPool")?;
        let mut bound = Bound {
            kernel: self,
            pool,
            set: vk::DescriptorSet::null(),
        };
        let layouts = [self.layout];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(pool)
            .set_layouts(&layouts);
        // SAFETY: the pool has room for one set of this layout.
        let sets =
            unsafe { raw.allocate_descriptor_sets(&info) }.named("vkAllocateDescriptorSets")?;
        bound.set = sets.first().copied().unwrap_or_default();
        let ranges: Vec<_> = buffers
            .iter()
            .map(|(buffer, bytes)| {
                [vk::DescriptorBufferInfo::default()
                    .buffer(buffer.handle)
                    .range(*bytes)]
            })
            .collect();
        let writes: Vec<_> = (0..)
            .zip(&ranges)
            .map(|(binding, range)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(bound.set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(range)
            })
            .collect();
        // SAFETY: the set is in no submission yet; the buffers outlive it by `'a`.
        unsafe { raw.update_descriptor_sets(&writes, &[]) };
        Ok(bound)
    }
}

impl Drop for Kernel {
    #[expect(unsafe_code, reason = "the end of the kernel")]
    fn drop(&mut self) {
        if self.device.is_hung() {
            return;
        }
        let raw = &self.device.raw;
        // SAFETY: every submission that used it was waited for; null handles are ignored.
        unsafe {
            raw.destroy_pipeline(self.pipeline, None);
            raw.destroy_pipeline_layout(self.pipeline_layout, None);
            raw.destroy_descriptor_set_layout(self.layout, None);
        }
    }
}

/// A kernel with its buffers.
pub(crate) struct Bound<'a> {
    pub(super) kernel: &'a Kernel,
    pool: vk::DescriptorPool,
    pub(super) set: vk::DescriptorSet,
}

impl Drop for Bound<'_> {
    #[expect(unsafe_code, reason = "the end of the descriptor set")]
    fn drop(&mut self) {
        if self.kernel.device.is_hung() {
            return;
        }
        // SAFETY: every submission that used it was waited for; the set goes with its pool.
        unsafe {
            self.kernel
                .device
                .raw
                .destroy_descriptor_pool(self.pool, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_shader_is_told_with_its_line() {
        let error = spirv("@compute @workgroup_size(1) fn main() { let a = b; }").unwrap_err();
        assert!(
            error.to_string().contains("no definition in scope"),
            "{error}"
        );
    }

    /// Word 0 is SPIR-V's magic number, word 1 its version.
    #[test]
    fn a_shader_becomes_spirv_of_vulkan_1_1() {
        let code = spirv("@compute @workgroup_size(1) fn main() {}").unwrap();
        assert_eq!(code[..2], [0x0723_0203, 0x0001_0300]);
    }
}
