//! Keys of the table of candidates.

use std::hash::{Hash, Hasher};

/// A candidate key of one entity type; in halves, so that a table entry takes 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedKey {
    pub key: [u32; 2],
    pub kind: u32,
}

impl Hash for SharedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let key = u64::from(self.key[0]) | u64::from(self.key[1]) << 32;
        state.write_u64(key ^ u64::from(self.kind).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Uses the key itself as hash, because it is a digest.
#[derive(Default)]
pub struct Unchanged(u64);

impl Hasher for Unchanged {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
