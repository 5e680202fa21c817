//! Rankings of a run, judged by qrels: the compiled form of
//! `stream_metrics.lab.metrics.run_scores`.

use std::cmp::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::resampling::doubles;

/// Up to here every integer is exact as a double, so that different integers stay different.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// `SMALLEST_GRADE` in `stream_metrics.core.metrics.ranking.checks`.
const SMALLEST_GRADE: f64 = 1e-290;

/// The columns of a batch as doubles: rankings, then ground truths.
#[derive(Default)]
struct Columns {
    grades: Vec<f64>,
    lengths: Vec<f64>,
    truth: Vec<f64>,
    truth_lengths: Vec<f64>,
}

/// The scores of a run in order; also its documents, if scores do not identify them.
#[derive(Default)]
struct Ranked<'py> {
    scores: Vec<f64>,
    documents: Vec<Bound<'py, PyString>>,
}

/// A score or a grade as a double; None if it is not a number or not exact as a double.
fn number(value: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(float) = value.downcast::<PyFloat>() {
        return Some(float.value());
    }
    let whole = value.downcast::<PyInt>().ok()?;
    let value: f64 = whole.extract().ok()?;
    (value.abs() < EXACT).then_some(value)
}

impl<'py> Ranked<'py> {
    /// Reads the documents of a run in order; None if Python has to do it.
    fn take(&mut self, run: &Bound<'py, PyDict>, single: bool) -> Option<()> {
        self.scores.clear();
        self.documents.clear();
        for (key, value) in run {
            text(&key)?;
            self.scores.push(score(&value, single)?);
        }
        // Most files are in order, so that their documents are not needed.
        if self.scores.windows(2).all(|pair| pair[0] > pair[1]) {
            return Some(());
        }
        let keys = run.keys();
        let mut found = Vec::with_capacity(keys.len());
        for (key, score) in keys.iter().zip(self.scores.drain(..)) {
            let document = key.downcast_into_exact::<PyString>().ok()?;
            document.to_str().ok()?;
            found.push((score, document));
        }
        found.sort_unstable_by(order);
        for (score, document) in found {
            self.scores.push(score);
            self.documents.push(document);
        }
        Some(())
    }

    /// The position of a document whose score is known.
    fn place(&self, score: f64, document: &Bound<'py, PyString>) -> Option<usize> {
        let first = self.scores.partition_point(|&above| above > score);
        if self.documents.is_empty() || self.scores.get(first + 1) != Some(&score) {
            return Some(first);
        }
        let document = document.to_str().ok()?;
        let tied = self.documents[first..].iter();
        let among = tied.take_while(|one| one.to_str().map_or(false, |one| one > document));
        Some(first + among.count())
    }
}

/// By descending score, then by descending document id.
fn order(one: &(f64, Bound<'_, PyString>), other: &(f64, Bound<'_, PyString>)) -> Ordering {
    let by_score = other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| other.1.to_str().ok().cmp(&one.1.to_str().ok()))
}

/// An id; None if Python has to look at it, as at ids of several types.
fn text<'a, 'py>(id: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyString>> {
    id.downcast_exact::<PyString>().ok()
}

/// A grade; None also for one that Python refuses: not finite, or too near to 0.
fn grade(value: &Bound<'_, PyAny>) -> Option<f64> {
    number(value)
        .filter(|grade| *grade == 0.0 || (grade.is_finite() && grade.abs() >= SMALLEST_GRADE))
}

fn score(value: &Bound<'_, PyAny>, single: bool) -> Option<f64> {
    let score = number(value)?;
    let score = if single {
        f64::from(score as f32)
    } else {
        score
    };
    (!score.is_nan()).then_some(score)
}

/// Judges one ranking; None if Python has to do it.
fn judge<'py>(
    qrels: &Bound<'py, PyDict>,
    run: &Bound<'py, PyDict>,
    single: bool,
    ranked: &mut Ranked<'py>,
    columns: &mut Columns,
) -> Option<()> {
    ranked.take(run, single)?;
    let start = columns.grades.len();
    columns.grades.resize(start + ranked.scores.len(), f64::NAN);
    for (document, value) in qrels {
        let document = text(&document)?;
        let grade = grade(&value)?;
        columns.truth.push(grade);
        if let Some(value) = run.get_item(document).ok()? {
            let place = ranked.place(score(&value, single)?, document)?;
            columns.grades[start + place] = grade;
        }
    }
    columns.lengths.push(ranked.scores.len() as f64);
    columns.truth_lengths.push(qrels.len() as f64);
    Some(())
}

fn plain<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyDict>> {
    value.downcast_exact::<PyDict>().ok()
}

/// Grades by rank, lengths, grades of the ground truths and their lengths, as bytes of doubles.
///
/// None if Python has to do it, because the input is not plain dictionaries of texts and numbers.
#[pyfunction]
fn judged_rankings<'py>(
    py: Python<'py>,
    qrels: &Bound<'py, PyList>,
    runs: &Bound<'py, PyList>,
    single: bool,
) -> PyResult<Option<[Bound<'py, PyBytes>; 4]>> {
    let columns = match judge_all(qrels, runs, single) {
        Some(columns) => columns,
        None => return Ok(None),
    };
    Ok(Some([
        doubles(py, &columns.grades)?,
        doubles(py, &columns.lengths)?,
        doubles(py, &columns.truth)?,
        doubles(py, &columns.truth_lengths)?,
    ]))
}

fn judge_all(qrels: &Bound<'_, PyList>, runs: &Bound<'_, PyList>, single: bool) -> Option<Columns> {
    let mut columns = Columns::default();
    let mut ranked = Ranked::default();
    for (qrels, run) in qrels.iter().zip(runs.iter()) {
        let (qrels, run) = (plain(&qrels)?, plain(&run)?);
        judge(qrels, run, single, &mut ranked, &mut columns)?;
    }
    Some(columns)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(judged_rankings, module)?)
}
