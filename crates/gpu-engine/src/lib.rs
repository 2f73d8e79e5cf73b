#![doc = include_str!("../README.md")]
#![cfg(feature = "gpu")]

mod cache;
mod device;
mod engine;
mod forward;
mod kernel_times;
mod kernels;
mod layout;
mod probe;
mod recording;
mod weights;

pub use device::{Adapter, Gpu, GpuError, adapters};
pub use engine::{GpuEngine, GpuOptions, GpuWeights, PassTime, StepTime, WeakGpuWeights};
pub use kernel_times::{Division, KernelTime, time_kernels};
pub use probe::GpuProbe;
