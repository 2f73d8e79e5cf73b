//! Packed weights of a device, shared between engines.

use cpu_engine::{CpuEngine, PackedWeights, WeakWeights};
#[cfg(feature = "gpu")]
use gpu_engine::{Gpu, GpuEngine, GpuOptions, GpuWeights, WeakGpuWeights};
use lm::{Device, EngineSettings, LmConfig, LmError, Tail, TensorSource};
use thiserror::Error;

#[cfg(feature = "gpu")]
use crate::context;
use crate::engine::{Engine, Inner};
use crate::error::Result;
use crate::{engine_options, tune};

/// Error for a device that this program does not support.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device's engine was not built in.
    #[error("device `{0}`: this program was built without its engine")]
    NotBuilt(Device),
    /// The engine finds no such device.
    #[error("device `{device}`")]
    NotFound {
        /// The requested device.
        device: Device,
        /// The engine's error.
        source: LmError,
    },
}

impl DeviceError {
    /// Advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuilt(_) => {
                "build it with `cargo build --release --features gpu`, or decode on the cpu"
            }
            Self::NotFound { .. } => {
                "graphics devices are found through Vulkan (Metal, DX12): the driver and its loader \
                 must be installed (libvulkan.so.1; `vulkaninfo --summary` lists what it finds); \
                 Debian's mesa-vulkan-drivers plays a device on the processor, for tests"
            }
        }
    }
}

/// Packed weights on a device. Clones share the same weights.
#[derive(Clone)]
pub enum Packed {
    /// In memory.
    Cpu(PackedWeights),
    /// On a graphics device.
    #[cfg(feature = "gpu")]
    Gpu(GpuWeights),
}

/// A weak reference to [`Packed`], valid as long as an engine uses them.
#[derive(Clone)]
pub(crate) enum Weak {
    Cpu(WeakWeights),
    #[cfg(feature = "gpu")]
    Gpu(WeakGpuWeights),
}

impl Weak {
    /// The weights, if an engine still uses them.
    pub(crate) fn upgrade(&self) -> Option<Packed> {
        match self {
            Self::Cpu(weights) => weights.upgrade().map(Packed::Cpu),
            #[cfg(feature = "gpu")]
            Self::Gpu(weights) => weights.upgrade().map(Packed::Gpu),
        }
    }
}

/// Options of an engine on a graphics device.
#[cfg(feature = "gpu")]
fn gpu_options(
    index: usize,
    config: &LmConfig,
    settings: EngineSettings,
) -> Result<GpuOptions, DeviceError> {
    let gpu = Gpu::open(index).map_err(|error| DeviceError::NotFound {
        device: settings.device,
        source: error.into(),
    })?;
    Ok(GpuOptions {
        kv: settings.kv,
        max_len: context(config.max_context(), settings),
        threads: settings.threads,
        ..GpuOptions::new(gpu, settings.weights)
    })
}

impl Packed {
    /// Packs the weights of a source for an engine with these settings.
    ///
    /// # Errors
    /// Errors of the source; [`DeviceError`] for a device that this program does not support.
    pub fn new(source: &dyn TensorSource, settings: EngineSettings) -> Result<Self> {
        match settings.device {
            Device::Cpu => {
                let options = engine_options(source.config(), settings);
                Ok(Self::Cpu(PackedWeights::new(source, &options)?))
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(index) => {
                let options = gpu_options(index, source.config(), settings)?;
                Ok(Self::Gpu(GpuWeights::new(source, &options)?))
            }
            #[cfg(not(feature = "gpu"))]
            device => Err(DeviceError::NotBuilt(device).into()),
        }
    }

    /// These weights with other last blocks; the lower blocks are shared. `settings` are those that
    /// they were packed with.
    ///
    /// # Errors
    /// Blocks of another model; [`LmError::OtherModel`] for weights on a graphics device.
    pub fn with_tail(&self, tail: &Tail, settings: EngineSettings) -> Result<Self, LmError> {
        match self {
            Self::Cpu(weights) => {
                let options = engine_options(&tail.config, settings);
                Ok(Self::Cpu(weights.with_tail(tail, &options)?))
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => Err(LmError::OtherModel),
        }
    }

    pub(crate) fn downgrade(&self) -> Weak {
        match self {
            Self::Cpu(weights) => Weak::Cpu(weights.downgrade()),
            #[cfg(feature = "gpu")]
            Self::Gpu(weights) => Weak::Gpu(weights.downgrade()),
        }
    }

    /// An engine that shares these weights; `settings` are those that they were packed with.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn engine(self, config: &LmConfig, settings: EngineSettings) -> Result<Engine> {
        let inner = match self {
            Self::Cpu(weights) => {
                let options = engine_options(config, settings);
                let mut engine = CpuEngine::with_weights(weights, options)?;
                tune(&mut engine, settings.weights);
                Inner::Cpu(Box::new(engine))
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(weights) => {
                let Device::Gpu(index) = settings.device else {
                    return Err(LmError::OtherModel.into());
                };
                let options = gpu_options(index, config, settings)?;
                let mut engine = GpuEngine::with_weights(weights, options)?;
                // On a software device, compiling takes longer than it saves.
                if !engine.gpu().is_software() {
                    engine.prepare()?;
                }
                Inner::Gpu(Box::new(engine))
            }
        };
        Ok(Engine::new(inner, settings.weights))
    }
}

/// Checks that this program supports a device.
///
/// # Errors
/// [`DeviceError`].
pub fn check_device(device: Device) -> Result<(), DeviceError> {
    match device {
        Device::Cpu => Ok(()),
        #[cfg(feature = "gpu")]
        Device::Gpu(index) => match Gpu::open(index) {
            Ok(_) => Ok(()),
            Err(error) => Err(DeviceError::NotFound {
                device,
                source: error.into(),
            }),
        },
        #[cfg(not(feature = "gpu"))]
        device => Err(DeviceError::NotBuilt(device)),
    }
}
