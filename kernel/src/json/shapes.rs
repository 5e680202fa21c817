//! A cache of object shapes, because producers send the same keys in the same order.
//!
//! A tree of the sequences of keys in objects. Where the text continues like one of them, a key is
//! one comparison, and the sorted order of the keys of an object is known. The cache is never
//! required: a text with another sequence is read in full.

use crate::names::Known;

const WORDS: usize = 3;
/// The size of the longest cached key, with its quotes and the colon.
const LONGEST: usize = 8 * WORDS;
const MOST_NODES: usize = 2_048; // then all are forgotten
const MOST_CHILDREN: u8 = 32; // each is compared with, at worst
const MOST_MEMBERS: u8 = 64;

/// A node of the tree: after a key, or at the start of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

/// The node of sequences that are not cached.
pub const NOWHERE: Place = Place(0);
/// The root, around the top-level value.
pub const OUTSIDE: Place = Place(1);

/// The sorted order of an object's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Unknown,
    AsSent,
    /// Its start in the permutations.
    At(u32),
}

struct Node {
    /// `"key":`, padded with zeros.
    key: [u64; WORDS],
    /// The most recent child.
    guess: Place,
    first_child: Place,
    sibling: Place,
    /// The start of an object in the value of this key.
    inside: Place,
    order: Order,
    size: u8,
    /// The keys up to this node.
    members: u8,
    children: u8,
    known: Known,
}

/// A key that may follow.
pub struct Step {
    pub place: Place,
    /// The length of `"key":`.
    pub size: usize,
    pub known: Known,
}

#[derive(Default)]
pub struct Shapes {
    nodes: Vec<Node>,
    permutations: Vec<u8>,
}

impl Shapes {
    /// Must be called before each text: clears the cache if it is too large.
    pub fn begin(&mut self) {
        if self.nodes.is_empty() || self.nodes.len() >= MOST_NODES {
            self.nodes.clear();
            self.permutations.clear();
            self.nodes.push(Node::start());
            self.nodes[0].key = [!0; WORDS]; // no text has these bytes
            self.nodes[0].size = LONGEST as u8;
            self.nodes.push(Node::start());
        }
    }

    /// The start of an object in the value at `place`.
    #[inline]
    pub fn inside(&mut self, place: Place) -> Place {
        let node = &self.nodes[place.0 as usize];
        if node.inside != NOWHERE || place == NOWHERE {
            return node.inside;
        }
        let start = self.add(Node::start());
        self.nodes[place.0 as usize].inside = start;
        start
    }

    /// The key at the beginning of `text`, if it is cached at this node.
    #[inline]
    pub fn follow(&mut self, place: Place, text: &[u8]) -> Option<Step> {
        let words = words(text.get(..LONGEST)?);
        let guess = self.nodes[place.0 as usize].guess;
        let mut next = guess;
        let mut node = &self.nodes[next.0 as usize];
        if !node.begins(&words) {
            next = self.nodes[place.0 as usize].first_child;
            node = &self.nodes[next.0 as usize];
            while !node.begins(&words) {
                if next == NOWHERE {
                    return None;
                }
                next = node.sibling;
                node = &self.nodes[next.0 as usize];
            }
        }
        let step = Step {
            place: next,
            size: usize::from(node.size),
            known: node.known,
        };
        if guess != next {
            self.nodes[place.0 as usize].guess = next;
        }
        Some(step)
    }

    /// The node after `key`, which is `"key":`; `NOWHERE` if it is not cached.
    pub fn learn(&mut self, place: Place, key: &[u8], known: Known) -> Place {
        let parent = &self.nodes[place.0 as usize];
        let (members, children, first_child) =
            (parent.members, parent.children, parent.first_child);
        if place == NOWHERE || key.len() > LONGEST {
            return NOWHERE;
        }
        let mut filled = [0; LONGEST];
        filled[..key.len()].copy_from_slice(key);
        let words = words(&filled);
        let mut other = first_child;
        while other != NOWHERE {
            let node = &self.nodes[other.0 as usize];
            if node.key == words {
                return other; // at the end of a text it is not followed
            }
            other = node.sibling;
        }
        if children >= MOST_CHILDREN || members >= MOST_MEMBERS {
            return NOWHERE;
        }
        let child = self.add(Node {
            key: words,
            sibling: first_child,
            size: key.len() as u8,
            members: members + 1,
            known,
            ..Node::start()
        });
        if child != NOWHERE {
            let parent = &mut self.nodes[place.0 as usize];
            parent.guess = child;
            parent.first_child = child;
            parent.children += 1;
        }
        child
    }

    /// The order of the members of an object that ends here, if it is cached: their positions
    /// as sent, or the order as sent.
    #[inline]
    pub fn order(&self, place: Place) -> Option<Option<&[u8]>> {
        let node = &self.nodes[place.0 as usize];
        match node.order {
            Order::Unknown => None,
            Order::AsSent => Some(None),
            Order::At(start) => {
                let places = self.permutations.get(start as usize..)?;
                places.get(..usize::from(node.members)).map(Some)
            }
        }
    }

    /// Caches the order of the members; `None` is the order as sent.
    pub fn remember(&mut self, place: Place, order: Option<impl Iterator<Item = usize>>) {
        if place == NOWHERE {
            return;
        }
        self.nodes[place.0 as usize].order = match order {
            None => Order::AsSent,
            Some(places) => {
                let start = self.permutations.len() as u32;
                self.permutations.extend(places.map(|place| place as u8));
                Order::At(start)
            }
        };
    }

    fn add(&mut self, node: Node) -> Place {
        if self.nodes.len() >= MOST_NODES {
            return NOWHERE;
        }
        self.nodes.push(node);
        Place(self.nodes.len() as u32 - 1)
    }
}

impl Node {
    fn start() -> Self {
        Node {
            key: [0; WORDS],
            guess: NOWHERE,
            first_child: NOWHERE,
            sibling: NOWHERE,
            inside: NOWHERE,
            order: Order::Unknown,
            size: 0,
            members: 0,
            children: 0,
            known: Known::Other,
        }
    }

    /// Whether a text begins with this key.
    #[inline]
    fn begins(&self, text: &[u64; WORDS]) -> bool {
        let masks = &MASKS[usize::from(self.size) % MASKS.len()];
        let differs = |word: usize| (text[word] ^ self.key[word]) & masks[word];
        differs(0) | differs(1) | differs(2) == 0
    }
}

/// Masks of the first bytes, by their number.
static MASKS: [[u64; WORDS]; SIZES] = masks();
const SIZES: usize = 32; // more than there are: a power of two

const fn masks() -> [[u64; WORDS]; SIZES] {
    let mut masks = [[0; WORDS]; SIZES];
    let mut size = 0;
    while size <= LONGEST {
        let mut byte = 0;
        while byte < size {
            masks[size][byte / 8] |= 0xff << (8 * (byte % 8));
            byte += 1;
        }
        size += 1;
    }
    masks
}

#[inline]
fn words(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(<[u8; 8]>::try_from(bytes).unwrap_or_default());
    }
    words
}
