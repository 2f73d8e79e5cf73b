//! One block of the decoder, forward and backward.

use std::ops::Range;

use lm::host::{Mat, MatMut, Store};

use crate::activations::{Activations, BlockActivations, Normed, clear};
use crate::attention::Attention;
use crate::elementwise::{NormBackward, NormForward, SiluBackward, add};
use crate::layout::Linear;
use crate::pass::{Pack, Shared};

#[derive(Clone, Copy)]
enum Turn {
    Forward,
    Back,
}

/// Numbers of columns: the residual stream, and prefixes of the fused projection.
struct Widths {
    /// Width of the residual stream.
    d: usize,
    /// Columns of the queries.
    q: usize,
    /// Columns of queries and keys, which are rotated.
    rotated: usize,
    /// Columns of queries, keys and values.
    all: usize,
}

impl Shared<'_> {
    fn widths(&self) -> Widths {
        let config = &self.layout.config;
        let (q, kv) = (config.q_width(), config.kv_width());
        Widths {
            d: config.hidden_size,
            q,
            rotated: q + kv,
            all: q + 2 * kv,
        }
    }

    /// Sets `out` to the projection of `x` or adds it to `out`, and then adds the bias if there is
    /// one.
    fn project(&self, store: Store, out: &mut [f32], x: Mat<'_>, w: &Linear) {
        let (outputs, inputs) = (w.weight.len() / x.cols, x.cols);
        self.products.multiply(
            MatMut::new(out, outputs),
            store,
            x,
            Mat::new(&self.weights[w.weight.clone()], outputs, inputs).t(),
        );
        if let Some(bias) = &w.bias {
            for row in out.chunks_exact_mut(bias.len()) {
                add(row, &self.weights[bias.clone()]);
            }
        }
    }

    /// Backward pass of [`project`](Self::project): sets `dx`, and adds the gradients of the matrix
    /// and of the bias, or those of adapters of the matrix.
    fn project_back(&self, grads: &mut [f32], dx: &mut [f32], dy: &[f32], x: Mat<'_>, w: &Linear) {
        let (outputs, inputs) = (w.weight.len() / x.cols, x.cols);
        let rows = Mat::new(dy, x.rows, outputs);
        self.products.multiply(
            MatMut::new(dx, inputs),
            Store::Set,
            rows,
            Mat::new(&self.weights[w.weight.clone()], outputs, inputs),
        );
        if let Some(low_rank) = self.low_rank {
            return low_rank.add_gradients(&w.weight, rows, x, grads);
        }
        let to = MatMut::new(&mut grads[w.weight.clone()], inputs);
        self.products.multiply(to, Store::Add, rows.t(), x);
        if let Some(bias) = &w.bias {
            for row in dy.chunks_exact(bias.len()) {
                add(&mut grads[bias.clone()], row);
            }
        }
    }

    pub(crate) fn norm(&self, x: &[f32], weight: &[f32], inverse: &mut [f32], out: &mut [f32]) {
        let d = weight.len();
        let eps = self.layout.config.rms_norm_eps as f32;
        for ((x, out), inverse) in x
            .chunks_exact(d)
            .zip(out.chunks_exact_mut(d))
            .zip(inverse.iter_mut())
        {
            *inverse = self.vectors.run(NormForward {
                x,
                weight,
                eps,
                out,
            });
        }
    }

    /// Normalises the residual stream and keeps a copy of it.
    fn norm_kept(&self, x: &[f32], at: &Range<usize>, kept: &mut Normed) {
        kept.x.copy_from_slice(x);
        let weight = &self.weights[at.clone()];
        self.norm(x, weight, &mut kept.inverse, &mut kept.out);
    }

    /// Backward pass of a norm whose weight lies at `at`, over all positions: adds to `dx`, and
    /// overwrites `dy`. A frozen weight has no gradient.
    pub(crate) fn norm_back(
        &self,
        grads: &mut [f32],
        at: &Range<usize>,
        x: &[f32],
        inverse: &[f32],
        dy: &mut [f32],
        dx: &mut [f32],
    ) {
        let weight = &self.weights[at.clone()];
        let d = weight.len();
        let mut unused = Vec::new();
        let dw = if self.low_rank.is_some() {
            clear(&mut unused, d);
            &mut unused[..]
        } else {
            &mut grads[at.clone()]
        };
        for (((x, dy), dx), inverse) in x
            .chunks_exact(d)
            .zip(dy.chunks_exact_mut(d))
            .zip(dx.chunks_exact_mut(d))
            .zip(inverse)
        {
            self.vectors.run(NormBackward {
                x,
                weight,
                inverse: *inverse,
                dy,
                dx,
                dw,
            });
        }
    }

    /// Calls `f` for every sequence of a pack, with its attention in a layer, its rows, and the
    /// range of its attention weights.
    fn attend(
        &self,
        pack: &Pack<'_>,
        layer: usize,
        mut f: impl FnMut(Attention<'_>, &Range<usize>, Range<usize>),
    ) {
        let config = &self.layout.config;
        let mut start = 0;
        for (_, rows) in &pack.spans {
            let attention = Attention {
                config,
                vectors: self.vectors,
                t: rows.len(),
                window: self.layout.layer(layer).window.unwrap_or(usize::MAX),
            };
            let probs = start..start + attention.probs_len();
            start = probs.end;
            f(attention, rows, probs);
        }
    }

    pub(crate) fn attention_forward(&self, pack: &Pack<'_>, layer: usize, kept: &mut Activations) {
        let t = pack.rows();
        let Widths { d, q, all, .. } = self.widths();
        let at = &self.layout.blocks[layer];
        let block = &mut kept.blocks[layer];
        self.norm_kept(&kept.x, &at.attn_norm, &mut block.attn_in);
        let normed = Mat::new(&block.attn_in.out, t, d);
        self.project(Store::Set, &mut block.qkv, normed, &at.qkv);
        self.head_norms(layer, block);
        self.rotate(pack, layer, &mut block.qkv, Turn::Forward);
        self.attend(pack, layer, |attention, rows, probs| {
            attention.forward(
                &block.qkv[rows.start * all..rows.end * all],
                &mut block.probs[probs],
                &mut block.mixed[rows.start * q..rows.end * q],
            );
        });
        if layer + 1 == self.layout.blocks.len() && kept.scored.len() < t {
            kept.keep_scored(&self.layout.config);
        }
        let mixed = &kept.blocks[layer].mixed;
        let mixed = Mat::new(mixed, mixed.len() / q, q);
        self.project(Store::Add, &mut kept.x, mixed, &at.out);
    }

    pub(crate) fn mlp_forward(&self, layer: usize, kept: &mut Activations) {
        let config = &self.layout.config;
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let at = &self.layout.blocks[layer];
        let Activations { blocks, x, .. } = kept;
        let t = x.len() / d;
        let block = &mut blocks[layer];
        self.norm_kept(x, &at.mlp_norm, &mut block.mlp_in);
        let normed = Mat::new(&block.mlp_in.out, t, d);
        self.project(Store::Set, &mut block.gate_up, normed, &at.gate_up);
        for (row, out) in block
            .gate_up
            .chunks_exact(2 * f)
            .zip(block.active.chunks_exact_mut(f))
        {
            let (gate, up) = row.split_at(f);
            self.vectors.silu_mul(gate, up, out);
        }
        self.project(Store::Add, x, Mat::new(&block.active, t, f), &at.down);
    }

    /// Applies the norms of query and key heads, if the model has them.
    fn head_norms(&self, layer: usize, block: &mut BlockActivations) {
        let Some(norms) = &self.layout.blocks[layer].head_norms else {
            return;
        };
        let (config, widths) = (&self.layout.config, self.widths());
        let eps = config.rms_norm_eps as f32;
        let heads = config.num_heads + config.num_kv_heads;
        for ((row, kept), inverse) in block
            .qkv
            .chunks_exact_mut(widths.all)
            .zip(block.heads.chunks_exact_mut(widths.rotated))
            .zip(block.head_inverse.chunks_exact_mut(heads))
        {
            kept.copy_from_slice(&row[..widths.rotated]);
            let pairs = kept.chunks_exact(config.head_dim);
            let pairs = pairs.zip(row.chunks_exact_mut(config.head_dim));
            for (head, ((x, out), inverse)) in pairs.zip(inverse).enumerate() {
                let norm = &norms[usize::from(head >= config.num_heads)];
                *inverse = self.vectors.run(NormForward {
                    x,
                    weight: &self.weights[norm.clone()],
                    eps,
                    out,
                });
            }
        }
    }

    /// Backward pass of [`head_norms`](Self::head_norms): `d_qkv` becomes the gradient with respect
    /// to their input.
    fn head_norms_back(
        &self,
        layer: usize,
        block: &BlockActivations,
        (d_qkv, d_head): (&mut [f32], &mut Vec<f32>),
        grads: &mut [f32],
    ) {
        let Some(norms) = &self.layout.blocks[layer].head_norms else {
            return;
        };
        let (config, widths) = (&self.layout.config, self.widths());
        let heads = config.num_heads + config.num_kv_heads;
        for ((d_row, kept), inverse) in d_qkv
            .chunks_exact_mut(widths.all)
            .zip(block.heads.chunks_exact(widths.rotated))
            .zip(block.head_inverse.chunks_exact(heads))
        {
            let pairs = kept.chunks_exact(config.head_dim);
            let pairs = pairs.zip(d_row.chunks_exact_mut(config.head_dim));
            for (head, ((x, dy), inverse)) in pairs.zip(inverse).enumerate() {
                clear(d_head, config.head_dim);
                let at = &norms[usize::from(head >= config.num_heads)];
                let inverse = std::slice::from_ref(inverse);
                self.norm_back(grads, at, x, inverse, dy, d_head);
                dy.copy_from_slice(d_head);
            }
        }
    }

    /// Rotates the queries and keys of `[t, q + 2 kv]` in layers with rotary embeddings.
    fn rotate(&self, pack: &Pack<'_>, layer: usize, qkv: &mut [f32], turn: Turn) {
        let config = &self.layout.config;
        let Some(table) = self.rope.of(config, self.layout.first + layer) else {
            return;
        };
        let widths = self.widths();
        let positions = pack.lengths().flat_map(|len| 0..len);
        for (position, row) in positions.zip(qkv.chunks_exact_mut(widths.all)) {
            for head in row[..widths.rotated].chunks_exact_mut(config.head_dim) {
                match turn {
                    Turn::Forward => table.rotate_in_place(position, head),
                    Turn::Back => table.rotate_back(position, head),
                }
            }
        }
    }

    pub(crate) fn mlp_backward(&self, layer: usize, kept: &mut Activations, grads: &mut [f32]) {
        let config = &self.layout.config;
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let at = &self.layout.blocks[layer];
        let block = &mut kept.blocks[layer];
        let t = block.active.len() / f;
        let x = Mat::new(&block.active, t, f);
        self.project_back(grads, &mut kept.d_active, &kept.d_stream, x, &at.down);
        for (row, d) in block
            .gate_up
            .chunks_exact_mut(2 * f)
            .zip(kept.d_active.chunks_exact(f))
        {
            let (gate, up) = row.split_at_mut(f);
            self.vectors.run(SiluBackward { gate, up, d });
        }
        let x = Mat::new(&block.mlp_in.out, t, d);
        self.project_back(grads, &mut kept.d_normed, &block.gate_up, x, &at.gate_up);
        self.norm_back(
            grads,
            &at.mlp_norm,
            &block.mlp_in.x,
            &block.mlp_in.inverse,
            &mut kept.d_normed,
            &mut kept.d_stream,
        );
    }

    pub(crate) fn attention_backward(
        &self,
        pack: &Pack<'_>,
        layer: usize,
        kept: &mut Activations,
        grads: &mut [f32],
    ) {
        let at = &self.layout.blocks[layer];
        self.mix_backward(pack, layer, kept, grads);
        let block = &kept.blocks[layer];
        let d_qkv = (&mut kept.d_qkv[..], &mut kept.d_head);
        self.head_norms_back(layer, block, d_qkv, grads);
        let x = Mat::new(&block.attn_in.out, pack.rows(), self.widths().d);
        self.project_back(grads, &mut kept.d_normed, &kept.d_qkv, x, &at.qkv);
        self.norm_back(
            grads,
            &at.attn_norm,
            &block.attn_in.x,
            &block.attn_in.inverse,
            &mut kept.d_normed,
            &mut kept.d_stream,
        );
    }

    /// Backward pass of attention: from the gradient of the residual stream after it to that of
    /// queries, keys and values before their rotation.
    fn mix_backward(
        &self,
        pack: &Pack<'_>,
        layer: usize,
        kept: &mut Activations,
        grads: &mut [f32],
    ) {
        let t = pack.rows();
        let Widths { q, all, .. } = self.widths();
        let at = &self.layout.blocks[layer];
        let mixed = &kept.blocks[layer].mixed;
        let x = Mat::new(mixed, mixed.len() / q, q);
        self.project_back(grads, &mut kept.d_mixed, &kept.d_stream, x, &at.out);
        if layer + 1 == self.layout.blocks.len() && kept.scored.len() < t {
            kept.spread_scored(&self.layout.config, t);
        }
        let block = &kept.blocks[layer];
        clear(&mut kept.d_qkv, t * all);
        self.attend(pack, layer, |attention, rows, probs| {
            let (wide, mixed) = (
                rows.start * all..rows.end * all,
                rows.start * q..rows.end * q,
            );
            attention.backward(
                &block.qkv[wide.clone()],
                &block.probs[probs],
                &kept.d_mixed[mixed],
                &mut kept.d_qkv[wide],
                &mut kept.d_probs,
            );
        });
        self.rotate(pack, layer, &mut kept.d_qkv, Turn::Back);
    }
}
