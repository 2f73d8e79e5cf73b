//! The engine under measurement, with weights of a model or random ones of a shape.

use anyhow::Result;
#[cfg(feature = "gpu")]
use anyhow::{Context, bail};
use clap::ValueEnum;
#[cfg(feature = "gpu")]
use cpu_engine::KernelChoice;
use cpu_engine::{CpuEngine, EngineOptions, MemoryProbe};
#[cfg(feature = "gpu")]
use gpu_engine::{Gpu, GpuEngine, GpuOptions, GpuProbe};
use lm::{Device, LanguageModel, LmConfig, TensorSource, WeightType};
use serde::Serialize;

/// Bytes read to measure bandwidth: several times the largest cache of common processors.
const PROBE_BYTES: usize = 256 << 20;
/// The same on a graphics device, whose caches may be as large as [`PROBE_BYTES`].
#[cfg(feature = "gpu")]
const GPU_PROBE_BYTES: usize = 1 << 30;

/// Order in which the processor reads weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WalkName {
    /// The order kept from an earlier measurement; measured now and kept if there is none.
    Kept,
    /// Measured anew and kept.
    Measured,
    /// The order of the processors that the kernels were written on.
    Usual,
}

/// All launches of one kind in a pass of a graphics device.
#[derive(Debug, Serialize)]
pub(super) struct StepTime {
    pub(super) name: &'static str,
    pub(super) launches: usize,
    pub(super) ms: f64,
}

/// A pass of a graphics device, timed by its own clock.
#[derive(Debug, Serialize)]
pub(super) struct PassTime {
    /// Number of rows that it computes.
    pub(super) rows: usize,
    /// Outputs per group of units of a projection, and groups per cube.
    pub(super) cubes: [usize; 2],
    pub(super) launches: usize,
    /// From the first launch to the end of the last one.
    pub(super) ms: f64,
    pub(super) steps: Vec<StepTime>,
}

/// Facts about a graphics device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceFacts {
    /// Name from its driver.
    pub(super) name: String,
    /// Programming interface through which it is used.
    pub(super) interface: &'static str,
    /// Number types beyond f32 that its shaders support.
    pub(super) types: Vec<&'static str>,
    /// Maximum size of a buffer, in bytes.
    pub(super) buffer_bytes: usize,
    /// Bytes of memory that the units of a cube share.
    pub(super) shared_bytes: usize,
    /// Minimum and maximum number of units of a subgroup.
    pub(super) subgroup: [u32; 2],
}

/// An engine under measurement.
pub(super) enum Subject {
    Cpu(Box<CpuEngine>),
    #[cfg(feature = "gpu")]
    Gpu(Box<GpuEngine>),
}

/// A measurement of the read bandwidth of a device's memory.
pub(super) enum Probe {
    Cpu(MemoryProbe),
    #[cfg(feature = "gpu")]
    Gpu(GpuProbe),
}

impl Subject {
    /// Builds an engine on a device, whose weights are opened after a check of the device. A
    /// graphics device uses only the options for weights, cache, length and threads.
    pub(super) fn new(
        open: impl FnOnce() -> Result<Box<dyn TensorSource>>,
        options: EngineOptions,
        device: Device,
    ) -> Result<Self> {
        models::check_device(device)?;
        match device {
            #[cfg(feature = "gpu")]
            Device::Gpu(index) => {
                if options.kernels != KernelChoice::Auto {
                    bail!("--kernels chooses among those of the processor");
                }
                let gpu = Gpu::open(index).context("--device")?;
                let options = GpuOptions {
                    kv: options.kv,
                    max_len: options.max_len,
                    threads: options.threads,
                    ..GpuOptions::new(gpu, options.weights)
                };
                let engine = GpuEngine::new(&*open()?, options)?;
                Ok(Self::Gpu(Box::new(engine)))
            }
            _ => Ok(Self::Cpu(Box::new(CpuEngine::new(&*open()?, options)?))),
        }
    }

    /// Chooses the order in which the processor reads weights, and describes it; `None` on a
    /// graphics device.
    pub(super) fn tune(&mut self, walk: WalkName, weights: WeightType) -> Option<String> {
        match self {
            Self::Cpu(engine) => {
                match walk {
                    WalkName::Kept => models::tune(engine, weights),
                    WalkName::Measured => models::tune_again(engine, weights),
                    WalkName::Usual => {}
                }
                Some(engine.walk().to_string())
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => None,
        }
    }

    /// Compiles the kernels of a graphics device.
    pub(super) fn prepare(&mut self) -> Result<()> {
        match self {
            Self::Cpu(_) => Ok(()),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => Ok(engine.prepare()?),
        }
    }

    /// The engine as a decode engine.
    pub(super) fn decoder(&mut self) -> &mut dyn LanguageModel {
        match self {
            Self::Cpu(engine) => engine.as_mut(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.as_mut(),
        }
    }

    /// The engine as a decode engine, immutable.
    pub(super) fn shown(&self) -> &dyn LanguageModel {
        match self {
            Self::Cpu(engine) => engine.as_ref(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.as_ref(),
        }
    }

    pub(super) fn config(&self) -> &LmConfig {
        match self {
            Self::Cpu(engine) => engine.config(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.config(),
        }
    }

    /// Instruction set, or name of the graphics adapter.
    pub(super) fn kernels(&self) -> String {
        match self {
            Self::Cpu(engine) => engine.kernels().to_string(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.gpu().name(),
        }
    }

    /// True if weights are in lossless compact form.
    pub(super) fn compact(&self) -> bool {
        match self {
            Self::Cpu(engine) => engine.compact(),
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => false,
        }
    }

    /// Number of processor threads that compute.
    pub(super) fn threads(&self) -> usize {
        match self {
            Self::Cpu(engine) => engine.threads(),
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => 1,
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Cpu(engine) => engine.memory().total(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.memory().into_iter().sum(),
        }
    }

    /// Bytes copied from a graphics device so far.
    pub(super) fn fetched_bytes(&self) -> u64 {
        match self {
            Self::Cpu(_) => 0,
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.fetched_bytes(),
        }
    }

    /// Sets if a graphics device records passes and replays them, or launches call by call.
    pub(super) fn set_replay(&mut self, _replay: bool) {
        match self {
            Self::Cpu(_) => {}
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.set_replay(_replay),
        }
    }

    /// Facts about the graphics device; `None` on the processor.
    pub(super) fn device_facts(&self) -> Option<DeviceFacts> {
        match self {
            Self::Cpu(_) => None,
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => {
                let gpu = engine.gpu();
                Some(DeviceFacts {
                    name: gpu.name(),
                    interface: gpu.interface(),
                    types: gpu.types(),
                    buffer_bytes: gpu.max_buffer(),
                    shared_bytes: gpu.shared_bytes(),
                    subgroup: gpu.subgroup().into_inner().into(),
                })
            }
        }
    }

    /// Times a pass by the clock of a graphics device; `None` on the processor.
    pub(super) fn time_steps(
        &mut self,
        _rows: usize,
        _context: usize,
        _repeats: usize,
        _cubes: Option<[usize; 2]>,
    ) -> Result<Option<PassTime>> {
        match self {
            Self::Cpu(_) => Ok(None),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => {
                let pass = engine.time_steps(_rows, _context, _repeats, _cubes)?;
                let step = |step: gpu_engine::StepTime| StepTime {
                    name: step.name,
                    launches: step.launches,
                    ms: step.ms,
                };
                Ok(Some(PassTime {
                    rows: pass.rows,
                    cubes: pass.cubes,
                    launches: pass.launches,
                    ms: pass.ms,
                    steps: pass.steps.into_iter().map(step).collect(),
                }))
            }
        }
    }

    /// Bytes of weights that a forward reads.
    pub(super) fn weight_bytes(&self) -> usize {
        match self {
            Self::Cpu(engine) => engine.weight_bytes_per_forward(),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => engine.weight_bytes_per_forward(),
        }
    }

    /// A bandwidth measurement for the device of this engine.
    pub(super) fn probe(&self) -> Result<Probe> {
        Ok(match self {
            Self::Cpu(engine) => Probe::Cpu(MemoryProbe::new(PROBE_BYTES, engine.threads())?),
            #[cfg(feature = "gpu")]
            Self::Gpu(engine) => {
                let software = engine.gpu().is_software();
                let bytes = if software {
                    PROBE_BYTES
                } else {
                    GPU_PROBE_BYTES
                };
                Probe::Gpu(GpuProbe::new(engine.gpu(), bytes)?)
            }
        })
    }
}

impl Probe {
    /// Reads the memory once and returns bytes per second.
    pub(super) fn pass(&self) -> Result<f64> {
        match self {
            Self::Cpu(probe) => Ok(probe.pass()),
            #[cfg(feature = "gpu")]
            Self::Gpu(probe) => Ok(probe.pass()?),
        }
    }
}
