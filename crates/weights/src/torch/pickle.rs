//! Reader of a pickle of tensors that runs no code.
//!
//! A pickle is a program for a stack machine that may call any function by name. This machine knows
//! three functions, those that `torch.save` writes for a dictionary of tensors, and produces
//! descriptions instead of calling them. Any other name is an error. Values are kept in one list
//! and refer to each other by index, so that nothing recurses however deep they are nested. Every
//! instruction makes at most one value, so work and memory are bounded by the pickle's length.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Reason why a pickle is not read.
#[derive(Debug)]
pub(super) enum Fault {
    /// It names a function or class that is not one of those known.
    Global(String),
    /// It is not a pickle of a dictionary of tensors.
    Malformed(String),
}

/// Largest length of a name, in bytes.
const LONGEST_TEXT: u64 = 4096;

type Result<T> = std::result::Result<T, Fault>;

fn bad<T>(message: impl Into<String>) -> Result<T> {
    Err(Fault::Malformed(message.into()))
}

/// A storage: numbers of one type in an entry of the archive.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    /// Name of its type: `FloatStorage` and the like.
    pub(super) dtype: Rc<str>,
    /// Name of the archive's entry.
    pub(super) key: Rc<str>,
    /// Number of values.
    pub(super) values: usize,
}

/// A tensor: a view of a storage.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) storage: Storage,
    /// Offset of the first value, in values.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// Index into [`Machine::values`].
type Id = usize;

#[derive(Clone, Debug)]
enum Value {
    /// A value without meaning here: None, a boolean, a float.
    Other,
    Int(i64),
    Text(Rc<str>),
    /// Tuples and lists.
    Items(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Function(Function),
    /// A type of storage.
    StorageType(Rc<str>),
    Storage(Storage),
    Tensor(View),
}

#[derive(Clone, Copy, Debug)]
enum Function {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
}

impl Value {
    /// The value of a global name, if it is one of those known.
    fn global(module: &str, name: &str) -> Result<Self> {
        Ok(match (module, name) {
            ("collections", "OrderedDict") => Self::Function(Function::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Self::Function(Function::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Self::Function(Function::RebuildParameter),
            ("torch", kind) if is_storage(kind) => Self::StorageType(kind.into()),
            _ => return Err(Fault::Global(format!("{module}.{name}"))),
        })
    }
}

/// True if a name is that of a typed storage.
fn is_storage(name: &str) -> bool {
    let kinds = [
        "Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool",
    ];
    name.strip_suffix("Storage")
        .is_some_and(|kind| kinds.contains(&kind))
}

/// The tensors of a pickled dictionary, or of the one under its key `state_dict`.
pub(super) fn tensors(bytes: &[u8]) -> Result<BTreeMap<String, View>> {
    let mut machine = Machine {
        rest: bytes,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let root = machine.run()?;
    machine.named_tensors(root)
}

struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Marked heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Id> {
        loop {
            let [code] = self.array()?;
            if code == b'.' {
                return self.pop();
            }
            self.step(code)?;
        }
    }

    fn step(&mut self, code: u8) -> Result<()> {
        match code {
            // Protocol and frames do not affect the contents.
            0x80 => self.array::<1>().map(|_| ()),
            0x95 => self.array::<8>().map(|_| ()),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'N' | 0x88 | 0x89 => self.push(Value::Other),
            b'G' => {
                self.array::<8>()?;
                self.push(Value::Other)
            }
            b'K' | b'M' | b'J' | 0x8a => self.integer(code),
            b'X' | 0x8c | 0x8d => self.text(code),
            b')' | b']' => self.push(Value::Items(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b't' | 0x85..=0x87 => self.tuple(code),
            b'a' | b'e' => self.append(code),
            b's' | b'u' => self.set_items(code),
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(code),
            b'c' | 0x93 => self.named(code),
            b'Q' => self.persistent(),
            b'R' => self.call(),
            // Attributes of a dictionary are dropped.
            b'b' => self.pop().map(|_| ()),
            other => bad(format!(
                "instruction {other:#04x} of its pickle is not known"
            )),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => bad("its pickle is cut short"),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn push(&mut self, value: Value) -> Result<()> {
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.pop() {
            Some(id) if self.stack.len() >= floor => Ok(id),
            _ => bad("its pickle takes more from the stack than is there"),
        }
    }

    fn top(&self) -> Result<Id> {
        match self.stack.last() {
            Some(id) => Ok(*id),
            None => bad("its pickle uses an empty stack"),
        }
    }

    /// Pops everything above the last mark.
    fn since_mark(&mut self) -> Result<Vec<Id>> {
        match self.marks.pop() {
            Some(mark) if mark <= self.stack.len() => Ok(self.stack.split_off(mark)),
            _ => bad("its pickle misses a mark"),
        }
    }

    fn integer(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b'K' => i64::from(self.array::<1>()?[0]),
            b'M' => i64::from(u16::from_le_bytes(self.array()?)),
            b'J' => i64::from(i32::from_le_bytes(self.array()?)),
            _ => {
                let [len] = self.array()?;
                let bytes = self.take(usize::from(len))?;
                if bytes.len() > 8 {
                    return bad("its pickle holds an integer of more than 64 bits");
                }
                let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut wide = if negative { [0xff; 8] } else { [0; 8] };
                wide[..bytes.len()].copy_from_slice(bytes);
                i64::from_le_bytes(wide)
            }
        };
        self.push(Value::Int(value))
    }

    fn text(&mut self, code: u8) -> Result<()> {
        let len = match code {
            b'X' => u64::from(u32::from_le_bytes(self.array()?)),
            0x8c => u64::from(self.array::<1>()?[0]),
            _ => u64::from_le_bytes(self.array()?),
        };
        if len > LONGEST_TEXT {
            return bad(format!("a text of its pickle is {len} bytes long"));
        }
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        match std::str::from_utf8(bytes) {
            Ok(text) => self.push(Value::Text(text.into())),
            Err(_) => bad("a text of its pickle is not UTF-8"),
        }
    }

    fn tuple(&mut self, code: u8) -> Result<()> {
        let items = match code {
            b't' => self.since_mark()?,
            _ => {
                let mut items = Vec::new();
                for _ in 0..=code - 0x85 {
                    items.push(self.pop()?);
                }
                items.reverse();
                items
            }
        };
        self.push(Value::Items(items))
    }

    fn append(&mut self, code: u8) -> Result<()> {
        let new = match code {
            b'a' => vec![self.pop()?],
            _ => self.since_mark()?,
        };
        let list = self.top()?;
        match &mut self.values[list] {
            Value::Items(items) => items.extend(new),
            _ => return bad("its pickle appends to what is no list"),
        }
        Ok(())
    }

    fn set_items(&mut self, code: u8) -> Result<()> {
        let new = match code {
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        let (pairs, []) = new.as_chunks::<2>() else {
            return bad("its pickle has a key without a value");
        };
        let dict = self.top()?;
        match &mut self.values[dict] {
            Value::Dict(items) => items.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            _ => return bad("its pickle sets items of what is no dictionary"),
        }
        Ok(())
    }

    fn remember(&mut self, code: u8) -> Result<()> {
        let place = match code {
            b'q' | b'h' => u64::from(self.array::<1>()?[0]),
            b'r' | b'j' => u64::from(u32::from_le_bytes(self.array()?)),
            _ => self.memo.len() as u64,
        };
        if matches!(code, b'h' | b'j') {
            let Some(id) = self.memo.get(&place) else {
                return bad("its pickle refers to what it did not remember");
            };
            self.stack.push(*id);
        } else {
            let id = self.top()?;
            self.memo.insert(place, id);
        }
        Ok(())
    }

    fn named(&mut self, code: u8) -> Result<()> {
        let value = if code == b'c' {
            let (module, name) = (self.line()?, self.line()?);
            Value::global(module, name)?
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (&self.values[module], &self.values[name]) {
                (Value::Text(module), Value::Text(name)) => Value::global(module, name)?,
                _ => return bad("its pickle names something by what is no text"),
            }
        };
        self.push(value)
    }

    fn line(&mut self) -> Result<&'a str> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return bad("its pickle is cut short");
        };
        let line = self.take(end + 1)?;
        match std::str::from_utf8(&line[..end]) {
            Ok(line) => Ok(line),
            Err(_) => bad("a name in its pickle is not UTF-8"),
        }
    }

    /// Reads a persistent id: `("storage", type, key, device, length)`.
    fn persistent(&mut self) -> Result<()> {
        let id = self.pop()?;
        let storage = match *self.items(id)? {
            [
                Value::Text(tag),
                Value::StorageType(dtype),
                Value::Text(key),
                _,
                Value::Int(values),
            ] if &**tag == "storage" => usize::try_from(*values).ok().map(|values| Storage {
                dtype: dtype.clone(),
                key: key.clone(),
                values,
            }),
            _ => None,
        };
        match storage {
            Some(storage) => self.push(Value::Storage(storage)),
            None => bad("its pickle refers to something that is no storage"),
        }
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Function(function) = self.values[function] else {
            return bad("its pickle calls what is no function");
        };
        let made = match (function, self.items(arguments)?.as_slice()) {
            (Function::OrderedDict, []) => Some(Value::Dict(Vec::new())),
            (Function::RebuildParameter, [Value::Tensor(view), ..]) => {
                Some(Value::Tensor(view.clone()))
            }
            (
                Function::RebuildTensor,
                [
                    Value::Storage(storage),
                    Value::Int(offset),
                    Value::Items(shape),
                    Value::Items(strides),
                    ..,
                ],
            ) => self
                .sizes(shape)
                .zip(self.sizes(strides))
                .and_then(|(shape, strides)| {
                    Some(Value::Tensor(View {
                        storage: storage.clone(),
                        offset: usize::try_from(*offset).ok()?,
                        shape,
                        strides,
                    }))
                }),
            _ => None,
        };
        match made {
            Some(value) => self.push(value),
            None => bad(format!(
                "its pickle calls {function:?} with arguments of other kinds"
            )),
        }
    }

    /// At most eight items of a tuple: no function takes more.
    fn items(&self, id: Id) -> Result<Vec<&Value>> {
        match &self.values[id] {
            Value::Items(items) => Ok(items.iter().take(8).map(|id| &self.values[*id]).collect()),
            _ => bad("its pickle calls something without a tuple of arguments"),
        }
    }

    /// The sizes of at most eight dimensions.
    fn sizes(&self, items: &[Id]) -> Option<Vec<usize>> {
        let size = |id: &Id| match self.values[*id] {
            Value::Int(value) => usize::try_from(value).ok(),
            _ => None,
        };
        (items.len() <= 8).then(|| items.iter().map(size).collect())?
    }

    fn named_tensors(&self, root: Id) -> Result<BTreeMap<String, View>> {
        let Value::Dict(items) = &self.values[root] else {
            return bad("its pickle is no dictionary of tensors");
        };
        let inner = items.iter().find_map(|(key, value)| {
            let named = matches!(&self.values[*key], Value::Text(key) if &**key == "state_dict");
            match &self.values[*value] {
                Value::Dict(items) if named => Some(items),
                _ => None,
            }
        });
        let mut tensors = BTreeMap::new();
        for (key, value) in inner.unwrap_or(items) {
            let (Value::Text(name), Value::Tensor(view)) =
                (&self.values[*key], &self.values[*value])
            else {
                return bad("its dictionary holds something that is no tensor under a name");
            };
            tensors.insert(name.to_string(), view.clone());
        }
        Ok(tensors)
    }
}
