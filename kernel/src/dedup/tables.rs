//! The rules by which two results of an entity type are the same document, compiled from
//! `tables.EntityType`.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyString, PyTuple};

use super::digests::{Digester, Name};
use super::verdict::{Verdict, VERDICTS};

/// Names of the result's own attributes; in rules they never name an ID component or a field.
const EVERY: &str = "*";
const SERIES_COMPONENT: &str = "original_id";
const DEFAULT_TYPE: &str = "document"; // casefolded
const MAX_OTHERS: usize = 1_000;

/// The subject of a rejection or a need; see `stream_metrics.core.dedup.tables`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Text,
    Title,
    Snippet,
    Content,
    Id(Name),
    Field(Name),
    Every,
    /// A component called `*`, which no row can name: never comparable.
    Nothing,
}

impl Part {
    fn of(name: &str, digester: &Digester) -> Self {
        match name {
            "text" => Part::Text,
            "title" => Part::Title,
            "snippet" => Part::Snippet,
            "content" => Part::Content,
            EVERY => Part::Every,
            _ => match name.strip_prefix("id:") {
                Some(EVERY) => Part::Nothing,
                Some(component) => Part::Id(digester.name(component)),
                None => Part::Field(digester.name(name)),
            },
        }
    }

    pub fn is_text(self) -> bool {
        matches!(self, Part::Text | Part::Snippet | Part::Content)
    }
}

#[derive(Clone, Debug)]
pub struct Need {
    pub count: usize,
    pub parts: Vec<Part>,
}

/// An entity type by its canonical name. All types that no table names share one row.
pub struct Kind {
    pub name: String,
    pub py_name: Py<PyString>,
    row: Arc<Row>,
    /// The keys of the counts of verdicts, by verdict.
    verdict_keys: [GILOnceCell<Py<PyTuple>>; VERDICTS.len()],
}

impl Deref for Kind {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

/// A row of the tables without its name.
pub struct Row {
    pub rejects: Vec<Part>,
    pub parts_differ: Vec<Part>,
    pub confirms: Vec<Vec<Need>>,
    /// `None`: all except those in `not_definitive`.
    pub definitive: Option<Vec<Name>>,
    pub not_definitive: Vec<Name>,
    pub title_fallback: Option<String>,
    /// The names of fields in the rules; `None`: any.
    pub fields_used: Option<Vec<String>>,
}

impl Kind {
    fn compile(row: &Bound<'_, PyAny>, digester: &Digester) -> PyResult<Self> {
        let py = row.py();
        let parts = |names: &Bound<'_, PyAny>| {
            let parts = strings(names)?.into_iter();
            PyResult::Ok(parts.map(|name| Part::of(&name, digester)).collect())
        };
        let components = |names: &Bound<'_, PyAny>| {
            let names = strings(names)?.into_iter().filter(|name| name != EVERY);
            PyResult::Ok(names.map(|name| digester.name(&name)).collect())
        };
        let mut confirms = Vec::new();
        for rule in row.getattr(intern!(py, "confirms"))?.try_iter()? {
            let mut needs = Vec::new();
            for need in rule?.try_iter()? {
                let need = need?;
                let count: i64 = need.getattr(intern!(py, "count"))?.extract()?;
                needs.push(Need {
                    count: usize::try_from(count).unwrap_or(0),
                    parts: parts(&need.getattr(intern!(py, "names"))?)?,
                });
            }
            confirms.push(needs);
        }
        let definitive = row.getattr(intern!(py, "definitive"))?;
        let fields_used = row.getattr(intern!(py, "fields_used"))?;
        let name: String = row.getattr(intern!(py, "name"))?.extract()?;
        let row = Row {
            rejects: parts(&row.getattr(intern!(py, "rejects"))?)?,
            parts_differ: parts(&row.getattr(intern!(py, "parts_differ"))?)?,
            confirms,
            definitive: if definitive.is_none() {
                None
            } else {
                Some(components(&definitive)?)
            },
            not_definitive: components(&row.getattr(intern!(py, "not_definitive"))?)?,
            title_fallback: row.getattr(intern!(py, "title_fallback"))?.extract()?,
            fields_used: if fields_used.is_none() {
                None
            } else {
                Some(strings(&fields_used)?)
            },
        };
        Ok(Kind {
            py_name: PyString::intern(py, &name).unbind(),
            name,
            row: Arc::new(row),
            verdict_keys: Default::default(),
        })
    }

    /// The key under which `DedupCounts.verdicts` counts such verdicts.
    pub fn verdict_key<'py>(
        &self,
        py: Python<'py>,
        verdict: Verdict,
    ) -> PyResult<&Bound<'py, PyTuple>> {
        let key = self.verdict_keys[verdict as usize].get_or_try_init(py, || {
            let step = PyString::intern(py, verdict.step());
            let name = PyString::intern(py, verdict.name());
            PyTuple::new(py, [self.py_name.bind(py), &step, &name]).map(Bound::unbind)
        })?;
        Ok(key.bind(py))
    }

    fn renamed(&self, py: Python<'_>, name: &str) -> Self {
        Kind {
            name: name.to_owned(),
            py_name: PyString::new(py, name).unbind(),
            row: Arc::clone(&self.row),
            verdict_keys: Default::default(),
        }
    }
}

impl Row {
    pub fn is_definitive(&self, component: Name) -> bool {
        match &self.definitive {
            None => !self.not_definitive.contains(&component),
            Some(names) => names.contains(&component),
        }
    }
}

fn strings(names: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    names.try_iter()?.map(|name| name?.extract()).collect()
}

/// The switches in force; see `tables.DedupRules`.
pub struct Rules {
    pub identical_content: bool,
    pub snippet_rejects: bool,
    pub max_candidates: usize,
    pub ignore_fields: Vec<String>,
    /// See `tables.Tables` for these.
    pub canonical_texts: bool,
    pub careful_addresses: bool,
    pub local_components: Vec<Name>,
}

/// The rows by name, and the switches.
pub struct Tables {
    pub rules: Rules,
    /// The component that gives a candidate key although it does not identify a document.
    pub series: Name,
    by_folded: HashMap<String, Arc<Kind>>,
    by_name: HashMap<String, Arc<Kind>>,
    /// The row of types that no table names, without a name.
    other: Kind,
    others: Mutex<HashMap<Box<str>, Arc<Kind>>>,
}

impl Tables {
    pub fn compile(
        py: Python<'_>,
        rules: &Bound<'_, PyAny>,
        digester: &Digester,
    ) -> PyResult<Self> {
        let tables = rules.getattr(intern!(py, "tables"))?;
        let canonical_texts = tables.getattr(intern!(py, "canonical_texts"))?.extract()?;
        let mut by_folded = HashMap::new();
        let mut by_name = HashMap::new();
        for row in rules.getattr(intern!(py, "types"))?.try_iter()? {
            let row = row?;
            let kind = Arc::new(Kind::compile(&row, digester)?);
            let folded = casefold(py, &kind.name, canonical_texts)?;
            by_folded.insert(folded, Arc::clone(&kind));
            for alias in strings(&row.getattr(intern!(py, "aliases"))?)? {
                let folded = casefold(py, &alias, canonical_texts)?;
                by_folded.insert(folded, Arc::clone(&kind));
            }
            by_name.insert(kind.name.clone(), kind);
        }
        let identical: String = rules.getattr(intern!(py, "identical_content"))?.extract()?;
        let local = strings(&tables.getattr(intern!(py, "local_components"))?)?;
        let other = tables.getattr(intern!(py, "other"))?;
        Ok(Tables {
            rules: Rules {
                identical_content: identical == "duplicate",
                snippet_rejects: rules.getattr(intern!(py, "snippet_rejects"))?.extract()?,
                max_candidates: rules.getattr(intern!(py, "max_candidates"))?.extract()?,
                ignore_fields: strings(&rules.getattr(intern!(py, "ignore_fields"))?)?,
                canonical_texts,
                careful_addresses: tables
                    .getattr(intern!(py, "careful_addresses"))?
                    .extract()?,
                local_components: local.iter().map(|name| digester.name(name)).collect(),
            },
            series: digester.name(SERIES_COMPONENT),
            by_folded,
            by_name,
            other: Kind::compile(&other, digester)?,
            others: Mutex::default(),
        })
    }

    /// The row for a type as the producer spells it; see `Fingerprinter.entity_type`.
    pub fn kind(&self, py: Python<'_>, producer_name: &str) -> PyResult<Arc<Kind>> {
        let name = match producer_name {
            "" => return Ok(self.folded(py, DEFAULT_TYPE)),
            name => name,
        };
        let mut buffer = [0; 64];
        if let (true, Some(space)) = (name.is_ascii(), buffer.get_mut(..name.len())) {
            space.copy_from_slice(name.as_bytes());
            space.make_ascii_lowercase();
            if let Ok(folded) = std::str::from_utf8(space) {
                return Ok(self.folded(py, folded));
            }
        }
        let folded = casefold(py, name, self.rules.canonical_texts)?;
        Ok(self.folded(py, &folded))
    }

    /// The row for the canonical name in a fingerprint.
    pub fn canonical(&self, py: Python<'_>, name: &str) -> PyResult<Arc<Kind>> {
        Ok(match self.by_name.get(name) {
            Some(kind) => Arc::clone(kind),
            None => self.other(py, name),
        })
    }

    fn folded(&self, py: Python<'_>, folded: &str) -> Arc<Kind> {
        match self.by_folded.get(folded) {
            Some(kind) => Arc::clone(kind),
            None => self.other(py, folded),
        }
    }

    fn other(&self, py: Python<'_>, name: &str) -> Arc<Kind> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = others.get(name) {
            return Arc::clone(kind);
        }
        if others.len() > MAX_OTHERS {
            others.clear();
        }
        let kind = Arc::new(self.other.renamed(py, name));
        others.insert(name.into(), Arc::clone(&kind));
        kind
    }
}

/// The case folding of a text; if `canonical`, the same for canonically equivalent texts.
pub fn casefold(py: Python<'_>, text: &str, canonical: bool) -> PyResult<String> {
    if text.is_ascii() {
        return Ok(text.to_ascii_lowercase());
    }
    if canonical {
        static FOLD: GILOnceCell<Py<PyAny>> = GILOnceCell::new();
        let fold = FOLD.import(py, "stream_metrics.core.dedup.normalise", "fold")?;
        return fold.call1((text,))?.extract();
    }
    PyString::new(py, text)
        .call_method0(intern!(py, "casefold"))?
        .extract()
}
