//! Keys and values, rotary tables and activations on the device.

use cubecl::prelude::*;
use cubecl::server::Handle;
use lm::host::RotaryTable;
use lm::{KvType, LmConfig, Rope};

use crate::device::{Gpu, GpuError, arg, upload, words, zeros};
use crate::kernels::place::BLOCK;
use crate::kernels::{attend, best};
use crate::weights::stride;

/// Largest number of tokens of a pass.
pub(crate) const PASS: usize = 64;
/// Largest number of rows that one pass scores while it reads the weights once: three tiles of
/// twelve.
pub(crate) const SCORED: usize = 36;
/// Number of words of the parameters of a pass: position, number of tokens, their ids.
pub(crate) const PARAMS: usize = 2 + PASS;
/// Number of positions that there is room for at first.
const FIRST: usize = 512;
/// Largest size, in bytes, of the shares of blocks in attention for passes of more than [`SCORED`]
/// rows.
const PARTS: usize = 32 << 20;

/// Cosines and sines of one rotation.
pub(crate) struct Angles {
    pub(crate) cos: Handle,
    pub(crate) sin: Handle,
    pub(crate) len: usize,
    /// Half the number of rotated dimensions.
    pub(crate) half: usize,
}

/// Keys and values of a layer.
pub(crate) struct Stored {
    pub(crate) keys: Handle,
    pub(crate) values: Handle,
}

/// Buffers that grow with the context.
pub(crate) struct Cache {
    kv: KvType,
    pub(crate) layers: Vec<Stored>,
    pub(crate) global: Angles,
    pub(crate) local: Option<Angles>,
    /// Shares of blocks in attention, and the maxima that they are relative to.
    pub(crate) parts: Handle,
    pub(crate) tops: Handle,
    /// Number of rows that `parts` has room for.
    pub(crate) rows: usize,
    /// Number of positions that there is room for, a multiple of [`BLOCK`].
    pub(crate) capacity: usize,
}

/// Width of a head in queries and cache, padded.
pub(crate) fn padded(config: &LmConfig) -> usize {
    config.head_dim.next_multiple_of(8)
}

impl Cache {
    pub(crate) fn new(
        gpu: &Gpu,
        config: &LmConfig,
        kv: KvType,
        max_len: usize,
    ) -> Result<Self, GpuError> {
        let nothing = || gpu.nothing().clone();
        let none = || Angles {
            cos: nothing(),
            sin: nothing(),
            len: 0,
            half: 0,
        };
        let mut cache = Self {
            kv,
            layers: Vec::new(),
            global: none(),
            local: None,
            parts: nothing(),
            tops: nothing(),
            rows: 0,
            capacity: 0,
        };
        cache.reserve(gpu, config, max_len.min(FIRST), max_len)?;
        Ok(cache)
    }

    /// Number of blocks that there is room for.
    pub(crate) fn blocks(&self) -> usize {
        self.capacity / BLOCK
    }

    /// Number of values of the keys of a layer, or of its values, at a capacity.
    pub(crate) fn numbers(config: &LmConfig, capacity: usize) -> usize {
        config.num_kv_heads * padded(config) * capacity
    }

    fn bytes_of_layer(&self, config: &LmConfig, capacity: usize) -> usize {
        let size = match self.kv {
            KvType::F32 => 4,
            KvType::F16 => 2,
        };
        Self::numbers(config, capacity) * size
    }

    /// Makes room for `len` positions of at most `max_len`. The content of the cache is kept.
    pub(crate) fn reserve(
        &mut self,
        gpu: &Gpu,
        config: &LmConfig,
        len: usize,
        max_len: usize,
    ) -> Result<(), GpuError> {
        if len <= self.capacity {
            return Ok(());
        }
        let room = len.max(2 * self.capacity).min(max_len).max(1);
        let capacity = room.next_multiple_of(BLOCK);
        let old = self.bytes_of_layer(config, self.capacity) / 4;
        let new = self.bytes_of_layer(config, capacity) / 4;
        gpu.check_size(new * 4)?;
        let blocks = capacity / BLOCK;
        let of_row = config.num_heads * blocks * padded(config) * 4;
        let rows = (PARTS / of_row).clamp(SCORED, PASS);
        gpu.check_size(rows * of_row)?;
        let before = std::mem::take(&mut self.layers);
        gpu.run(|client| {
            for layer in 0..config.num_layers {
                let grown = |old_of: Option<&Handle>| {
                    let to = client.empty(new * 4);
                    if let Some(from) = old_of {
                        copy(client, from, &to, old);
                    }
                    to
                };
                self.layers.push(Stored {
                    keys: grown(before.get(layer).map(|stored| &stored.keys)),
                    values: grown(before.get(layer).map(|stored| &stored.values)),
                });
            }
            drop(before);
            self.global = angles(client, &config.rope, max_len, capacity);
            let local = config.local_rope.as_ref();
            self.local = local.map(|rope| angles(client, rope, max_len, capacity));
            self.parts = client.empty(rows * of_row);
            self.tops = client.empty(rows * config.num_heads * blocks * 2 * 4);
        });
        (self.rows, self.capacity) = (rows, capacity);
        Ok(())
    }

    /// Size of all keys and values on the device, in bytes.
    pub(crate) fn bytes(&self, config: &LmConfig) -> usize {
        2 * config.num_layers * self.bytes_of_layer(config, self.capacity)
    }

    pub(crate) fn parts_len(&self, config: &LmConfig) -> usize {
        self.rows * config.num_heads * self.blocks() * padded(config)
    }

    pub(crate) fn tops_len(&self, config: &LmConfig) -> usize {
        self.rows * config.num_heads * self.blocks() * 2
    }
}

fn angles(client: &Client, rope: &Rope, max_len: usize, positions: usize) -> Angles {
    let table = RotaryTable::of_positions(rope, max_len, positions);
    Angles {
        cos: upload(client, words(table.cos())),
        sin: upload(client, words(table.sin())),
        len: table.cos().len().max(1),
        half: rope.dims / 2,
    }
}

/// Copies words from one buffer to another.
#[expect(unsafe_code, reason = "kernels are launched unchecked")]
fn copy(client: &Client, from: &Handle, to: &Handle, len: usize) {
    const UNITS: u32 = 64;
    let cubes = (len as u32).div_ceil(UNITS);
    let grid = CubeCount::Static(cubes.min(32768), cubes.div_ceil(32768), 1);
    // SAFETY: the kernel stays below `len`, which both buffers have.
    unsafe {
        attend::copy::launch_unchecked(
            client,
            grid,
            CubeDim::new_1d(UNITS),
            arg(from, len),
            arg(to, len),
            len as u32,
        );
    }
}

/// Activations of a pass.
pub(crate) struct Scratch {
    pub(crate) params: Handle,
    /// Residual stream, `[PASS][stride(hidden_size)]`. The following buffers have the same form.
    pub(crate) hidden: Handle,
    /// Normalised residual stream. Only projections read it, as they do `mixed` and `gated`, so its
    /// rows are interleaved (`kernels::apart`).
    pub(crate) normed: Handle,
    pub(crate) qkv: Handle,
    /// `[PASS][heads][padded]`.
    pub(crate) queries: Handle,
    pub(crate) mixed: Handle,
    pub(crate) gated: Handle,
    /// Output of attention or MLP before its norm.
    pub(crate) branch: Handle,
    /// `[SCORED][vocab_size]`.
    pub(crate) logits: Handle,
    /// Best logits of each chunk of columns, `[SCORED][chunks][2]`.
    pub(crate) tops: Handle,
    bytes: usize,
}

impl Scratch {
    pub(crate) fn new(gpu: &Gpu, config: &LmConfig) -> Result<Self, GpuError> {
        gpu.check_size(SCORED * config.vocab_size * 4)?;
        let mut bytes = 0;
        let d = config.hidden_size;
        Ok(gpu.run(|client| {
            let mut buffer = |words: usize| {
                bytes += words * 4;
                zeros(client, words)
            };
            let mut rows = |width: usize| buffer(PASS * stride(width));
            let (hidden, normed, branch) = (rows(d), rows(d), rows(d));
            let qkv = rows(config.q_width() + 2 * config.kv_width());
            let mixed = rows(config.q_width());
            let gated = rows(config.intermediate_size);
            let queries = buffer(PASS * config.num_heads * padded(config));
            Self {
                params: buffer(PARAMS),
                logits: buffer(SCORED * config.vocab_size),
                tops: buffer(SCORED * 2 * config.vocab_size.div_ceil(best::CHUNK)),
                hidden,
                normed,
                qkv,
                queries,
                mixed,
                gated,
                branch,
                bytes,
            }
        }))
    }

    /// Size on the device in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
