//! Time of a projection by itself, for choosing how it is divided.

use lm::{LmError, WeightType};

use crate::cache::PASS;
use crate::device::{Gpu, GpuError, arg, failed, upload, zeros};
use crate::forward::{Buffers, ROWS, cubes_for, launch, units_for};
use crate::kernels::project::{Cubes, Epilogue, Format, Plan, SizesLaunch};
use crate::layout::Shape;
use crate::weights::{Matrix, stride};

/// Bytes of the matrices that are read in turn: more than a cache of a device holds.
const BYTES: usize = 256 << 20;
/// Largest number of such matrices.
const MATRICES: usize = 16;
/// Time of a device at work before it is timed, in launches: an idle one runs slowly at first.
const WARM: usize = 400;
/// Number of launches in one reading of the clock.
const LAUNCHES: usize = 20;
/// Number of readings, of which the median counts.
const READINGS: usize = 5;

/// A way to divide a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Number of rows of activations: one for which projections are compiled.
    pub rows: usize,
    /// Number of units that divide the inputs of an output: 32, 64 or 128.
    pub units: usize,
    /// Number of outputs of a group of units: 2, 4, 8 or 16.
    pub outputs: usize,
    /// Number of groups of a cube: 1 or 2.
    pub groups: usize,
}

impl Division {
    /// The division that the engine uses for a matrix with so many inputs.
    pub fn usual(rows: usize, inputs: usize, weights: WeightType) -> Self {
        let cubes = cubes_for(rows);
        let format = Format::from(weights);
        Self {
            rows,
            units: units_for(inputs.div_ceil(format.piece())),
            outputs: cubes.outputs,
            groups: cubes.groups,
        }
    }

    /// True if the kernels can be compiled for it.
    pub fn is_known(&self) -> bool {
        ROWS.contains(&self.rows)
            && matches!(self.units, 32 | 64 | 128)
            && matches!(self.outputs, 2 | 4 | 8 | 16)
            && matches!(self.groups, 1 | 2)
    }
}

/// Time of a division.
#[derive(Clone, Copy, Debug)]
pub struct KernelTime {
    /// The division.
    pub division: Division,
    /// Microseconds of a launch by the clock of the device.
    pub us: f64,
    /// Seconds of the first launch, in which the kernel is compiled.
    pub first_s: f64,
    /// Bytes of the matrix, which a launch reads.
    pub bytes: usize,
}

/// Times a projection of `outputs` by `inputs` random weights for each division. One that is not
/// known is left out.
///
/// # Errors
/// A matrix that the device does not hold, a device that fails or has no clock.
pub fn time_kernels(
    gpu: &Gpu,
    [outputs, inputs]: [usize; 2],
    weights: WeightType,
    divisions: &[Division],
) -> Result<Vec<KernelTime>, LmError> {
    let shape = Shape {
        outputs,
        inputs,
        format: Format::from(weights),
    };
    gpu.check_size(shape.bytes())?;
    let count = (BYTES / shape.bytes().max(1)).clamp(1, MATRICES);
    // Small numbers in every format; of random bits some would be infinite.
    let mut state = 1_u32;
    let mut word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 9 & 0x003f_3f3f | 0x3c00_0000
    };
    let mut words = |len: usize| -> Vec<u32> { (0..len).map(|_| word()).collect() };
    let matrices: Vec<Matrix> = (0..count)
        .map(|_| {
            let (weights, scales) = (words(shape.words()), words(shape.scales()));
            gpu.run(|client| Matrix {
                shape,
                words: upload(client, &weights),
                scales: upload(client, &scales),
                units: upload(client, &vec![0x3c00_0000; shape.units()]),
                bias: None,
            })
        })
        .collect();
    let x = words(PASS * stride(inputs));
    let (x, to) = gpu.run(|client| (upload(client, &x), zeros(client, PASS * stride(outputs))));
    let known = divisions.iter().filter(|division| division.is_known());
    let timed = known.map(|division| {
        let run = |launches: usize| time(gpu, &matrices, [&x, &to], *division, launches);
        let began = std::time::Instant::now();
        run(1)?;
        let first_s = began.elapsed().as_secs_f64();
        run(WARM)?;
        let readings: Result<Vec<f64>, GpuError> = (0..READINGS).map(|_| run(LAUNCHES)).collect();
        let mut readings = readings?;
        readings.sort_by(f64::total_cmp);
        Ok(KernelTime {
            division: *division,
            us: readings[READINGS / 2],
            first_s,
            bytes: shape.bytes(),
        })
    });
    timed
        .collect::<Result<_, GpuError>>()
        .map_err(LmError::from)
}

/// Microseconds of one of so many launches that read one matrix after the other.
fn time(
    gpu: &Gpu,
    matrices: &[Matrix],
    [x, to]: [&cubecl::server::Handle; 2],
    division: Division,
    launches: usize,
) -> Result<f64, GpuError> {
    gpu.sync()?;
    let timed = gpu.run(|client| {
        let window = client.profile_start().map_err(failed)?;
        for matrix in matrices.iter().cycle().take(launches) {
            let Shape {
                outputs,
                inputs,
                format,
            } = matrix.shape;
            let plan = Plan {
                format,
                rows: division.rows,
                cubes: Cubes {
                    outputs: division.outputs,
                    groups: division.groups,
                },
                units: division.units,
                apart: true,
                epilogue: Epilogue::Store,
                biased: false,
            };
            let sizes = SizesLaunch::new(
                outputs as u32,
                matrix.shape.pieces() as u32,
                (stride(inputs) / 4) as u32,
                stride(outputs) as u32,
                1,
                1.0,
                1.0,
            );
            let buffers = Buffers {
                x: arg(x, PASS * stride(inputs) / 4),
                bias: arg(gpu.nothing(), outputs),
                to: arg(to, PASS * stride(outputs)),
            };
            launch(client, matrix, buffers, sizes, 1, plan);
        }
        client.profile_end(window).map_err(failed)
    })?;
    let ticks = gpu.wait(timed.resolve());
    let ticks = ticks.ok_or_else(|| failed("it has no clock"))?;
    Ok(1e6 * ticks.duration().as_secs_f64() / launches as f64)
}
