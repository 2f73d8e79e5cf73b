//! Writer of [`LmConfig`] as the `config.json` that Hugging Face transformers loads.

use serde_json::{Value, json};

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
        self.write_rope(family, &mut json);
        self.write_layers(family, &mut json);
        self.write_block(family, &mut json);
        json
    }

    fn write_rope(&self, family: &Family, json: &mut Value) {
        if family.partial_rotary {
            let part = self.rope.dims as f64 / self.head_dim as f64;
            json["partial_rotary_factor"] = part.into();
        }
        if let RopeScaling::LongRope { original, .. } = self.rope.scaling {
            json["original_max_position_embeddings"] = original.into();
        }
        if let (Some(key), Some(local)) = (family.local_rope(), &self.local_rope) {
            json[key] = local.theta.into();
            if local.scaling != RopeScaling::Default {
                // transformers expects both rotations here if there is one.
                let both = json!({
                    "full_attention": scaling(&self.rope),
                    "sliding_attention": scaling(local),
                });
                json["rope_parameters"] = both;
            }
        }
    }

    fn write_layers(&self, family: &Family, json: &mut Value) {
        let layers = || (0..self.num_layers).map(|layer| self.layer(layer));
        let window = layers().find_map(|layer| layer.window);
        if family.windows == Windows::Unrotated {
            let rotated = layers().map(|layer| u8::from(layer.rotary != Rotary::None));
            json["no_rope_layers"] = rotated.collect();
        }
        match family.windows {
            Windows::Never => return,
            Windows::Above | Windows::Unrotated if window.is_none() => return,
            Windows::Above | Windows::Unrotated => {
                json["use_sliding_window"] = true.into();
            }
            Windows::All | Windows::AllBut { .. } => {}
        }
        json["sliding_window"] = window.into();
        if family.windows != Windows::All {
            let types = layers().map(|layer| {
                if layer.window.is_some() || layer.rotary == Rotary::Local {
                    "sliding_attention"
                } else {
                    "full_attention"
                }
            });
            json["layer_types"] = types.collect();
        }
    }

    fn write_block(&self, family: &Family, json: &mut Value) {
        let block = &self.block;
        let activation = match block.activation {
            Activation::Silu => "silu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_pytorch_tanh",
            Activation::Relu => "relu",
        };
        json[family.activation.0] = activation.into();
        if block.biases.out {
            json["attention_bias"] = true.into();
        }
        if block.biases.mlp {
            json["mlp_bias"] = true.into();
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
            json["query_pre_attn_scalar"] = scalar;
            json["attn_logit_softcapping"] = block.attention_cap.into();
            json["final_logit_softcapping"] = self.logit_cap.into();
        }
        if family.multipliers {
            let numbers = [
                ("attention_multiplier", block.attention_scale),
                ("residual_multiplier", block.residual_scale),
                ("embedding_multiplier", self.embedding_scale),
                ("logits_scaling", self.logit_divisor),
            ];
            for (key, number) in numbers {
                json[key] = number.into();
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
