//! The memory of scans.

use super::shapes::Shapes;
use super::tokens::{Closed, Member, Token};

const LARGE_TEXT: usize = 1 << 16; // the room that a larger one takes is not kept

/// The buffers of a scan, and what one text teaches about the next.
#[derive(Default)]
pub struct Room {
    pub(super) tokens: Vec<Token>,
    pub(super) members: Vec<Member>, // of the open objects
    pub(super) closed: Vec<Closed>,
    pub(super) sorted: Vec<Member>, // of the objects whose names were not
    pub(super) text: Vec<u8>,
    pub(super) shapes: Shapes,
}

impl Room {
    pub fn clear(&mut self) {
        if self.text.capacity() > LARGE_TEXT {
            let shapes = std::mem::take(&mut self.shapes);
            *self = Room {
                shapes,
                ..Room::default()
            };
        }
        self.tokens.clear();
        self.members.clear();
        self.closed.clear();
        self.sorted.clear();
        self.text.clear();
        self.shapes.begin();
    }
}
