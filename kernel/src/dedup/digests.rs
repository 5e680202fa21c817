//! Keyed digests: the compiled form of `stream_metrics.core.dedup.digests`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use blake2b_simd::{Params, State, KEYBYTES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::url::IDENTITY_PARAMETERS;

pub const LONGEST_KEY: usize = KEYBYTES;

/// The same as in `digests.py`; their order is part of the stored format.
pub const KNOWN_NAMES: [&str; 35] = [
    "file_id",
    "unique_id",
    "site_id",
    "web_id",
    "event_id",
    "original_id",
    "email_url",
    "item_id",
    "alias",
    "upn",
    "email",
    "artifact_id",
    "tenant_id",
    "container_id",
    "chunk_id",
    "file_name",
    "file_type",
    "author",
    "last_modified_by",
    "last_modified_time",
    "start",
    "end",
    "organizer_email",
    "subject",
    "date_time_received",
    "from",
    "to",
    "participants",
    "display_name",
    "department",
    "company_name",
    "office_location",
    "plugin_id",
    "plugin_type",
    "segment",
];

pub type Digest = [u8; 16];
/// The first bytes of a digest, by which candidates are found.
pub type Key = [u8; 8];

/// The name of an ID component or field: its index in `KNOWN_NAMES`, or its digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    Known(u8),
    Other(Key),
}

const MAX_NAMES: usize = 4_096;
const LONGEST_NAME: usize = 64; // longer ones are not remembered

/// The state of a digest after the key and the label of the content.
pub struct Slot(State);

impl Slot {
    fn new(keyed: &State, label: &str) -> Self {
        let mut state = keyed.clone();
        let size = label.len() as u32; // labels come from JSON strings, far below 4 GiB
        state.update(&size.to_be_bytes()).update(label.as_bytes());
        Slot(state)
    }

    pub fn digest(&self, text: &[u8]) -> Digest {
        finished(self.0.clone().update(text))
    }

    /// The digests of the text's first `size` bytes and of the whole text.
    pub fn digests(&self, text: &[u8], size: usize) -> (Digest, Digest) {
        let (first, rest) = text.split_at(size.min(text.len()));
        let mut state = self.0.clone();
        let of_first = finished(state.update(first));
        (of_first, finished(state.update(rest)))
    }
}

fn finished(state: &State) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(&state.finalize().as_array()[..16]);
    digest
}

/// The name of an ID component or field, with the slots of its values.
pub struct Named {
    pub name: Name,
    pub id: Slot,
    pub field: Slot,
}

impl Named {
    fn new(keyed: &State, text: &str, name: Name) -> Arc<Self> {
        Arc::new(Named {
            name,
            id: Slot::new(keyed, &format!("i:{}", text)),
            field: Slot::new(keyed, &format!("f:{}", text)),
        })
    }
}

/// Digests with one secret key; an empty key means none.
pub struct Digester {
    keyed: State,
    pub doc: Slot,
    pub query: Slot,
    pub url: Slot,
    pub parameters: Slot,
    pub route: Slot,
    pub weak: Slot,
    pub title: Slot,
    pub title_form: Slot,
    pub snippet: Slot,
    pub content: Slot,
    /// By the index of the parameter's name in `url::IDENTITY_PARAMETERS`.
    pub identity: Vec<Slot>,
    name: Slot,
    known: Vec<Arc<Named>>,
    /// Indexes in `KNOWN_NAMES` by the length of the name.
    known_by_length: Vec<Vec<u8>>,
    others: Mutex<HashMap<Box<str>, Arc<Named>>>,
}

impl Digester {
    pub fn new(key: &[u8]) -> PyResult<Self> {
        if key.len() > LONGEST_KEY {
            return Err(PyValueError::new_err("maximum key length is 64 bytes"));
        }
        let keyed = Params::new().hash_length(16).key(key).to_state();
        let slot = |label| Slot::new(&keyed, label);
        let mut known = Vec::with_capacity(KNOWN_NAMES.len());
        let mut known_by_length: Vec<Vec<u8>> = Vec::new();
        for (place, text) in (0u8..).zip(KNOWN_NAMES) {
            known.push(Named::new(&keyed, text, Name::Known(place)));
            if known_by_length.len() <= text.len() {
                known_by_length.resize_with(text.len() + 1, Vec::new);
            }
            known_by_length[text.len()].push(place);
        }
        Ok(Digester {
            doc: slot("doc"),
            query: slot("query"),
            url: slot("url"),
            parameters: slot("parameters"),
            route: slot("route"),
            weak: slot("weak"),
            title: slot("title"),
            title_form: slot("title form"),
            snippet: slot("snippet"),
            content: slot("content"),
            identity: IDENTITY_PARAMETERS
                .iter()
                .map(|name| Slot::new(&keyed, &format!("p:{}", name)))
                .collect(),
            name: slot("name"),
            known,
            known_by_length,
            others: Mutex::default(),
            keyed,
        })
    }

    /// The form of an ID component's or field's name in a fingerprint.
    pub fn name(&self, name: &str) -> Name {
        self.named(name).name
    }

    /// The name with the slots of its values.
    pub fn named(&self, name: &str) -> Arc<Named> {
        let first = name.as_bytes().first();
        for &place in self.known_by_length.get(name.len()).into_iter().flatten() {
            let known = KNOWN_NAMES[usize::from(place)];
            if known.as_bytes().first() == first && known == name {
                return Arc::clone(&self.known[usize::from(place)]);
            }
        }
        if name.len() > LONGEST_NAME {
            return self.new_name(name);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(named) = others.get(name) {
            return Arc::clone(named);
        }
        if others.len() >= MAX_NAMES {
            others.clear();
        }
        let named = self.new_name(name);
        others.insert(name.into(), Arc::clone(&named));
        named
    }

    /// The stored form of a name that is not in `KNOWN_NAMES`.
    pub fn name_digest(&self, name: &str) -> Key {
        key_of(&self.name.digest(name.as_bytes()))
    }

    fn new_name(&self, name: &str) -> Arc<Named> {
        Named::new(&self.keyed, name, Name::Other(self.name_digest(name)))
    }
}

/// The first bytes of a digest.
pub fn key_of(digest: &Digest) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&digest[..8]);
    key
}
