//! Writer of [`LmConfig`] as the `config.json` that Hugging Face transformers loads.

use serde_json::{Map, Value, json};

use super::families::{Family, Windows};
use super::{Activation, LmConfig, Rope, RopeScaling, Rotary};

impl LmConfig {
    /// The `model_type` of the family.
    pub fn model_type(&self) -> &'static str {
        Family::of(self.architecture).model_type
    }

    /// The configuration as JSON that Hugging Face transformers loads. Reading it gives this
    /// configuration again.
    pub fn to_json(&self) -> Value {
        let family = Family::of(self.architecture);
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => (*one).into(),
            many => many.into(),
        };
        let mut json = json!({
            "architectures": [family.class],
            "model_type": family.model_type,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope.theta,
            "rope_scaling": scaling(&self.rope),
            "tie_word_embeddings": self.tie_word_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos,
        });
        if let Some(keys) = json.as_object_mut() {
            self.write_rope(family, keys);
            self.write_layers(family, keys);
            self.write_block(family, keys);
        }
        json
    }

    fn write_rope(&self, family: &Family, keys: &mut Map<String, Value>) {
        if family.partial_rotary {
            let part = self.rope.dims as f64 / self.head_dim as f64;
            keys.insert("partial_rotary_factor".into(), part.into());
        }
        if let RopeScaling::LongRope { original, .. } = self.rope.scaling {
            let key = "original_max_position_embeddings";
            keys.insert(key.into(), original.into());
        }
        if let (Some(key), Some(local)) = (family.local_rope(), &self.local_rope) {
            keys.insert(key.into(), local.theta.into());
            if local.scaling != RopeScaling::Default {
                // transformers expects both rotations here if there is one.
                let both = json!({
                    "full_attention": scaling(&self.rope),
                    "sliding_attention": scaling(local),
                });
                keys.insert("rope_parameters".into(), both);
            }
        }
    }

    fn write_layers(&self, family: &Family, keys: &mut Map<String, Value>) {
        let layers = || (0..self.num_layers).map(|layer| self.layer(layer));
        let window = layers().find_map(|layer| layer.window);
        if family.windows == Windows::Unrotated {
            let rotated = layers().map(|layer| u8::from(layer.rotary != Rotary::None));
            keys.insert("no_rope_layers".into(), rotated.collect());
        }
        match family.windows {
            Windows::Never => return,
            Windows::Above | Windows::Unrotated if window.is_none() => return,
            Windows::Above | Windows::Unrotated => {
                keys.insert("use_sliding_window".into(), true.into());
            }
            Windows::All | Windows::AllBut { .. } => {}
        }
        keys.insert("sliding_window".into(), window.into());
        if family.windows != Windows::All {
            let types = layers().map(|layer| {
                if layer.window.is_some() || layer.rotary == Rotary::Local {
                    "sliding_attention"
                } else {
                    "full_attention"
                }
            });
            keys.insert("layer_types".into(), types.collect());
        }
    }

    fn write_block(&self, family: &Family, keys: &mut Map<String, Value>) {
        let block = &self.block;
        let activation = match block.activation {
            Activation::Silu => "silu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_pytorch_tanh",
            Activation::Relu => "relu",
        };
        keys.insert(family.activation.0.into(), activation.into());
        if block.biases.out {
            keys.insert("attention_bias".into(), true.into());
        }
        if block.biases.mlp {
            keys.insert("mlp_bias".into(), true.into());
        }
        if family.gemma.is_some() {
            let exact = 1.0 / f64::from(block.attention_scale).powi(2);
            let whole = exact.round();
            let same = (1.0 / whole.sqrt()) as f32 == block.attention_scale;
            let scalar: Value = if same {
                (whole as u64).into()
            } else {
                exact.into()
            };
            keys.insert("query_pre_attn_scalar".into(), scalar);
            keys.insert("attn_logit_softcapping".into(), block.attention_cap.into());
            keys.insert("final_logit_softcapping".into(), self.logit_cap.into());
        }
        if family.multipliers {
            let numbers = [
                ("attention_multiplier", block.attention_scale),
                ("residual_multiplier", block.residual_scale),
                ("embedding_multiplier", self.embedding_scale),
                ("logits_scaling", self.logit_divisor),
            ];
            for (key, number) in numbers {
                keys.insert(key.into(), number.into());
            }
        }
    }
}

/// The object `rope_scaling` of a rotation, or null.
fn scaling(rope: &Rope) -> Value {
    match &rope.scaling {
        RopeScaling::Default => Value::Null,
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Dynamic { factor, .. } => json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::Yarn {
            factor,
            original,
            beta_fast,
            beta_slow,
            truncate,
            attention_factor,
        } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "truncate": truncate,
            "attention_factor": attention_factor,
        }),
        RopeScaling::LongRope {
            short,
            long,
            original,
            attention_factor,
        } => json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": original,
            "attention_factor": attention_factor,
        }),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original,
        }),
    }
}
