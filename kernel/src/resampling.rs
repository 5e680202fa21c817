//! Sums over bootstrap resamples: the compiled form of `stream_metrics.lab.statistics.sums`.
//!
//! Draws equal those of numpy's `Generator(PCG64).integers`, and sums are added in the order of
//! numpy's `sum`, both bit for bit, so that no result depends on whether the kernel is installed.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
/// Numbers drawn between two checks for signals, so that Ctrl-C works.
const AT_ONCE: usize = 1 << 26;
/// The most terms that are added in eight lanes; more are halved first.
const BLOCK: usize = 128;

/// Words that are generated in parallel, so that the processor does not wait for each.
const LANES: usize = 4;
/// The halves of these words.
const HALVES: usize = 2 * LANES;

/// PCG64 (XSL RR 128/64): the states of its next words. A step of a state skips all the others.
#[derive(Clone, Copy)]
struct Lanes {
    states: [u128; LANES],
    factor: u128,
    addend: u128,
}

impl Lanes {
    fn new(state: u128, increment: u128) -> Self {
        let step = |state: u128| state.wrapping_mul(MULTIPLIER).wrapping_add(increment);
        let (mut states, mut last) = ([0; LANES], state);
        let (mut factor, mut addend) = (1_u128, 0);
        for state in &mut states {
            last = step(last);
            *state = last;
            factor = factor.wrapping_mul(MULTIPLIER);
            addend = step(addend);
        }
        Self {
            states,
            factor,
            addend,
        }
    }

    /// The next words in halves, the lower half of each first.
    #[inline(always)]
    fn next(&mut self) -> [u32; HALVES] {
        let mut halves = [0; HALVES];
        for (pair, state) in halves.chunks_exact_mut(2).zip(&mut self.states) {
            let folded = (*state >> 64) as u64 ^ *state as u64;
            let word = folded.rotate_right((*state >> 122) as u32);
            pair[0] = word as u32;
            pair[1] = (word >> 32) as u32;
            *state = state.wrapping_mul(self.factor).wrapping_add(self.addend);
        }
        halves
    }
}

/// PCG64 with the unused halves of its last words.
#[derive(Clone)]
struct Pcg64 {
    lanes: Lanes,
    halves: [u32; HALVES],
    taken: usize,
}

impl Pcg64 {
    fn new(state: u128, increment: u128) -> Self {
        Self {
            lanes: Lanes::new(state, increment),
            halves: [0; HALVES],
            taken: HALVES,
        }
    }

    /// The next halves: at least one and at most `most`.
    fn take(&mut self, most: usize) -> &[u32] {
        if self.taken == HALVES {
            self.halves = self.lanes.next();
            self.taken = 0;
        }
        let from = self.taken;
        self.taken = HALVES.min(from + most);
        &self.halves[from..self.taken]
    }
}

/// Uniform integers below a bound (Lemire, 2019).
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

    /// The number of a half word; None if it must be drawn again.
    #[inline(always)]
    fn of(self, half: u32) -> Option<usize> {
        let product = u64::from(half) * u64::from(self.bound);
        (product as u32 >= self.unfair).then_some((product >> 32) as usize)
    }
}

/// Counts how often a unit is drawn.
trait Times: Copy + Default {
    /// Adds one; wraps around after the largest count.
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

/// Counts how often each of two units is drawn.
trait Pair: Copy {
    fn times(self) -> [f64; 2];
}

impl Pair for [f64; 2] {
    fn times(self) -> [f64; 2] {
        self
    }
}

/// Two counts below 16 in one byte, the first in the lower bits.
impl Pair for u8 {
    #[inline(always)]
    fn times(self) -> [f64; 2] {
        PAIRS.0[usize::from(self)]
    }
}

/// The two counts of each byte as doubles; a lookup is faster than a conversion.
static PAIRS: Pairs = Pairs::new();

/// Aligned, so that two doubles are multiplied directly from memory.
#[repr(align(16))]
struct Pairs([[f64; 2]; 256]);

impl Pairs {
    const fn new() -> Self {
        let mut pairs = [[0.0; 2]; 256];
        let mut byte = 0;
        while byte < 256 {
            pairs[byte] = [(byte % 16) as f64, (byte / 16) as f64];
            byte += 1;
        }
        Self(pairs)
    }
}

/// Successive resamples of a number of units.
///
/// Each unit has a count of one byte, so that those of 10^5 units nearly fit the L1 cache, and
/// sums read half a byte. If a unit is drawn 16 times, which happens to a unit in one of
/// 5 * 10^13 resamples, the resample is counted again in words.
struct Resampler {
    source: Pcg64,
    below: Below,
    bytes: Vec<u8>,
    pairs: Vec<u8>,
}

impl Resampler {
    fn new(source: Pcg64, units: u32) -> Self {
        let below = Below::new(units);
        let units = units as usize;
        Self {
            source,
            below,
            bytes: vec![0; units],
            pairs: vec![0; units / 2 + units % 2],
        }
    }

    /// Draws the next resample, and adds the sum of each column to its sums.
    fn next(&mut self, columns: &[Vec<f64>], found: &mut [Vec<f64>]) {
        let before = self.source.clone();
        draw(&mut self.source, self.below, &mut self.bytes);
        if fit(&self.bytes) {
            pack(&self.bytes, &mut self.pairs);
            return add_sums(&self.pairs, columns, found);
        }
        self.source = before;
        let mut words = vec![0_u32; self.bytes.len()];
        draw(&mut self.source, self.below, &mut words);
        add_sums(&in_pairs(&words), columns, found);
    }
}

fn add_sums<P: Pair>(pairs: &[P], columns: &[Vec<f64>], found: &mut [Vec<f64>]) {
    for (sums, column) in found.iter_mut().zip(columns) {
        sums.push(0.0 + weighted(pairs, column)); // as numpy: never -0.0
    }
}

/// Whether all counts are below 16 and none has wrapped around: they sum to the number of draws.
fn fit(bytes: &[u8]) -> bool {
    let of_block = |block: &[u8]| block.iter().map(|&times| u16::from(times)).sum::<u16>();
    let blocks = bytes.chunks(BLOCK); // which no 16 bits overflow
    let sum: usize = blocks.map(|block| usize::from(of_block(block))).sum();
    sum == bytes.len() && bytes.iter().fold(0, |bits, &times| bits | times) < 16
}

/// Packs counts below 16, two in a byte.
fn pack(bytes: &[u8], pairs: &mut [u8]) {
    let two = bytes.chunks_exact(2);
    if let (Some(pair), [times]) = (pairs.last_mut(), two.remainder()) {
        *pair = *times;
    }
    for (pair, two) in pairs.iter_mut().zip(two) {
        let both = u16::from_le_bytes([two[0], two[1]]);
        *pair = (both | both >> 4) as u8;
    }
}

/// Counts of any size, in pairs.
fn in_pairs(words: &[u32]) -> Vec<[f64; 2]> {
    let second = |two: &[u32]| two.get(1).copied().unwrap_or(0);
    let pair = |two: &[u32]| [f64::from(two[0]), f64::from(second(two))];
    words.chunks(2).map(pair).collect()
}

/// Counts how often each unit is drawn in one resample.
fn draw<T: Times>(source: &mut Pcg64, below: Below, times: &mut [T]) {
    times.fill(T::default());
    let mut left = times.len();
    if left == 1 {
        times[0].count(); // of one unit nothing is drawn
        return;
    }
    while left > 0 {
        left -= count(source.take(left), below, times);
        // Most are counted as soon as they are generated, so that the processor overlaps both.
        let mut lanes = source.lanes;
        while left >= HALVES {
            left -= count(&lanes.next(), below, times);
        }
        source.lanes = lanes;
    }
}

/// Counts the units of half words; returns how many half words were used.
#[inline(always)]
fn count<T: Times>(halves: &[u32], below: Below, times: &mut [T]) -> usize {
    let mut counted = halves.len();
    for &half in halves {
        match below.of(half) {
            Some(at) => times[at].count(),
            None => counted -= 1,
        }
    }
    counted
}

/// The sum of the values, weighted by their counts, with numpy's pairwise summation.
fn weighted<P: Pair>(pairs: &[P], values: &[f64]) -> f64 {
    let n = values.len();
    if n > BLOCK {
        let half = n / 2 - n / 2 % 8;
        let (pairs, pairs_behind) = pairs.split_at(half / 2);
        let (values, values_behind) = values.split_at(half);
        return weighted(pairs, values) + weighted(pairs_behind, values_behind);
    }
    let (values, rest) = values.split_at(n - n % 8);
    let (pairs, of_rest) = pairs.split_at(values.len() / 2);
    let [a, b, c, d, e, f, g, h] = in_lanes(pairs, values);
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    let times = of_rest.iter().flat_map(|pair| pair.times());
    times
        .zip(rest)
        .fold(sum, |sum, (often, value)| sum + often * value)
}

/// The sums of the values, weighted by their counts, by their position modulo eight.
///
/// Not inlined: with the sum of the lanes it would compile to more shuffles than additions.
#[inline(never)]
fn in_lanes<P: Pair>(pairs: &[P], values: &[f64]) -> [f64; 8] {
    let mut lanes = [-0.0; 8]; // which leaves the sign of what is added to it
    for (pairs, values) in pairs.chunks_exact(4).zip(values.chunks_exact(8)) {
        let terms = pairs.iter().zip(values.chunks_exact(2));
        for (lanes, (pair, values)) in lanes.chunks_exact_mut(2).zip(terms) {
            let [first, second] = pair.times();
            lanes[0] += first * values[0];
            lanes[1] += second * values[1];
        }
    }
    lanes
}

/// The sums of each column of values over `count` resamples, as bytes of doubles.
///
/// `state` and `increment` are those of a PCG64 before its first draw.
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
            "columns must have one length, from 1 to 2**32 - 1",
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

/// Doubles as bytes, in native byte order.
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
