//! Sums over bootstrap resamples; the twin of `stream_metrics.statistics.sums`.
//!
//! Draws are those of numpy's `Generator(PCG64).integers`, sums are added up in the order of numpy's
//! `sum`: both bit for bit, so that no figure depends on whether the kernel is there.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
/// How many numbers are drawn between two looks at signals, so that Ctrl-C does not wait for all.
const AT_ONCE: usize = 1 << 26;
/// Terms that are added up in eight lanes; more are halved first.
const BLOCK: usize = 128;

/// Words that are made from one state, side by side: a processor need not wait for one after another.
const LANES: usize = 4;
/// Halves of words that are made at a time.
const READY: usize = 1024;

/// PCG64 (XSL RR 128/64), half a word at a time: the lower one first.
#[derive(Clone)]
struct Pcg64 {
    state: u128,
    steps: [(u128, u128); LANES],
    halves: [u32; READY],
    taken: usize,
}

impl Pcg64 {
    fn new(state: u128, increment: u128) -> Self {
        let mut steps = [(MULTIPLIER, increment); LANES];
        for at in 1..LANES {
            let (factor, addend) = steps[at - 1];
            steps[at] = (
                factor.wrapping_mul(MULTIPLIER),
                addend.wrapping_mul(MULTIPLIER).wrapping_add(increment),
            );
        }
        Self {
            state,
            steps,
            halves: [0; READY],
            taken: READY,
        }
    }

    fn fill(&mut self) {
        for halves in self.halves.chunks_exact_mut(2 * LANES) {
            let mut state = self.state;
            for (pair, &(factor, addend)) in halves.chunks_exact_mut(2).zip(&self.steps) {
                state = self.state.wrapping_mul(factor).wrapping_add(addend);
                let folded = (state >> 64) as u64 ^ state as u64;
                let word = folded.rotate_right((state >> 122) as u32);
                pair[0] = word as u32;
                pair[1] = (word >> 32) as u32;
            }
            self.state = state;
        }
        self.taken = 0;
    }

    /// The next halves, `most` or fewer, and one at least.
    fn take(&mut self, most: usize) -> &[u32] {
        if self.taken == READY {
            self.fill();
        }
        let from = self.taken;
        self.taken = READY.min(from + most);
        &self.halves[from..self.taken]
    }
}

/// Whole numbers below a bound, each as probable as the others (Lemire, 2019).
#[derive(Clone, Copy)]
struct Below {
    bound: u32,
    unfair: u32,
}

impl Below {
    fn new(bound: u32) -> Self {
        let unfair = bound.wrapping_neg() % bound;
        Self { bound, unfair }
    }

    /// The number that a half word stands for; None if it must be drawn again.
    #[inline(always)]
    fn of(self, half: u32) -> Option<usize> {
        let product = u64::from(half) * u64::from(self.bound);
        (product as u32 >= self.unfair).then_some((product >> 32) as usize)
    }
}

/// How often a unit is drawn.
trait Times: Copy + Default + Into<f64> {
    /// Once more; beyond the largest it begins again.
    fn count(&mut self);
}

impl Times for u8 {
    #[inline(always)]
    fn count(&mut self) {
        *self = self.wrapping_add(1);
    }
}

impl Times for u32 {
    #[inline(always)]
    fn count(&mut self) {
        *self += 1;
    }
}

/// Resamples of so many units, one after another.
///
/// A unit is counted in a byte, so that the counts of 10^5 units nearly fit the processor's nearest
/// cache, where most of the time goes. If one is drawn 256 times, which nobody will see but of a
/// broken generator, they do not sum up to all, and the resample is counted once more, in words.
struct Resampler {
    source: Pcg64,
    below: Below,
    bytes: Vec<u8>,
    words: Vec<u32>,
}

impl Resampler {
    fn new(source: Pcg64, units: u32) -> Self {
        Self {
            source,
            below: Below::new(units),
            bytes: vec![0; units as usize],
            words: Vec::new(),
        }
    }

    /// Draw the next resample, and add each column's sum to its sums.
    fn next(&mut self, columns: &[Vec<f64>], found: &mut [Vec<f64>]) {
        let before = self.source.clone();
        draw(&mut self.source, self.below, &mut self.bytes);
        if sum(&self.bytes) == self.bytes.len() {
            return add_sums(&self.bytes, columns, found);
        }
        self.source = before;
        self.words.resize(self.bytes.len(), 0);
        draw(&mut self.source, self.below, &mut self.words);
        add_sums(&self.words, columns, found);
    }
}

fn add_sums<T: Times>(times: &[T], columns: &[Vec<f64>], found: &mut [Vec<f64>]) {
    for (sums, column) in found.iter_mut().zip(columns) {
        sums.push(0.0 + weighted(times, column)); // as numpy: never -0.0
    }
}

fn sum(bytes: &[u8]) -> usize {
    let of_block = |block: &[u8]| block.iter().map(|&times| u16::from(times)).sum::<u16>();
    let blocks = bytes.chunks(BLOCK); // which no 16 bits overflow
    blocks.map(|block| usize::from(of_block(block))).sum()
}

/// Count how often each unit is drawn in one resample.
fn draw<T: Times>(source: &mut Pcg64, below: Below, times: &mut [T]) {
    times.fill(T::default());
    let mut left = times.len();
    if left == 1 {
        times[0].count(); // of one unit nothing is drawn
        return;
    }
    while left > 0 {
        for &half in source.take(left) {
            if let Some(at) = below.of(half) {
                times[at].count();
                left -= 1;
            }
        }
    }
}

/// The values, each as often as it was drawn, added up pairwise as numpy does.
fn weighted<T: Times>(times: &[T], values: &[f64]) -> f64 {
    let n = times.len();
    if n < 8 {
        let terms = times.iter().zip(values);
        return terms.fold(-0.0, |sum, (&often, &value)| sum + often.into() * value);
    }
    if n > BLOCK {
        let half = n / 2 - n / 2 % 8;
        let (times, times_behind) = times.split_at(half);
        let (values, values_behind) = values.split_at(half);
        return weighted(times, values) + weighted(times_behind, values_behind);
    }
    let mut lanes = [0.0; 8];
    let (mut often, mut value) = (times.chunks_exact(8), values.chunks_exact(8));
    let (first, with) = (often.next().unwrap_or(&[]), value.next().unwrap_or(&[]));
    for (lane, (&often, &value)) in lanes.iter_mut().zip(first.iter().zip(with)) {
        *lane = often.into() * value;
    }
    for (often, value) in often.by_ref().zip(value.by_ref()) {
        for (lane, (&often, &value)) in lanes.iter_mut().zip(often.iter().zip(value)) {
            *lane += often.into() * value;
        }
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    let rest = often.remainder().iter().zip(value.remainder());
    rest.fold(sum, |sum, (&often, &value)| sum + often.into() * value)
}

/// For each column of values its sums over `count` resamples, as bytes of doubles.
///
/// `state` and `increment` are those of a PCG64 of which nothing has been drawn.
#[pyfunction]
fn resampled_sums<'py>(
    py: Python<'py>,
    columns: Vec<PyBuffer<f64>>,
    count: usize,
    state: u128,
    increment: u128,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let columns = columns
        .iter()
        .map(|column| column.to_vec(py))
        .collect::<PyResult<Vec<_>>>()?;
    let units = columns.first().map_or(0, Vec::len);
    let bound = u32::try_from(units).unwrap_or(0);
    if bound == 0 || columns.iter().any(|column| column.len() != units) {
        return Err(PyValueError::new_err(
            "columns of as many values, one to 2**32 - 1",
        ));
    }
    let mut resampler = Resampler::new(Pcg64::new(state, increment), bound);
    let mut found: Vec<Vec<f64>> = columns.iter().map(|_| Vec::with_capacity(count)).collect();
    let rows = (AT_ONCE / units).max(1);
    let mut done = 0;
    while done < count {
        let some = rows.min(count - done);
        py.allow_threads(|| {
            for _ in 0..some {
                resampler.next(&columns, &mut found);
            }
        });
        py.check_signals()?;
        done += some;
    }
    found.iter().map(|sums| doubles(py, sums)).collect()
}

/// Doubles as bytes, in the machine's own order.
pub fn doubles<'py>(py: Python<'py>, values: &[f64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, 8 * values.len(), |bytes| {
        for (place, value) in bytes.chunks_exact_mut(8).zip(values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(resampled_sums, module)?)
}
