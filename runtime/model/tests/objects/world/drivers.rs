//! What drivers do with objects, at random.

use std::rc::Rc;

use super::World;
use super::readers::Done;
use crate::things::{Cell, Does};

impl World {
    pub(super) fn some_does(&mut self) -> Does {
        Does {
            is_large: self.chance(60),
            has_lineage: self.chance(80),
            reads: self.chance(60),
            starts: self.random.below(3) * usize::from(self.chance(40)),
            depth: self.random.below(4),
        }
    }

    pub(super) fn drive(&mut self, at: usize) {
        match self.random.below(20) {
            0..4 => {
                let names = self.some_hands(at, 2);
                let task = self.fresh();
                let cell = self.own_cell(at, task);
                let is_large = self.chance(70);
                let value = self.value(at, cell.name.id, is_large, names);
                cell.end(Ok(value));
                self.nodes[at].hands.push(cell);
            }
            4..12 => {
                let args = self.some_hands(at, 3);
                let does = self.some_does();
                let cell = self.submit(at, args, does);
                self.nodes[at].hands.push(cell);
            }
            12..15 => {
                if let Some(cell) = self.some_hands(at, 1).pop() {
                    self.want(at, &cell);
                    self.nodes[at].gets.push(cell);
                }
            }
            15..18 => {
                let hands = &mut self.nodes[at].hands;
                if !hands.is_empty() {
                    let dropped = hands.swap_remove(self.random.below(hands.len()));
                    drop(dropped);
                }
            }
            _ => self.evict(at),
        }
    }

    fn some_hands(&mut self, at: usize, most: usize) -> Vec<Rc<Cell>> {
        let hands = &self.nodes[at].hands;
        if hands.is_empty() {
            return Vec::new();
        }
        let count = self.random.below(most) + usize::from(most == 1);
        let some = (0..count).map(|_| hands[self.random.below(hands.len())].clone());
        some.collect()
    }

    /// Reads what drivers wait for and what is there. Whether there was something.
    pub(super) fn get_on(&mut self, at: usize) -> bool {
        let gets = self.nodes[at].gets.extract_if(.., |cell| cell.has_ended());
        let gets: Vec<_> = gets.collect();
        for cell in &gets {
            if let Some(Ok(_)) = cell.result() {
                self.read(at, cell.clone(), Done::Driver);
            }
        }
        !gets.is_empty()
    }
}
