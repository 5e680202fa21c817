//! Finds given words in texts: the compiled form of `stream_metrics.core.metrics.text`.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PySet, PyString};

/// The separator of texts.
const BETWEEN: char = '\u{1e}';

/// The characters at which Python's `str.split` splits.
fn is_space(sign: char) -> bool {
    matches!(
        sign,
        '\t'..='\r' | '\u{1c}'..='\u{1f}' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}'
            | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}'
            | '\u{3000}'
    )
}

fn strings<'py>(set: &Bound<'py, PyFrozenSet>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let found: Result<_, _> = set.iter().map(|one| one.downcast_into()).collect();
    Ok(found?)
}

/// The words of `wanted` that occur in normalised texts, and the number of texts with a word
/// besides `articles`; None if a text contains lone surrogates.
#[pyfunction]
fn words_among<'py>(
    texts: &Bound<'py, PyString>,
    wanted: &Bound<'py, PyFrozenSet>,
    articles: &Bound<'py, PyFrozenSet>,
) -> PyResult<Option<(Bound<'py, PySet>, usize)>> {
    let (wanted, articles) = (strings(wanted)?, strings(articles)?);
    let mut left: HashMap<&str, &Bound<'py, PyString>> = HashMap::with_capacity(wanted.len());
    for word in &wanted {
        match word.to_str() {
            Ok(text) => left.insert(text, word),
            Err(_) => return Ok(None),
        };
    }
    let mut passed = HashSet::with_capacity(articles.len());
    for word in &articles {
        passed.insert(word.to_str()?);
    }
    let all = match texts.to_str() {
        Ok(all) => all,
        Err(_) => return Ok(None),
    };
    let found = PySet::empty(texts.py())?;
    let mut count = 0;
    for text in all.split(BETWEEN) {
        let mut any = false;
        for word in text.split(is_space).filter(|word| !word.is_empty()) {
            any = any || !passed.contains(word);
            if let Some(known) = left.remove(word) {
                found.add(known)?;
            }
        }
        count += usize::from(any);
    }
    Ok(Some((found, count)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(words_among, module)?)
}
