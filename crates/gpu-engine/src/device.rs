//! Graphics devices, addressed by number.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cubecl::bytes::Bytes;
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::wgpu::wgpu::PollType;
use cubecl::wgpu::{AutoGraphicsApi, RuntimeOptions, WgpuSetup, try_init_setup};
use cubecl_environment::stream::StreamId;
use lm::{LmError, ModelError};

/// The stream of all engines, so that writes of one are visible to the others, in order.
const STREAM: StreamId = StreamId { value: 0x6f64 };
/// Size of one upload in bytes. It is limited because the device keeps a copy of uploads in
/// progress.
const UPLOAD: usize = 64 << 20;
/// Time of busy waiting for an answer. Waking up two threads in turn takes as long as a pass of a
/// small drafter.
const AWAKE: Duration = Duration::from_millis(2);

/// Errors of a graphics device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no adapter.
    #[error(
        "no graphics adapter was found through {}; a driver is missing, or the loader \
         (libvulkan.so.1 on Linux)",
        interface_name()
    )]
    NoAdapter,
    /// The number is beyond the last adapter.
    #[error("there is no adapter {index}: {count} were found, counted from 0")]
    NoSuchAdapter {
        /// The number asked for, from 0.
        index: usize,
        /// Number of adapters.
        count: usize,
    },
    /// The shaders of this device do not support a type.
    #[error("the adapter does not compute with {0}")]
    Type(&'static str),
    /// A buffer is larger than the device can bind.
    #[error("a buffer of {bytes} bytes is larger than the {limit} that the adapter binds")]
    Buffer {
        /// Size asked for, in bytes.
        bytes: usize,
        /// Largest size, in bytes.
        limit: usize,
    },
    /// More rows of logits are asked for than the device holds or has room for.
    #[error("{rows} rows of logits: the device has {most}")]
    Rows {
        /// Number of rows asked for.
        rows: usize,
        /// Number of rows that it holds or has room for.
        most: usize,
    },
    /// The device failed to execute a request.
    #[error("the device failed: {0}")]
    Failed(String),
}

impl From<GpuError> for LmError {
    fn from(error: GpuError) -> Self {
        Self::engine("gpu", error)
    }
}

impl From<GpuError> for ModelError {
    fn from(error: GpuError) -> Self {
        LmError::from(error).into()
    }
}

/// An adapter of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// True if the adapter is a program that emulates a graphics device on the processor.
    pub software: bool,
}

/// The adapters, hardware before software. Their indices are the numbers that [`Gpu::open`] takes.
pub fn adapters() -> Vec<Adapter> {
    let described = |kind: &WgpuDeviceKind| Adapter {
        kind: match kind {
            WgpuDeviceKind::DiscreteGpu(_) => "discrete",
            WgpuDeviceKind::IntegratedGpu(_) => "integrated",
            WgpuDeviceKind::VirtualGpu(_) => "virtual",
            WgpuDeviceKind::Cpu => "software",
            _ => "other",
        },
        software: *kind == WgpuDeviceKind::Cpu,
    };
    kinds().iter().map(described).collect()
}

/// Interface to adapters. By default, wgpu would use OpenGL if there is no Vulkan, and nothing
/// would show why everything is slow.
const INTERFACE: WgpuBackend = if cfg!(target_os = "macos") {
    WgpuBackend::Metal
} else {
    WgpuBackend::Vulkan
};

/// Name of the interface to adapters.
fn interface_name() -> &'static str {
    match INTERFACE {
        WgpuBackend::Metal => "Metal",
        _ => "Vulkan",
    }
}

/// The adapter of this kind, through [`INTERFACE`].
fn reached(kind: WgpuDeviceKind) -> WgpuDevice {
    WgpuDevice::new(kind).on(INTERFACE)
}

/// All adapters by kind, with an entry for each.
fn kinds() -> Vec<WgpuDeviceKind> {
    let there = |kind: &WgpuDeviceKind| {
        let device = cubecl::Device::Wgpu(reached(kind.clone()));
        device.on(INTERFACE).is_ok()
    };
    let several: [fn(usize) -> WgpuDeviceKind; 4] = [
        WgpuDeviceKind::DiscreteGpu,
        WgpuDeviceKind::IntegratedGpu,
        WgpuDeviceKind::VirtualGpu,
        WgpuDeviceKind::Other,
    ];
    let mut found = Vec::new();
    for kind in several {
        found.extend((0..).map(kind).take_while(there));
    }
    found.extend(Some(WgpuDeviceKind::Cpu).filter(there));
    found
}

/// An open device.
#[derive(Clone)]
pub struct Gpu(Arc<Opened>);

struct Opened {
    client: Client,
    /// The device that is polled for answers.
    device: cubecl::wgpu::wgpu::Device,
    software: bool,
    /// Allows one call of one engine at a time.
    busy: Mutex<()>,
    /// Bound in place of a buffer that a kernel does not read.
    nothing: Handle,
}

impl Gpu {
    /// Opens an adapter, or returns it if it is open.
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`] and [`GpuError::NoSuchAdapter`]; [`GpuError::Failed`] for a driver
    /// that does not open an adapter that it listed.
    pub fn open(index: usize) -> Result<Self, GpuError> {
        static OPEN: Mutex<Option<HashMap<usize, Gpu>>> = Mutex::new(None);
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        if let Some(gpu) = open.get(&index) {
            return Ok(gpu.clone());
        }
        let kinds = kinds();
        let kind = match kinds.get(index) {
            Some(kind) => kind.clone(),
            None if kinds.is_empty() => return Err(GpuError::NoAdapter),
            None => {
                return Err(GpuError::NoSuchAdapter {
                    index,
                    count: kinds.len(),
                });
            }
        };
        let software = kind == WgpuDeviceKind::Cpu;
        let device = reached(kind);
        let options = RuntimeOptions::try_default().map_err(failed)?;
        let opened = try_init_setup::<AutoGraphicsApi>(&device, options).map_err(failed)?;
        let WgpuSetup {
            device: answers, ..
        } = opened;
        let client = cubecl::Device::Wgpu(device).client();
        let nothing = STREAM.executes(|| client.create_from_slice(&[0; 64]));
        let gpu = Self(Arc::new(Opened {
            client,
            device: answers,
            software,
            busy: Mutex::new(()),
            nothing,
        }));
        open.insert(index, gpu.clone());
        Ok(gpu)
    }

    /// True if `other` is the same device. Each is opened once.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Name of the interface: `Vulkan` or `Metal`.
    pub fn interface(&self) -> &'static str {
        interface_name()
    }

    /// Types beyond f32 that its shaders compute with, as available to this engine.
    pub fn types(&self) -> Vec<&'static str> {
        let properties = self.0.client.properties();
        let there = |ty| properties.supports_type(ty);
        let all = [
            ("f16", there(half::f16::elem_type_native())),
            ("bf16", there(half::bf16::elem_type_native())),
            ("i8", there(i8::elem_type_native())),
        ];
        all.into_iter().filter(|ty| ty.1).map(|ty| ty.0).collect()
    }

    /// Bytes of memory that the units of a cube share.
    pub fn shared_bytes(&self) -> usize {
        self.0.client.properties().hardware.max_shared_memory_size
    }

    /// Number of units of a subgroup, from the smallest to the largest.
    pub fn subgroup(&self) -> RangeInclusive<u32> {
        let hardware = &self.0.client.properties().hardware;
        hardware.plane_size_min..=hardware.plane_size_max
    }

    /// Name of the adapter, as the driver gives it.
    pub fn name(&self) -> String {
        self.0.client.properties().identity.name.to_string()
    }

    /// True if the processor emulates the device.
    pub fn is_software(&self) -> bool {
        self.0.software
    }

    /// Size of the largest buffer, in bytes.
    pub fn max_buffer(&self) -> usize {
        self.0.client.properties().memory.max_page_size as usize
    }

    /// Runs `work` while no other caller uses the device.
    pub(crate) fn run<T>(&self, work: impl FnOnce(&Client) -> T) -> T {
        let _busy = lock(&self.0.busy);
        STREAM.executes(|| work(&self.0.client))
    }

    /// Waits for an answer of the device.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        let until = Instant::now() + AWAKE;
        // If the processor emulates the device, busy waiting would take its time.
        while !self.0.software && Instant::now() < until {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(done) = answer.as_mut().poll(&mut context) {
                return done;
            }
            // Errors of the device are reported by the answer.
            let _ = self.0.device.poll(PollType::Poll);
        }
        cubecl::future::block_on(answer)
    }

    /// Copies buffers to the host.
    pub(crate) fn read(&self, wanted: Vec<Handle>) -> Result<Vec<Bytes>, GpuError> {
        let answer = {
            let _busy = lock(&self.0.busy);
            STREAM.executes(|| self.0.client.read_async(wanted))
        };
        self.wait(answer).map_err(failed)
    }

    /// A small buffer for arguments that a kernel does not read.
    pub(crate) fn nothing(&self) -> &Handle {
        &self.0.nothing
    }

    /// Checks that the device can bind a buffer of `bytes`.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), GpuError> {
        let limit = self.max_buffer();
        match bytes > limit {
            true => Err(GpuError::Buffer { bytes, limit }),
            false => Ok(()),
        }
    }

    /// Waits until all requests are done.
    ///
    /// # Errors
    /// A failure since the last call.
    pub fn sync(&self) -> Result<(), GpuError> {
        let done = self.run(|client| client.sync());
        self.wait(done).map_err(failed)
    }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> GpuError {
    GpuError::Failed(error.to_string())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Overwrites a buffer, a part at a time.
pub(crate) fn write(client: &Client, to: &Handle, words: &[u32]) {
    let bytes = u32::as_bytes(words);
    for (i, part) in bytes.chunks(UPLOAD).enumerate() {
        let start = i * UPLOAD;
        let rest = bytes.len() - start - part.len();
        let to = to
            .clone()
            .offset_start(start as u64)
            .offset_end(rest as u64);
        client.write(&to, Bytes::from_bytes_vec(part.to_vec()));
    }
}

/// A new buffer that begins with these words and has room for at least four.
pub(crate) fn upload(client: &Client, words: &[u32]) -> Handle {
    let to = client.empty(words.len().max(4) * size_of::<u32>());
    write(client, &to, words);
    to
}

/// A new buffer of zeros.
pub(crate) fn zeros(client: &Client, words: usize) -> Handle {
    upload(client, &vec![0; words])
}

/// Numbers as words.
pub(crate) fn words(numbers: &[f32]) -> &[u32] {
    u32::from_bytes(f32::as_bytes(numbers))
}

/// A buffer as a kernel's argument of `len` elements of the kernel's own type.
#[expect(unsafe_code, reason = "the length is the caller's promise")]
pub(crate) fn arg(handle: &Handle, len: usize) -> BufferArg {
    // SAFETY: every caller takes the length from its allocation; kernels stay within it.
    unsafe { BufferArg::from_raw_parts(handle.clone(), len) }
}
