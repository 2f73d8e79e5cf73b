//! An emulator of tiles for processors without them. Instructions that the processor refuses arrive
//! as signals, and are executed here as the manual defines them. Tests of the tile kernels
//! therefore run the very instructions that are shipped, at a millionth of their speed.

use std::cell::RefCell;
use std::sync::OnceLock;

/// Number of rows of a register.
const ROWS: usize = 16;
/// Number of bytes of a row.
const BYTES: usize = 64;

/// A sum, two bf16 numbers, or four bytes.
type Word = [u8; 4];

/// The tile registers of a thread.
#[derive(Clone)]
struct Registers {
    config: [u8; 64],
    tiles: [[[u8; BYTES]; ROWS]; 8],
}

thread_local! {
    static REGISTERS: RefCell<Registers> = const {
        RefCell::new(Registers { config: [0; 64], tiles: [[[0; BYTES]; ROWS]; 8] })
    };
}

/// Installs the emulator for tile instructions. Returns false on systems without the signals of
/// Linux.
pub(super) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: all zeros are a valid action, whose fields are set below; the handler only
        // touches registers, and memory that the instruction names.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = refused;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()) == 0
        }
    })
}

extern "C" fn refused(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system calls this with the context of the refused instruction.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as *const u8;
        let done = Instruction::read(at, registers).map(|(instruction, length)| {
            REGISTERS.with_borrow_mut(|tiles| instruction.run(tiles));
            registers[libc::REG_RIP as usize] += length as i64;
        });
        if done.is_none() {
            // Not a tile instruction. With the default action the instruction is refused again and
            // ends the process.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// A tile instruction. Memory operands are addresses.
#[derive(Debug)]
enum Instruction {
    Configure(*const u8),
    Release,
    Zero(usize),
    Load {
        to: usize,
        place: *const u8,
        stride: isize,
    },
    Store {
        from: usize,
        place: *mut u8,
        stride: isize,
    },
    MultiplyPairs(usize, usize, usize),
    MultiplyBytes(usize, usize, usize),
}

impl Instruction {
    /// Decodes the instruction at `at`. Returns it with its length. All have a prefix of three
    /// bytes, an opcode, a byte of registers, and, if there is a memory operand, one byte of base
    /// and index and a displacement.
    unsafe fn read(at: *const u8, registers: &[i64; 23]) -> Option<(Self, usize)> {
        // SAFETY: the caller's instruction has as many bytes as are read.
        let byte = |i: usize| unsafe { *at.add(i) };
        if byte(0) != 0xc4 || byte(1) & 0x1f != 2 {
            return None;
        }
        let (index_high, base_high) = (byte(1) >> 6 & 1 ^ 1, byte(1) >> 5 & 1 ^ 1);
        let (second, prefix) = (usize::from(byte(2) >> 3 & 15 ^ 15), byte(2) & 3);
        let (opcode, operands) = (byte(3), byte(4));
        let (mode, reg, rm) = (operands >> 6, operands >> 3 & 7, operands & 7);
        let (tile, other) = (usize::from(reg), usize::from(rm));
        if mode == 3 {
            let instruction = match (opcode, prefix) {
                (0x49, 0) => Self::Release,
                (0x49, 3) => Self::Zero(tile),
                (0x5c, 2) => Self::MultiplyPairs(tile, other, second),
                (0x5e, 3) => Self::MultiplyBytes(tile, other, second),
                _ => return None,
            };
            return Some((instruction, 5));
        }
        let general = |number: u8| {
            use libc::*;
            let at = [
                REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8,
                REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
            ][usize::from(number)];
            registers[at as usize] as isize
        };
        let (mut length, mut base, mut stride) = (5, rm | base_high << 3, 0);
        if rm == 4 {
            let both = byte(5);
            length += 1;
            base = both & 7 | base_high << 3;
            let index = both >> 3 & 7 | index_high << 3;
            if index != 4 {
                stride = general(index) << (both >> 6);
            }
        }
        let displacement = match mode {
            0 if base & 7 == 5 => return None,
            0 => 0,
            1 => byte(length) as i8 as isize,
            _ => i32::from_le_bytes([
                byte(length),
                byte(length + 1),
                byte(length + 2),
                byte(length + 3),
            ]) as isize,
        };
        length += [0, 1, 4][usize::from(mode)];
        let place = (general(base) + displacement) as *mut u8;
        let instruction = match (opcode, prefix) {
            (0x49, 0) => Self::Configure(place),
            (0x4b, 3) => Self::Load {
                to: tile,
                place,
                stride,
            },
            (0x4b, 2) => Self::Store {
                from: tile,
                place,
                stride,
            },
            _ => return None,
        };
        Some((instruction, length))
    }

    unsafe fn run(self, registers: &mut Registers) {
        match self {
            Self::Configure(place) => {
                // SAFETY: the instruction names 64 bytes that may be read.
                let config = unsafe { *place.cast::<[u8; 64]>() };
                assert_eq!(config[0], 1, "palette");
                *registers = Registers {
                    config,
                    tiles: [[[0; BYTES]; ROWS]; 8],
                };
            }
            Self::Release => registers.config = [0; 64],
            Self::Zero(tile) => {
                registers.shape(tile);
                registers.tiles[tile] = [[0; BYTES]; ROWS];
            }
            Self::Load { to, place, stride } => {
                let (rows, bytes) = registers.shape(to);
                registers.tiles[to] = [[0; BYTES]; ROWS];
                for row in 0..rows {
                    let from = place.wrapping_offset(row as isize * stride);
                    // SAFETY: the instruction names a row that may be read.
                    let from = unsafe { std::slice::from_raw_parts(from, bytes) };
                    registers.tiles[to][row][..bytes].copy_from_slice(from);
                }
            }
            Self::Store {
                from,
                place,
                stride,
            } => {
                let (rows, bytes) = registers.shape(from);
                for row in 0..rows {
                    let to = place.wrapping_offset(row as isize * stride);
                    // SAFETY: the instruction names a row that may be written.
                    let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
                    to.copy_from_slice(&registers.tiles[from][row][..bytes]);
                }
            }
            Self::MultiplyPairs(sum, x, w) => registers.multiply(sum, x, w, add_pairs),
            Self::MultiplyBytes(sum, x, w) => registers.multiply(sum, x, w, add_bytes),
        }
    }
}

impl Registers {
    /// Number of rows, and number of bytes of a row.
    fn shape(&self, tile: usize) -> (usize, usize) {
        let bytes = usize::from(self.config[16 + 2 * tile]);
        let rows = usize::from(self.config[48 + tile]);
        assert!(
            (1..=ROWS).contains(&rows) && (1..=BYTES).contains(&bytes),
            "tile {tile} is not configured"
        );
        (rows, bytes)
    }

    /// Adds to every word of `sum` the result of `add` for a row of `x` and a column of `w`.
    fn multiply(
        &mut self,
        sum: usize,
        x: usize,
        w: usize,
        add: fn(Word, &mut dyn Iterator<Item = (Word, Word)>) -> Word,
    ) {
        assert!(sum != x && sum != w && x != w, "the same register twice");
        let ((rows, bytes), (x_rows, x_bytes), (w_rows, w_bytes)) =
            (self.shape(sum), self.shape(x), self.shape(w));
        assert_eq!((rows, bytes, x_bytes), (x_rows, w_bytes, 4 * w_rows));
        let word = |row: &[u8; BYTES], i: usize| {
            [row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]]
        };
        for row in 0..rows {
            for column in 0..bytes / 4 {
                let mut factors = (0..w_rows).map(|k| {
                    (
                        word(&self.tiles[x][row], k),
                        word(&self.tiles[w][k], column),
                    )
                });
                let new = add(word(&self.tiles[sum][row], column), &mut factors);
                self.tiles[sum][row][4 * column..][..4].copy_from_slice(&new);
            }
        }
    }
}

/// A number; zero if it is below the normal range.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0_f32.copysign(x)
    } else {
        x
    }
}

/// Products of the low and of the high halves are summed separately, each rounded once, then
/// together.
fn add_pairs(sum: Word, factors: &mut dyn Iterator<Item = (Word, Word)>) -> Word {
    let half = |word: Word, which: usize| {
        let bits = u16::from_le_bytes([word[2 * which], word[2 * which + 1]]);
        flushed(f32::from_bits(u32::from(bits) << 16))
    };
    let mut sums = [0.0_f32; 2];
    for (x, w) in factors {
        for (which, sum) in sums.iter_mut().enumerate() {
            *sum = flushed(half(x, which).mul_add(half(w, which), *sum));
        }
    }
    let both = flushed(sums[0] + sums[1]);
    flushed(flushed(f32::from_le_bytes(sum)) + both).to_le_bytes()
}

/// Products of signed bytes.
fn add_bytes(sum: Word, factors: &mut dyn Iterator<Item = (Word, Word)>) -> Word {
    let mut sum = i32::from_le_bytes(sum);
    for (x, w) in factors {
        for (x, w) in x.into_iter().zip(w) {
            sum = sum.wrapping_add(i32::from(x as i8) * i32::from(w as i8));
        }
    }
    sum.to_le_bytes()
}
