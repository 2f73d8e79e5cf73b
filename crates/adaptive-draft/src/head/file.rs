//! Files of heads and of their training, in safetensors format.

use std::collections::BTreeMap;
use std::path::Path;

use lm::{AdamW, HostTensor, Moments, StoredType, read_safetensors, write_safetensors};

use super::{Example, Head, HeadConfig, HeadTrainer};
use crate::HeadError;

type Tensors = BTreeMap<String, HostTensor>;

impl Head {
    /// Writes the weights as f32: `first` `[features, hidden]`, `first_bias` `[hidden]`, `output`
    /// `[hidden]`, `output_bias` `[1]`. A linear head has only `output` `[features]` and
    /// `output_bias`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), HeadError> {
        Ok(write_safetensors(path, &self.tensors(), StoredType::F32)?)
    }

    /// Reads a file of [`save`](Self::save).
    ///
    /// # Errors
    /// An unreadable file, or one that holds no head.
    pub fn load(path: &Path) -> Result<Self, HeadError> {
        let tensors = read_safetensors(path)?;
        Self::from_tensors(&mut Reader { path, tensors })
    }

    fn tensors(&self) -> Tensors {
        let (inputs, hidden) = (self.features, self.hidden);
        let mut parts = vec![("output_bias", vec![1])];
        if hidden == 0 {
            parts.push(("output", vec![inputs]));
        } else {
            parts.push(("output", vec![hidden]));
            parts.push(("first_bias", vec![hidden]));
            parts.push(("first", vec![inputs, hidden]));
        }
        let mut end = self.weights.len();
        let mut tensor = |(name, shape): (&str, Vec<usize>)| {
            let start = end - shape.iter().product::<usize>();
            let data = self.weights[start..end].to_vec();
            end = start;
            (name.to_owned(), HostTensor { shape, data })
        };
        parts.into_iter().map(&mut tensor).collect()
    }

    fn from_tensors(reader: &mut Reader<'_>) -> Result<Self, HeadError> {
        let output = reader.take("output", 1)?;
        let (features, hidden, mut weights) = if reader.tensors.contains_key("first") {
            let first = reader.take("first", 2)?;
            let (features, hidden) = (first.shape[0], first.shape[1]);
            reader.expect("output", output.data.len(), hidden)?;
            let bias = reader.take("first_bias", 1)?;
            reader.expect("first_bias", bias.data.len(), hidden)?;
            let mut weights = first.data;
            weights.extend(bias.data);
            (features, hidden, weights)
        } else {
            (output.data.len(), 0, Vec::new())
        };
        weights.extend(output.data);
        let bias = reader.take("output_bias", 1)?;
        weights.extend(bias.data);
        reader.expect(
            "output_bias",
            weights.len(),
            Self::parameters(features, hidden),
        )?;
        Ok(Self {
            features,
            hidden,
            weights,
        })
    }
}

impl HeadTrainer {
    /// Writes head, moments, step count and the buffer R, so that training can continue with the
    /// same bits.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), HeadError> {
        let mut tensors = self.head.tensors();
        let mut put = |name: &str, shape: Vec<usize>, data: Vec<f32>| {
            tensors.insert(name.to_owned(), HostTensor { shape, data });
        };
        if let Some(moments) = self.optimizer.moments() {
            let n = moments.first.len();
            put("moments_first", vec![n], moments.first.clone());
            put("moments_second", vec![n], moments.second.clone());
        }
        let (n, width) = (self.buffer.len(), self.head.features);
        let features = self.buffer.iter().flat_map(|e| &e.features).copied();
        put("buffer_features", vec![n, width], features.collect());
        let labels = self.buffer.iter().map(|example| example.label).collect();
        put("buffer_labels", vec![n], labels);
        for (name, number) in [("steps", self.steps()), ("fresh", self.fresh as u64)] {
            tensors.insert(name.to_owned(), HostTensor::whole(number));
        }
        Ok(write_safetensors(path, &tensors, StoredType::F32)?)
    }

    /// Reads a file of [`save`](Self::save). Training continues as if uninterrupted if `config` and
    /// `seed` are the same as before.
    ///
    /// # Errors
    /// An unreadable file, or one that holds no training.
    pub fn load(path: &Path, config: HeadConfig, seed: u64) -> Result<Self, HeadError> {
        let tensors = read_safetensors(path)?;
        let mut reader = Reader { path, tensors };
        let head = Head::from_tensors(&mut reader)?;
        let mut moments = None;
        if reader.tensors.contains_key("moments_first") {
            let first = reader.take("moments_first", 1)?.data;
            let second = reader.take("moments_second", 1)?.data;
            reader.expect("moments_first", first.len(), head.weights.len())?;
            reader.expect("moments_second", second.len(), head.weights.len())?;
            moments = Some(Moments { first, second });
        }
        let steps = reader.take_whole("steps")?;
        let fresh = reader.take_whole("fresh")? as usize;
        let features = reader.take("buffer_features", 2)?;
        let labels = reader.take("buffer_labels", 1)?.data;
        let width = head.features;
        reader.expect("buffer_features", features.data.len(), labels.len() * width)?;
        let rows = features.data.chunks_exact(width.max(1));
        let buffer = rows.zip(labels).map(|(features, label)| Example {
            features: features.to_vec(),
            label,
        });
        let buffer: std::collections::VecDeque<Example> = buffer.collect();
        Ok(Self {
            optimizer: AdamW::resume(Self::optimizer(&config), steps, moments),
            fresh: fresh.min(buffer.len()),
            head,
            config,
            buffer,
            seed,
        })
    }
}

struct Reader<'a> {
    path: &'a Path,
    tensors: Tensors,
}

impl Reader<'_> {
    fn take(&mut self, name: &'static str, rank: usize) -> Result<HostTensor, HeadError> {
        let tensor = self.tensors.remove(name).ok_or(HeadError::MissingTensor {
            path: self.path.to_owned(),
            tensor: name,
        })?;
        self.expect(name, tensor.shape.len(), rank)?;
        Ok(tensor)
    }

    fn take_whole(&mut self, name: &'static str) -> Result<u64, HeadError> {
        let tensor = self.take(name, 1)?;
        let found = tensor.data.len();
        tensor.to_whole().ok_or(HeadError::Shape {
            path: self.path.to_owned(),
            tensor: name,
            found,
            expected: 4,
        })
    }

    fn expect(&self, name: &'static str, found: usize, expected: usize) -> Result<(), HeadError> {
        if found == expected {
            return Ok(());
        }
        Err(HeadError::Shape {
            path: self.path.to_owned(),
            tensor: name,
            found,
            expected,
        })
    }
}
