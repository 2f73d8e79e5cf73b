//! Time of a pass by kinds of launches.

use std::ops::Range;
use std::time::{Duration, Instant};

use cubecl::bytes::Bytes;
use lm::{LmError, ModelError};

use super::GpuEngine;
use crate::cache::{PARAMS, SCORED};
use crate::device::{GpuError, failed};
use crate::forward::{Pass, Step, cubes_for, rows_for};
use crate::kernels::place::BLOCK;
use crate::kernels::project::Cubes;

/// Number of launches that are timed together. It is small enough that they reach the device at
/// once, so that it never waits for the host.
const WINDOW: usize = 24;

/// Time of a device at work before it is timed.
const WARM: Duration = Duration::from_millis(60);

/// The launches of one kind in a pass.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// Name of the step.
    pub name: &'static str,
    /// Number of launches.
    pub launches: usize,
    /// Milliseconds of all of them by the clock of the device, one after the other, including gaps.
    pub ms: f64,
}

/// Time of a pass by the clock of the device.
#[derive(Clone, Debug)]
pub struct PassTime {
    /// Number of rows that it computes.
    pub rows: usize,
    /// Number of outputs that a group of units of a projection computes, and of groups of a cube.
    pub cubes: [usize; 2],
    /// Number of launches.
    pub launches: usize,
    /// Milliseconds from the first launch to the end of the last one, launched call by call. If
    /// this exceeds the sum over all kinds, the device waits for the host.
    pub ms: f64,
    /// Times by kind.
    pub steps: Vec<StepTime>,
}

/// Launches that were timed together.
#[derive(Clone, Copy)]
struct Window {
    /// Number of launches of their kind in a pass.
    launches: usize,
    /// Milliseconds of those that ran.
    ms: f64,
}

impl GpuEngine {
    /// Times scored passes of `rows` tokens after `context`, as a whole and by kind of launch, as
    /// the median of `repeats`. In projections a group of units computes 2, 4, 8 or 16 outputs, and
    /// a cube has one or two groups; `cubes` overrides the usual numbers, unless it has others than
    /// these. The cache is empty afterwards.
    ///
    /// # Errors
    /// No rows, or more than a pass scores; a context that is too long; a device that fails or has
    /// no clock.
    pub fn time_steps(
        &mut self,
        rows: usize,
        context: usize,
        repeats: usize,
        cubes: Option<[usize; 2]>,
    ) -> Result<PassTime, LmError> {
        if rows == 0 || rows > SCORED {
            return Err(GpuError::Rows { rows, most: SCORED }.into());
        }
        let len = context + rows;
        let max_len = self.max_len;
        if len > max_len {
            let needed = len;
            return Err(ModelError::ContextFull { needed, max_len }.into());
        }
        self.reserve(len)?;
        (self.len, self.scored) = (0, 0);
        self.state.clear();
        let known = cubes.filter(|cubes| matches!(cubes, [2 | 4 | 8 | 16, 1 | 2]));
        let usual = cubes_for(rows_for(rows));
        let cubes = known.map_or(usual, |[outputs, groups]| Cubes { outputs, groups });
        let mut params = vec![0_u32; PARAMS];
        params[0] = context as u32;
        params[1] = rows as u32;
        let window = |only| self.window(&params, len, (rows, cubes), only);
        let median = |only: &dyn Fn() -> Option<(Step, Range<usize>)>| -> Result<_, GpuError> {
            // The first run compiles the kernels, and the next ones wake the device up: one that
            // waited for a compiler runs at half its speed for a while.
            window(only())?;
            let until = Instant::now() + WARM;
            while !self.weights.gpu.is_software() && Instant::now() < until {
                window(only())?;
            }
            let timed: Result<Vec<_>, _> = (0..repeats.max(1)).map(|_| window(only())).collect();
            let mut timed = timed?;
            timed.sort_by(|a, b| a.ms.total_cmp(&b.ms));
            Ok(timed[timed.len() / 2])
        };
        let whole = median(&|| None)?;
        let mut steps = Vec::new();
        for (step, name) in Step::ALL {
            let (mut ms, mut first) = (0.0, 0);
            let launches = loop {
                let timed = median(&|| Some((step, first..first + WINDOW)))?;
                ms += timed.ms;
                first += WINDOW;
                if first >= timed.launches {
                    break timed.launches;
                }
            };
            steps.push(StepTime { name, launches, ms });
        }
        Ok(PassTime {
            rows: rows_for(rows),
            cubes: [cubes.outputs, cubes.groups],
            launches: whole.launches,
            ms: whole.ms,
            steps,
        })
    }

    /// Runs and times a pass, or launches of one kind alone.
    fn window(
        &self,
        params: &[u32],
        len: usize,
        (rows, cubes): (usize, Cubes),
        only: Option<(Step, Range<usize>)>,
    ) -> Result<Window, GpuError> {
        self.weights.gpu.sync()?;
        let (launches, timed) = self.weights.gpu.run(|client| {
            let pass = Pass {
                cubes: Some(cubes),
                only,
                ..self.whole_pass(client, len.div_ceil(BLOCK), rows_for(rows))
            };
            client.write(&self.scratch.params, Bytes::from_elems(params.to_vec()));
            let window = client.profile_start().map_err(failed)?;
            pass.run(true);
            let timed = client.profile_end(window).map_err(failed)?;
            Ok::<_, GpuError>((pass.launches.get(), timed))
        })?;
        let ticks = self.weights.gpu.wait(timed.resolve());
        let ticks = ticks.ok_or_else(|| failed("it has no clock"))?;
        Ok(Window {
            launches,
            ms: 1e3 * ticks.duration().as_secs_f64(),
        })
    }
}
