//! Measurement of the memory bandwidth of the device, which bounds decoding.
#![expect(unsafe_code, reason = "kernels are launched unchecked")]

use std::time::{Duration, Instant};

use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::device::{Gpu, GpuError, arg};
use crate::kernels::read;

/// Number of cubes of a pass: many for each processor of a device.
const CUBES: u32 = 8192;
/// Number of reads of the buffer in a pass, so large that the work of the host does not matter.
const READS: usize = 64;
/// The same for software devices.
const SOFTWARE_READS: usize = 8;

/// Time of a device at work before it is measured.
const WARM: Duration = Duration::from_millis(500);

/// A buffer far larger than any cache, to be read repeatedly.
pub struct GpuProbe {
    gpu: Gpu,
    buffer: Handle,
    sums: Handle,
    fours: usize,
}

impl GpuProbe {
    /// A probe with a buffer of `bytes`, or of the largest size that the device can bind.
    ///
    /// # Errors
    /// A device that fails.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self, GpuError> {
        let bytes = bytes.min(gpu.max_buffer()) / 16 * 16;
        let (buffer, sums) = gpu.run(|client| {
            let buffer = client.memory_dedicated_allocation((), |()| client.empty(bytes));
            (buffer, client.empty(CUBES as usize * 4))
        });
        let probe = Self {
            gpu: gpu.clone(),
            buffer,
            sums,
            fours: bytes / 16,
        };
        probe.pass()?;
        // An idle device runs slowly at first.
        let until = Instant::now() + WARM;
        while !gpu.is_software() && Instant::now() < until {
            probe.pass()?;
        }
        Ok(probe)
    }

    /// Reads the buffer a few times. Returns bytes per second.
    ///
    /// # Errors
    /// A device that fails.
    pub fn pass(&self) -> Result<f64, GpuError> {
        self.gpu.sync()?;
        let began = Instant::now();
        let reads = match self.gpu.is_software() {
            true => SOFTWARE_READS,
            false => READS,
        };
        self.gpu.run(|client| {
            for _ in 0..reads {
                // SAFETY: a unit reads below `fours`; there is a sum for every cube.
                unsafe {
                    read::read::launch_unchecked(
                        client,
                        CubeCount::Static(CUBES, 1, 1),
                        CubeDim::new_1d(read::UNITS as u32),
                        arg(&self.buffer, self.fours),
                        arg(&self.sums, CUBES as usize),
                        self.fours as u32,
                    );
                }
            }
        });
        let one = self.sums.clone().offset_end((CUBES as u64 - 1) * 4);
        self.gpu.read(vec![one])?;
        let seconds = began.elapsed().as_secs_f64();
        Ok((reads * self.fours * 16) as f64 / seconds)
    }
}
