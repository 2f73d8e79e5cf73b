//! `omnidraft bench kernels` and `bench adapters`: projections of a graphics device one by one, and
//! the devices that there are.

use anyhow::Result;
#[cfg(not(feature = "gpu"))]
use anyhow::bail;
use clap::Args;
use lm::{Device, WeightType};

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// Outputs of the matrix (default: gate and up of Llama-3-8B).
    #[arg(long, default_value_t = 28672)]
    outputs: usize,
    /// Inputs of the matrix.
    #[arg(long, default_value_t = 4096)]
    inputs: usize,
    /// Weight formats.
    #[arg(long, value_delimiter = ',', default_value = "bf16,int4")]
    weights: Vec<WeightType>,
    /// Rows of activations: some of 1, 2, 3, 5, 8, 12, 16.
    #[arg(long, value_delimiter = ',', default_value = "1,5,16")]
    rows: Vec<usize>,
    /// Units that divide the inputs of an output: some of 32, 64, 128 (default: the usual number).
    #[arg(long, value_delimiter = ',')]
    units: Vec<usize>,
    /// Outputs of a group of units: some of 2, 4, 8, 16 (default: the usual number).
    #[arg(long, value_delimiter = ',')]
    per_group: Vec<usize>,
    /// Groups of units in a cube: 1, 2 or both (default: the usual number).
    #[arg(long, value_delimiter = ',')]
    groups: Vec<usize>,
    /// Graphics device: gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Gpu(0))]
    device: Device,
    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "gpu"))]
impl KernelsArgs {
    /// Refuses: this program has no graphics devices.
    pub(super) fn execute(self) -> Result<()> {
        models::check_device(self.device)?;
        bail!("--device: `bench verify` times the processor")
    }
}

#[cfg(feature = "gpu")]
impl KernelsArgs {
    /// Measures and prints.
    pub(super) fn execute(self) -> Result<()> {
        use crate::print;
        use anyhow::{Context, bail};
        use gpu_engine::{Gpu, GpuProbe, time_kernels};

        let Device::Gpu(index) = self.device else {
            bail!("--device: `bench verify` times the processor");
        };
        if self.outputs == 0 || self.inputs == 0 {
            bail!("--outputs and --inputs must be at least 1");
        }
        let gpu = Gpu::open(index).context("--device")?;
        let probe = GpuProbe::new(&gpu, 1 << 28)?;
        for _ in 0..3 {
            probe.pass()?;
        }
        let memory = probe.pass()? / 1e9;
        drop(probe);
        for weights in &self.weights {
            let divisions = self.divisions(*weights)?;
            let shape = [self.outputs, self.inputs];
            for time in time_kernels(&gpu, shape, *weights, &divisions)? {
                let (division, us, first_s) = (time.division, time.us, time.first_s);
                let speed = time.bytes as f64 / us / 1e3;
                print(&match self.json {
                    true => format!(
                        "{}\n",
                        serde_json::json!({
                            "command": "kernels", "outputs": self.outputs, "inputs": self.inputs,
                            "weights": weights.to_string(), "rows": division.rows,
                            "units": division.units, "per_group": division.outputs,
                            "groups": division.groups, "us": us, "weights_gb_per_s": speed,
                            "memory_gb_per_s": memory, "first_s": first_s,
                        })
                    ),
                    false => format!(
                        "{weights} {} rows, {} units, cubes of {} x {} outputs: {us:.1} us, {speed:.0} GB/s \
                         of {memory:.0}, first launch after {first_s:.2} s\n",
                        division.rows, division.units, division.groups, division.outputs,
                    ),
                })?;
            }
        }
        Ok(())
    }

    /// The divisions to time.
    fn divisions(&self, weights: WeightType) -> Result<Vec<gpu_engine::Division>> {
        use gpu_engine::Division;

        let or = |given: &[usize], usual| match given {
            [] => vec![usual],
            given => given.to_vec(),
        };
        let mut all = Vec::new();
        for rows in &self.rows {
            let usual = Division::usual(*rows, self.inputs, weights);
            for units in or(&self.units, usual.units) {
                for outputs in or(&self.per_group, usual.outputs) {
                    for groups in or(&self.groups, usual.groups) {
                        let division = Division {
                            rows: *rows,
                            units,
                            outputs,
                            groups,
                        };
                        if !division.is_known() {
                            anyhow::bail!("no kernel is made for {division:?}");
                        }
                        all.push(division);
                    }
                }
            }
        }
        Ok(all)
    }
}

/// Arguments of `adapters`.
#[derive(Debug, Args)]
pub struct AdaptersArgs {
    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "gpu"))]
impl AdaptersArgs {
    /// Refuses: this program has no graphics devices.
    pub(super) fn execute(self) -> Result<()> {
        models::check_device(Device::Gpu(0))?;
        bail!("adapters are those of graphics devices")
    }
}

#[cfg(feature = "gpu")]
impl AdaptersArgs {
    /// Lists the adapters.
    pub(super) fn execute(self) -> Result<()> {
        use crate::print;
        use gpu_engine::{Gpu, adapters};

        let all = adapters();
        if all.is_empty() {
            return Err(Gpu::open(0).err().map_or_else(
                || anyhow::anyhow!("no adapter was found"),
                anyhow::Error::from,
            ));
        }
        for (index, adapter) in all.iter().enumerate() {
            let gpu = Gpu::open(index)?;
            let (least, most) = gpu.subgroup().into_inner();
            print(&match self.json {
                true => format!(
                    "{}\n",
                    serde_json::json!({
                        "device": format!("gpu:{index}"), "name": gpu.name(), "kind": adapter.kind,
                        "interface": gpu.interface(), "types": gpu.types(),
                        "buffer_bytes": gpu.max_buffer(), "shared_bytes": gpu.shared_bytes(),
                        "subgroup": [least, most],
                    })
                ),
                false => format!(
                    "gpu:{index}: {}, {}, {}; computes with f32 {}; buffers of at most {} MiB, \
                     {} KiB shared by a cube, subgroups of {least} to {most}\n",
                    gpu.name(),
                    adapter.kind,
                    gpu.interface(),
                    gpu.types().join(" "),
                    gpu.max_buffer() >> 20,
                    gpu.shared_bytes() >> 10,
                ),
            })?;
        }
        Ok(())
    }
}
