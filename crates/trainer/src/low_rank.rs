//! Training adapters instead of weights.
//!
//! For `y = x (W + s B A)^T` the gradients are `dB = s dy^T (x A^T)` and `dA = s (dy B)^T x`: the
//! gradient of `W` itself, as large as the model, is never formed.

use std::collections::BTreeMap;
use std::ops::Range;

use lm::host::{Mat, MatMut, Store, multiply, normal};
use lm::{Adapter, HostTensor, LmConfig, LmError, LoraConfig, adapted};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::layout::Layout;

/// One adapted matrix.
struct Site {
    /// Range of the dense matrix in the flat weights.
    weight: Range<usize>,
    out: usize,
    input: usize,
    /// Range of `A`, `[rank, in]`, in the flat adapter.
    a: Range<usize>,
    /// Range of `B`, `[out, rank]`, in the flat adapter.
    b: Range<usize>,
    names: [String; 2],
}

/// An adapter in training: `A` and `B` of all sites in one flat vector.
pub(crate) struct LowRank {
    pub(crate) config: LoraConfig,
    pub(crate) values: Vec<f32>,
    /// True if the flat weights do not include `values` yet.
    pub(crate) stale: bool,
    sites: Vec<Site>,
    /// The frozen matrices, one per site.
    frozen: Vec<Vec<f32>>,
}

impl LowRank {
    /// Adapters without effect (`B` = 0) on the flat `weights` of a layout.
    pub(crate) fn new(
        layout: &Layout,
        config: LoraConfig,
        weights: &[f32],
        seed: u64,
    ) -> Result<Self, LmError> {
        config.check(&layout.config)?;
        let places: BTreeMap<&str, Range<usize>> =
            layout.tensors().map(|(name, _, at)| (name, at)).collect();
        let mut len = 0;
        let mut take = |count: usize| {
            len += count;
            len - count..len
        };
        let mut sites = Vec::new();
        for matrix in adapted(&layout.config, &config) {
            let Some(at) = places.get(matrix.weight.as_str()) else {
                return Err(LmError::OtherModel);
            };
            sites.push(Site {
                weight: at.clone(),
                a: take(config.rank * matrix.input),
                b: take(matrix.out * config.rank),
                out: matrix.out,
                input: matrix.input,
                names: [matrix.a, matrix.b],
            });
        }
        let frozen = sites.iter().map(|s| weights[s.weight.clone()].to_vec());
        let mut low_rank = Self {
            config,
            values: Vec::new(),
            stale: false,
            frozen: frozen.collect(),
            sites,
        };
        low_rank.values = low_rank.fresh(seed);
        Ok(low_rank)
    }

    /// Initial values: `A` drawn as in PEFT, with variance `1 / (3 in)`, and `B` = 0, so that there
    /// is no effect yet.
    pub(crate) fn fresh(&self, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut values = Vec::with_capacity(self.len());
        for site in &self.sites {
            let deviation = (1.0 / (3.0 * site.input as f32)).sqrt();
            values.extend(normal(&mut rng, deviation, site.a.len()));
            values.resize(values.len() + site.b.len(), 0.0);
        }
        values
    }

    /// Number of trained values.
    pub(crate) fn len(&self) -> usize {
        self.sites.last().map_or(0, |site| site.b.end)
    }

    /// Writes the adapted matrices, `W + s B A`, into the flat weights.
    pub(crate) fn merge_into(&self, weights: &mut [f32]) {
        let mut parts = Vec::with_capacity(self.sites.len());
        let (mut rest, mut at) = (weights, 0);
        for (site, frozen) in self.sites.iter().zip(&self.frozen) {
            let (_, after) = rest.split_at_mut(site.weight.start - at);
            let (own, after) = after.split_at_mut(site.weight.len());
            (rest, at) = (after, site.weight.end);
            parts.push((site, frozen, own));
        }
        parts.into_par_iter().for_each(|(site, frozen, weight)| {
            weight.copy_from_slice(frozen);
            let (a, b) = (&self.values[site.a.clone()], &self.values[site.b.clone()]);
            self.config.add_product(weight, b, a);
        });
    }

    /// Adds the gradients of the sites inside the matrix at `at`, which maps `x` to rows whose
    /// gradient is `dy`.
    ///
    /// # Shapes
    /// - `dy`: `[t, rows of the matrix]`
    /// - `x`: `[t, in]`
    pub(crate) fn add_gradients(
        &self,
        at: &Range<usize>,
        dy: Mat<'_>,
        x: Mat<'_>,
        gradients: &mut [f32],
    ) {
        let (rank, scale, t) = (self.config.rank, self.config.scale(), x.rows);
        let inside = |site: &&Site| at.start <= site.weight.start && site.weight.end <= at.end;
        let narrow = |left: Mat<'_>, right: Mat<'_>| {
            let mut product = vec![0.0; t * rank];
            multiply(MatMut::new(&mut product, rank), Store::Set, left, right);
            product.iter_mut().for_each(|value| *value *= scale);
            product
        };
        for site in self.sites.iter().filter(inside) {
            let first = (site.weight.start - at.start) / site.input;
            let dy = dy.columns(first..first + site.out);
            let a = Mat::new(&self.values[site.a.clone()], rank, site.input);
            let b = Mat::new(&self.values[site.b.clone()], site.out, rank);
            let through_a = narrow(x, a.t());
            multiply(
                MatMut::new(&mut gradients[site.b.clone()], rank),
                Store::Add,
                dy.t(),
                Mat::new(&through_a, t, rank),
            );
            let through_b = narrow(dy, b);
            multiply(
                MatMut::new(&mut gradients[site.a.clone()], site.input),
                Store::Add,
                Mat::new(&through_b, t, rank).t(),
                x,
            );
        }
    }

    /// Names the values of an adapter of this shape as PEFT does.
    pub(crate) fn name(&self, values: &[f32]) -> Adapter {
        let rank = self.config.rank;
        let mut adapter = Adapter {
            config: self.config,
            tensors: Default::default(),
        };
        for site in &self.sites {
            let [a, b] = site.names.clone();
            let tensor = |shape: [usize; 2], at: &Range<usize>| HostTensor {
                shape: shape.to_vec(),
                data: values[at.clone()].to_vec(),
            };
            let tensors = &mut adapter.tensors;
            tensors.insert(a, tensor([rank, site.input], &site.a));
            tensors.insert(b, tensor([site.out, rank], &site.b));
        }
        adapter
    }

    /// The flat values of an adapter of this shape.
    pub(crate) fn flatten(&self, model: &LmConfig, adapter: &Adapter) -> Result<Vec<f32>, LmError> {
        adapter.check(model, "(adapter in memory)".as_ref())?;
        if adapter.config != self.config {
            return Err(LmError::OtherModel);
        }
        let names = self.sites.iter().flat_map(|site| &site.names);
        let tensors = names.filter_map(|name| adapter.tensors.get(name));
        Ok(tensors.flat_map(|t| &t.data).copied().collect())
    }
}
