//! Deduplication: the twin of `stream_metrics.dedup`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::GILOnceCell;
use pyo3::types::{PyBytes, PyList, PyString, PyType};

pub mod digests;
mod forms;
pub mod index;
mod make;
mod memo;
mod pack;
pub mod print;
pub mod tables;
mod text;
mod url;
pub mod verify;

use digests::Digester;
use index::Index;
use make::{Made, Maker};
use memo::Memo;
use print::{Fingerprints, Key, Name};
use tables::Tables;

/// See `stream_metrics.dedup.deduplicator.Deduplicator`.
#[pyclass(frozen, module = "stream_metrics_kernel")]
struct Deduplicator {
    digester: Digester,
    tables: Arc<Tables>,
    /// Names that the rules speak of and that had no place of their own when they were stored.
    stored_names: HashMap<Key, Name>,
    rules: Py<PyAny>,
    key: Py<PyBytes>,
    twin: GILOnceCell<Py<PyAny>>,
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
            twin: GILOnceCell::new(),
            memo: Mutex::default(),
        })
    }

    fn fingerprints(&self, results: &Bound<'_, PyAny>) -> PyResult<Fingerprints> {
        let mut maker = Maker::new(&self.tables, &self.digester);
        let mut each = Vec::with_capacity(results.len()?);
        let mut urls_unparsed = 0;
        // Nobody else holds it: no call below comes back here, except that of the twin, which makes
        // no fingerprint of ours. If it were held, results would only be made once more.
        let mut memo = self.memo.try_lock().ok();
        for result in results.try_iter()? {
            let result = result?;
            if let Some(memo) = &mut memo {
                if let Some((print, url_unparsed)) = memo.get(&result)? {
                    each.push(print);
                    urls_unparsed += usize::from(url_unparsed);
                    continue;
                }
            }
            match maker.make(&result) {
                Ok(Made {
                    print,
                    url_unparsed,
                }) => {
                    let print = Arc::new(print);
                    if let Some(memo) = &mut memo {
                        memo.put(&print, url_unparsed);
                    }
                    each.push(print);
                    urls_unparsed += usize::from(url_unparsed);
                }
                Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(result.py()) => {
                    let made = self.made_by_twin(&result)?;
                    each.extend(made.each);
                    urls_unparsed += made.urls_unparsed;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Fingerprints {
            each,
            urls_unparsed,
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

impl Deduplicator {
    /// What Python makes of a result with half of a surrogate pair in one of its texts.
    fn made_by_twin(&self, result: &Bound<'_, PyAny>) -> PyResult<Fingerprints> {
        static TWIN: GILOnceCell<Py<PyType>> = GILOnceCell::new();
        let py = result.py();
        let twin = self.twin.get_or_try_init(py, || {
            TWIN.import(py, "stream_metrics.dedup.deduplicator", "PlainDeduplicator")?
                .call1((&self.rules, &self.key))
                .map(Bound::unbind)
        })?;
        let results = PyList::new(py, [result])?;
        let made = twin.call_method1(py, "fingerprints", (results,))?;
        let urls_unparsed = made.getattr(py, "urls_unparsed")?.extract(py)?;
        let packed = twin.call_method1(py, "pack", (PyList::new(py, [made])?,))?;
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

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Deduplicator>()?;
    module.add_class::<Fingerprints>()?;
    module.add_class::<Index>()
}
