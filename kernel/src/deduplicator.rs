//! Deduplication of a record's results, as Python sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::canonical::{digest, event_of};
use crate::dedup::digests::{Digester, Key, Name};
use crate::dedup::index::Index;
use crate::dedup::make::{Made, Maker};
use crate::dedup::memo::{self, Memo, Remembered};
use crate::dedup::pack;
use crate::dedup::print::Fingerprints;
use crate::dedup::sent::Sent;
use crate::dedup::tables::Tables;
use crate::json::Canonical;
use crate::wire::{Bounds, Parts, Search, SearchIteration, SentResult, Text};

const KIND: &str = "search_iteration";

type DigestedSearch<'py> = (
    Bound<'py, PyString>,         // id
    i64,                          // ordinal
    usize,                        // position
    Option<Bound<'py, PyString>>, // route
    Bound<'py, PyList>,           // of the results: ids
    Option<Bound<'py, PyList>>,   // gains
    Option<Bound<'py, PyList>>,   // baseline ranks
    Fingerprints,
    Bound<'py, PyList>,          // types, as metrics name them
    Option<Bound<'py, PyBytes>>, // the digest of the query
);

type DigestedIteration<'py> = (
    i64,                          // `occurred_at`
    Bound<'py, PyString>,         // event
    Bound<'py, PyBytes>,          // digest
    Bound<'py, PyString>,         // conversation
    i64,                          // turn
    i64,                          // iteration
    Option<Bound<'py, PyString>>, // agent
    Option<Bound<'py, PyString>>, // release
    Option<Bound<'py, PyString>>, // the gate's decision
    Bound<'py, PyList>,           // searches
    Bound<'py, PyTuple>,          // paths of unknown fields
);

/// See `stream_metrics.core.dedup.deduplicator.Deduplicator`.
#[pyclass(frozen, module = "stream_metrics._engine")]
struct Deduplicator {
    digester: Digester,
    tables: Arc<Tables>,
    /// Names in the rules that are not in `KNOWN_NAMES`, by their stored digests.
    stored_names: HashMap<Key, Name>,
    rules: Py<PyAny>,
    key: Py<PyBytes>,
    plain: GILOnceCell<Py<PyAny>>,
    memo: Mutex<Memo>,
}

#[pymethods]
impl Deduplicator {
    #[new]
    fn new(rules: Bound<'_, PyAny>, key: Bound<'_, PyBytes>) -> PyResult<Self> {
        let digester = Digester::new(key.as_bytes())?;
        let tables = Arc::new(Tables::compile(rules.py(), &rules, &digester)?);
        let mut stored_names = HashMap::new();
        for name in rules.call_method0("names")?.try_iter()? {
            let name: String = name?.extract()?;
            stored_names.insert(digester.name_digest(&name), digester.name(&name));
        }
        Ok(Deduplicator {
            digester,
            tables,
            stored_names,
            rules: rules.unbind(),
            key: key.unbind(),
            plain: GILOnceCell::new(),
            memo: Mutex::default(),
        })
    }

    fn fingerprints(&self, results: &Bound<'_, PyAny>) -> PyResult<Fingerprints> {
        let py = results.py();
        let mut prints = self.prints(results.len()?);
        let mut sent = Sent::default();
        for result in results.try_iter()? {
            let result = result?;
            sent.clear();
            match sent.result(&result) {
                Ok(()) => prints.add(py, sent.as_str())?,
                Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(py) => {
                    let made = self.made_by_python(&result)?;
                    prints.made.each.extend(made.each);
                    prints.made.urls_unparsed += made.urls_unparsed;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(prints.made)
    }

    /// The items of a search iteration as in `stream_metrics.core.engine.digested`.
    ///
    /// None if Python has to decide.
    #[pyo3(signature = (value, key, bounds))]
    fn digested_iteration<'py>(
        &self,
        value: &Bound<'py, PyBytes>,
        key: Option<&[u8]>,
        bounds: &Bounds,
    ) -> PyResult<Option<DigestedIteration<'py>>> {
        let py = value.py();
        event_of(value.as_bytes(), KIND, bounds, |found, occurred_us| {
            self.digested(py, found, occurred_us, key, bounds)
        })
    }

    fn document<'py>(&self, doc_id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
        let py = doc_id.py();
        let digest = match doc_id.to_str() {
            Ok(text) => self.digester.doc.digest(text.as_bytes()),
            Err(_) => {
                let way = (intern!(py, "utf-8"), intern!(py, "surrogatepass"));
                let bytes = doc_id.call_method1(intern!(py, "encode"), way)?;
                self.digester.doc.digest(bytes.extract()?)
            }
        };
        Ok(PyBytes::new(py, &digest))
    }

    #[pyo3(signature = (text))]
    fn query<'py>(
        &self,
        py: Python<'py>,
        text: Option<Bound<'py, PyString>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let text = match text {
            Some(text) => text,
            None => return Ok(None),
        };
        match text.to_str() {
            Ok(text) => {
                let digest = Maker::new(&self.tables, &self.digester).query(py, text)?;
                Ok(digest.map(|digest| PyBytes::new(py, &digest)))
            }
            Err(_) => {
                let digest = self.plain(py)?.call_method1(py, "query", (text,))?;
                digest.extract(py)
            }
        }
    }

    fn index(&self) -> Index {
        Index::new(Arc::clone(&self.tables))
    }

    fn pack<'py>(
        &self,
        py: Python<'py>,
        searches: Vec<Bound<'py, Fingerprints>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let packed = pack::pack(searches.iter().map(Bound::get))?;
        Ok(PyBytes::new(py, &packed))
    }

    fn unpack(&self, py: Python<'_>, data: &[u8]) -> PyResult<Vec<Fingerprints>> {
        pack::unpack(
            data,
            |name| self.tables.canonical(py, name),
            |digest| match self.stored_names.get(digest) {
                Some(name) => *name,
                None => Name::Other(*digest),
            },
        )
    }
}

/// The fingerprints of one search while they are computed.
struct Prints<'a> {
    maker: Maker<'a>,
    /// Nothing else borrows it: no function that is called meanwhile comes back here. If one did,
    /// results would only be computed again.
    memo: Option<MutexGuard<'a, Memo>>,
    made: Fingerprints,
}

impl Prints<'_> {
    /// Adds the fingerprint of what `Sent` has written.
    fn add(&mut self, py: Python<'_>, sent: &str) -> PyResult<()> {
        self.add_content(py, sent, sent)
    }

    /// Adds the fingerprint of a result whose parts are in `sent`.
    fn add_parts(&mut self, py: Python<'_>, parts: &Parts<'_>, sent: &str) -> PyResult<()> {
        match parts {
            Parts::Remembered(found) => {
                self.push(found.clone());
                Ok(())
            }
            Parts::Written { text, sent: place } => {
                let sent = sent.get(place.clone()).unwrap_or_default();
                self.add_content(py, text.unwrap_or(sent), sent)
            }
        }
    }

    /// Adds the fingerprint of what `Sent` has written; `content` is its cache key.
    fn add_content(&mut self, py: Python<'_>, content: &str, sent: &str) -> PyResult<()> {
        let hash = memo::hash(content);
        let remembered = self.memo.as_mut().and_then(|memo| memo.get(hash, content));
        let found = match remembered {
            Some(found) => found,
            None => {
                let Made {
                    print,
                    url_unparsed,
                } = self.maker.make(py, sent)?;
                let found = (Arc::new(print), url_unparsed);
                if let Some(memo) = &mut self.memo {
                    memo.put(hash, content, &found);
                }
                found
            }
        };
        self.push(found);
        Ok(())
    }

    fn push(&mut self, (print, url_unparsed): Remembered) {
        self.made.each.push(print);
        self.made.urls_unparsed += usize::from(url_unparsed);
    }

    /// The fingerprints since the last call.
    fn take(&mut self) -> Fingerprints {
        std::mem::take(&mut self.made)
    }
}

impl Deduplicator {
    fn prints(&self, results: usize) -> Prints<'_> {
        Prints {
            maker: Maker::new(&self.tables, &self.digester),
            memo: self.memo.try_lock().ok(),
            made: Fingerprints {
                each: Vec::with_capacity(results),
                urls_unparsed: 0,
            },
        }
    }

    fn digested<'py>(
        &self,
        py: Python<'py>,
        found: &Canonical<'_>,
        occurred_us: i64,
        key: Option<&[u8]>,
        bounds: &Bounds,
    ) -> PyResult<Option<DigestedIteration<'py>>> {
        if found.bounds.doc_id_in_ids {
            return Ok(None);
        }
        let mut prints = self.prints(0);
        let event = match SearchIteration::read(found, bounds, prints.memo.as_deref_mut()) {
            Some(event) => event,
            None => return Ok(None),
        };
        if key.map_or(false, |key| key != event.conversation_id.as_bytes()) {
            return Ok(None);
        }
        let searches = PyList::empty(py);
        for search in &event.searches {
            searches.append(digested_search(
                py,
                &mut prints,
                search,
                event.sent.as_str(),
                bounds,
            )?)?;
        }
        let text = |text: &Text<'_>| PyString::new(py, text);
        Ok(Some((
            occurred_us,
            text(&event.event_id),
            digest(py, found),
            text(&event.conversation_id),
            event.turn,
            event.iteration,
            event.agent.as_ref().map(text),
            event.release.as_ref().map(text),
            event.gate.map(|gate| PyString::intern(py, gate)),
            searches,
            PyTuple::new(py, &event.unknown)?,
        )))
    }

    /// The same in Python, for texts that contain lone surrogates.
    fn plain(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        static CLASS: GILOnceCell<Py<PyType>> = GILOnceCell::new();
        self.plain.get_or_try_init(py, || {
            CLASS
                .import(
                    py,
                    "stream_metrics.core.dedup.deduplicator",
                    "PlainDeduplicator",
                )?
                .call1((&self.rules, &self.key))
                .map(Bound::unbind)
        })
    }

    fn made_by_python(&self, result: &Bound<'_, PyAny>) -> PyResult<Fingerprints> {
        let py = result.py();
        let plain = self.plain(py)?;
        let results = PyList::new(py, [result])?;
        let made = plain.call_method1(py, "fingerprints", (results,))?;
        let urls_unparsed = made.getattr(py, "urls_unparsed")?.extract(py)?;
        let packed = plain.call_method1(py, "pack", (PyList::new(py, [made])?,))?;
        let searches = self.unpack(py, packed.extract(py)?)?;
        Ok(Fingerprints {
            each: searches
                .into_iter()
                .flat_map(|search| search.each)
                .collect(),
            urls_unparsed,
        })
    }
}

fn digested_search<'py>(
    py: Python<'py>,
    prints: &mut Prints<'_>,
    search: &Search<'_>,
    sent: &str,
    bounds: &Bounds,
) -> PyResult<DigestedSearch<'py>> {
    let results = &search.results;
    prints.made.each.reserve_exact(results.len());
    for result in results {
        prints.add_parts(py, &result.parts, sent)?;
    }
    let made = prints.take();
    let labels = bounds.labels(py, &made.each)?;
    let query = match &search.query {
        Some(query) => prints.maker.query(py, query)?,
        None => None,
    };
    let ids = results
        .iter()
        .map(|result| PyString::new(py, &result.result_id));
    let numbers = |number: fn(&SentResult<'_>) -> Option<i64>| {
        let sent = results.iter().any(|result| number(result).is_some());
        sent.then(|| PyList::new(py, results.iter().map(number)))
            .transpose()
    };
    Ok((
        PyString::new(py, &search.search_id),
        search.ordinal,
        search.position,
        search.route.as_ref().map(|route| PyString::new(py, route)),
        PyList::new(py, ids)?,
        numbers(|result| result.gain)?,
        numbers(|result| result.baseline_rank)?,
        made,
        labels,
        query.map(|query| PyBytes::new(py, &query)),
    ))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Bounds>()?;
    module.add_class::<Deduplicator>()?;
    module.add_class::<Fingerprints>()?;
    module.add_class::<Index>()
}
