//! One block of the decoder, forward and backward.

use std::ops::Range;

use lm::host::{Mat, MatMut, Store};

use crate::activations::{Activations, BlockActivations, clear};
use crate::attention::Attention;
use crate::elementwise::{NormBackward, NormForward, SiluBackward, add};
use crate::pass::{NormPass, Pack, Shared};

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

    /// `out = x w^T`, and the bias if there is one. `w` is `[outputs, inputs]`.
    fn project(
        &self,
        out: &mut [f32],
        x: &[f32],
        w: &Range<usize>,
        bias: Option<&Range<usize>>,
        (t, inputs): (usize, usize),
    ) {
        let outputs = w.len() / inputs;
        self.products.multiply(
            MatMut::new(out, outputs),
            Store::Set,
            Mat::new(x, t, inputs),
            Mat::new(&self.weights[w.clone()], outputs, inputs).t(),
        );
        self.add_bias(out, bias);
    }

    /// `x += y w^T`, and the bias if there is one: adds the output of attention or of the MLP to
    /// the residual stream.
    fn project_back(
        &self,
        x: &mut [f32],
        y: &[f32],
        w: &Range<usize>,
        bias: Option<&Range<usize>>,
        t: usize,
    ) {
        let (d, inputs) = (x.len() / t.max(1), y.len() / t.max(1));
        self.products.multiply(
            MatMut::new(x, d),
            Store::Add,
            Mat::new(y, t, inputs),
            Mat::new(&self.weights[w.clone()], d, inputs).t(),
        );
        self.add_bias(x, bias);
    }

    fn add_bias(&self, rows: &mut [f32], bias: Option<&Range<usize>>) {
        if let Some(bias) = bias {
            for row in rows.chunks_exact_mut(bias.len()) {
                add(row, &self.weights[bias.clone()]);
            }
        }
    }

    /// Adds the gradient of a bias, unless it is frozen.
    fn bias_gradient(&self, grads: &mut [f32], bias: Option<&Range<usize>>, dy: &[f32]) {
        if let Some(bias) = bias.filter(|_| self.low_rank.is_none()) {
            for row in dy.chunks_exact(bias.len()) {
                add(&mut grads[bias.clone()], row);
            }
        }
    }

    /// Adds the gradient of the matrix at `at`, or that of its adapters.
    fn weight_gradient(&self, grads: &mut [f32], at: &Range<usize>, dy: Mat<'_>, x: Mat<'_>) {
        match self.low_rank {
            Some(low_rank) => low_rank.add_gradients(at, dy, x, grads),
            None => {
                let to = MatMut::new(&mut grads[at.clone()], x.cols());
                self.products.multiply(to, Store::Add, dy.t(), x);
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

    /// Backward pass of a norm whose weight lies at `at`. A frozen weight has no gradient.
    pub(crate) fn norm_back(&self, grads: &mut [f32], at: &Range<usize>, pass: NormPass<'_>) {
        let weight = &self.weights[at.clone()];
        let d = weight.len();
        let mut unused = Vec::new();
        let dw = if self.low_rank.is_some() {
            clear(&mut unused, d);
            &mut unused[..]
        } else {
            &mut grads[at.clone()]
        };
        for (((x, dy), dx), inverse) in pass
            .x
            .chunks_exact(d)
            .zip(pass.dy.chunks_exact_mut(d))
            .zip(pass.dx.chunks_exact_mut(d))
            .zip(pass.inverse)
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
        let (t, w) = (pack.rows(), self.weights);
        let Widths { d, q, all, .. } = self.widths();
        let at = &self.layout.blocks[layer];
        let Activations { blocks, x, .. } = kept;
        let block = &mut blocks[layer];
        block.x.copy_from_slice(x);
        self.norm(
            &block.x,
            &w[at.attn_norm.clone()],
            &mut block.attn_inverse,
            &mut block.attn_in,
        );
        let bias = at.qkv_bias.as_ref();
        self.project(&mut block.qkv, &block.attn_in, &at.qkv, bias, (t, d));
        self.head_norms(layer, block);
        self.rotate(pack, layer, &mut block.qkv, Turn::Forward);
        self.attend(pack, layer, |attention, rows, probs| {
            attention.forward(
                &block.qkv[rows.start * all..rows.end * all],
                &mut block.probs[probs],
                &mut block.mixed[rows.start * q..rows.end * q],
            );
        });
        self.project_back(x, &block.mixed, &at.out, at.out_bias.as_ref(), t);
    }

    pub(crate) fn mlp_forward(&self, pack: &Pack<'_>, layer: usize, kept: &mut Activations) {
        let (t, w, config) = (pack.rows(), self.weights, &self.layout.config);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let at = &self.layout.blocks[layer];
        let Activations { blocks, x, .. } = kept;
        let block = &mut blocks[layer];
        block.middle.copy_from_slice(x);
        self.norm(
            &block.middle,
            &w[at.mlp_norm.clone()],
            &mut block.mlp_inverse,
            &mut block.mlp_in,
        );
        let bias = at.gate_up_bias.as_ref();
        self.project(&mut block.gate_up, &block.mlp_in, &at.gate_up, bias, (t, d));
        for (row, out) in block
            .gate_up
            .chunks_exact(2 * f)
            .zip(block.active.chunks_exact_mut(f))
        {
            let (gate, up) = row.split_at(f);
            self.vectors.silu_mul(gate, up, out);
        }
        self.project_back(x, &block.active, &at.down, at.down_bias.as_ref(), t);
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
                let pass = NormPass {
                    x,
                    inverse: std::slice::from_ref(inverse),
                    dy,
                    dx: d_head,
                };
                self.norm_back(grads, &norms[usize::from(head >= config.num_heads)], pass);
                dy.copy_from_slice(d_head);
            }
        }
    }

    /// Rotates the queries and keys of `[t, q + 2 kv]` in layers with rotary embeddings.
    fn rotate(&self, pack: &Pack<'_>, layer: usize, qkv: &mut [f32], turn: Turn) {
        let config = &self.layout.config;
        let Some(table) = self.rope.of(config, self.layout.first() + layer) else {
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

    pub(crate) fn mlp_backward(
        &self,
        pack: &Pack<'_>,
        layer: usize,
        kept: &mut Activations,
        grads: &mut [f32],
    ) {
        let (t, w, config) = (pack.rows(), self.weights, &self.layout.config);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let at = &self.layout.blocks[layer];
        let block = &mut kept.blocks[layer];
        let d_stream = Mat::new(&kept.d_stream, t, d);
        self.products.multiply(
            MatMut::new(&mut kept.d_active, f),
            Store::Set,
            d_stream,
            Mat::new(&w[at.down.clone()], d, f),
        );
        self.weight_gradient(grads, &at.down, d_stream, Mat::new(&block.active, t, f));
        self.bias_gradient(grads, at.down_bias.as_ref(), &kept.d_stream);
        for (row, d) in block
            .gate_up
            .chunks_exact_mut(2 * f)
            .zip(kept.d_active.chunks_exact(f))
        {
            let (gate, up) = row.split_at_mut(f);
            self.vectors.run(SiluBackward { gate, up, d });
        }
        self.bias_gradient(grads, at.gate_up_bias.as_ref(), &block.gate_up);
        let d_gate_up = Mat::new(&block.gate_up, t, 2 * f);
        self.products.multiply(
            MatMut::new(&mut kept.d_normed, d),
            Store::Set,
            d_gate_up,
            Mat::new(&w[at.gate_up.clone()], 2 * f, d),
        );
        self.weight_gradient(grads, &at.gate_up, d_gate_up, Mat::new(&block.mlp_in, t, d));
        self.norm_back(
            grads,
            &at.mlp_norm,
            NormPass {
                x: &block.middle,
                inverse: &block.mlp_inverse,
                dy: &mut kept.d_normed,
                dx: &mut kept.d_stream,
            },
        );
    }

    pub(crate) fn attention_backward(
        &self,
        pack: &Pack<'_>,
        layer: usize,
        kept: &mut Activations,
        grads: &mut [f32],
    ) {
        let (t, w) = (pack.rows(), self.weights);
        let Widths { d, all, .. } = self.widths();
        let at = &self.layout.blocks[layer];
        self.mix_backward(pack, layer, kept, grads);
        let block = &kept.blocks[layer];
        let d_qkv = (&mut kept.d_qkv[..], &mut kept.d_head);
        self.head_norms_back(layer, block, d_qkv, grads);
        self.bias_gradient(grads, at.qkv_bias.as_ref(), &kept.d_qkv);
        let d_qkv = Mat::new(&kept.d_qkv, t, all);
        self.products.multiply(
            MatMut::new(&mut kept.d_normed, d),
            Store::Set,
            d_qkv,
            Mat::new(&w[at.qkv.clone()], all, d),
        );
        self.weight_gradient(grads, &at.qkv, d_qkv, Mat::new(&block.attn_in, t, d));
        self.norm_back(
            grads,
            &at.attn_norm,
            NormPass {
                x: &block.x,
                inverse: &block.attn_inverse,
                dy: &mut kept.d_normed,
                dx: &mut kept.d_stream,
            },
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
        let (t, w) = (pack.rows(), self.weights);
        let Widths { d, q, all, .. } = self.widths();
        let at = &self.layout.blocks[layer];
        let block = &kept.blocks[layer];
        let d_stream = Mat::new(&kept.d_stream, t, d);
        self.products.multiply(
            MatMut::new(&mut kept.d_mixed, q),
            Store::Set,
            d_stream,
            Mat::new(&w[at.out.clone()], d, q),
        );
        self.weight_gradient(grads, &at.out, d_stream, Mat::new(&block.mixed, t, q));
        self.bias_gradient(grads, at.out_bias.as_ref(), &kept.d_stream);
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
