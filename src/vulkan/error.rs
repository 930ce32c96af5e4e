//! How a device fails. Every kind is a value: a lab that loses its device has still measured what came before.

use ash::vk;

/// A call that failed, or work that cannot be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GpuError {
    /// The driver gave the device up: a hang, a reset, a card that was pulled.
    #[error("{0}: the device was lost")]
    Lost(&'static str),
    /// The device's memory does not hold it.
    #[error("{0}: out of device memory")]
    OutOfDeviceMemory(&'static str),
    /// The host's memory does not hold it.
    #[error("{0}: out of host memory")]
    OutOfHostMemory(&'static str),
    /// It was still at work after so many seconds.
    #[error("the device did not finish within {0} s")]
    Timeout(u64),
    /// The device cannot do this.
    #[error("the device has no {0}")]
    Missing(&'static str),
    /// A shader of Flux is wrong.
    #[error("the shader is wrong: {0}")]
    Shader(String),
    /// Any other answer, in Vulkan's own words.
    #[error("{0}: {1}")]
    Call(&'static str, vk::Result),
}

impl GpuError {
    /// What `call` answered.
    pub(crate) fn of(call: &'static str, result: vk::Result) -> Self {
        match result {
            vk::Result::ERROR_DEVICE_LOST => Self::Lost(call),
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_POOL_MEMORY => {
                Self::OutOfDeviceMemory(call)
            }
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => Self::OutOfHostMemory(call),
            other => Self::Call(call, other),
        }
    }
}

/// Names the call that failed.
pub(crate) trait Named<T> {
    /// The value, or the failure of `call`.
    fn named(self, call: &'static str) -> Result<T, GpuError>;
}

impl<T> Named<T> for Result<T, vk::Result> {
    fn named(self, call: &'static str) -> Result<T, GpuError> {
        self.map_err(|result| GpuError::of(call, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_name() {
        let said = |result| GpuError::of("vkQueueSubmit", result).to_string();
        assert_eq!(
            said(vk::Result::ERROR_DEVICE_LOST),
            "vkQueueSubmit: the device was lost"
        );
        assert_eq!(
            said(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY),
            "vkQueueSubmit: out of device memory"
        );
        assert_eq!(
            said(vk::Result::ERROR_OUT_OF_HOST_MEMORY),
            "vkQueueSubmit: out of host memory"
        );
        assert!(matches!(
            GpuError::of("vkCreateDevice", vk::Result::ERROR_FEATURE_NOT_PRESENT),
            GpuError::Call("vkCreateDevice", vk::Result::ERROR_FEATURE_NOT_PRESENT)
        ));
    }
}
