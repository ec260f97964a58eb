//! The digits: pixels from 0 (paper) to 16 (ink), and which digit it is.
//!
//! Owns the form of `data/digits.txt`. The file is part of the module, so it is trusted.

use std::borrow::Cow;

/// Pixels of a digit: 8 x 8.
pub const PIXELS: usize = 64;
/// Pixels of a row.
const SIDE: usize = 8;
/// The first are for learning; those after were written by other people.
const KNOWN: usize = 1437;

const TEXT: &str = include_str!("../data/digits.txt");

/// Some digits.
pub struct Digits<'a> {
    pixels: Cow<'a, [u8]>,
    labels: Cow<'a, [u8]>,
}

impl Digits<'static> {
    /// Those to learn from, and those to be tested with.
    pub fn all() -> (Self, Self) {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for line in TEXT.lines() {
            let (label, ink) = line.split_once(' ').expect("a label and pixels");
            labels.push(label.parse().expect("a label is a digit"));
            let ink = ink
                .chars()
                .map(|c| c.to_digit(17).expect("a digit to base 17") as u8);
            pixels.extend(ink);
        }
        let (other_pixels, other_labels) =
            (pixels.split_off(KNOWN * PIXELS), labels.split_off(KNOWN));
        let owned = |pixels: Vec<u8>, labels: Vec<u8>| Digits {
            pixels: pixels.into(),
            labels: labels.into(),
        };
        (owned(pixels, labels), owned(other_pixels, other_labels))
    }
}

impl<'a> Digits<'a> {
    /// Digits that lie elsewhere.
    ///
    /// # Panics
    /// If there are not 64 pixels for each label.
    pub fn new(pixels: &'a [u8], labels: &'a [u8]) -> Self {
        assert_eq!(pixels.len(), labels.len() * PIXELS, "64 pixels a digit");
        Digits {
            pixels: pixels.into(),
            labels: labels.into(),
        }
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The pixels of a digit, and which it is.
    pub fn digit(&self, at: usize) -> (&[u8], u8) {
        (&self.pixels[at * PIXELS..][..PIXELS], self.labels[at])
    }

    /// The digits that are a worker's. Neighbours were written by the same person, so they go to
    /// different workers.
    pub fn indices(&self, worker: u32, workers: u32) -> impl Iterator<Item = usize> + use<> {
        (worker as usize..self.len()).step_by(workers as usize)
    }

    /// A row of a digit, as text, two characters a pixel.
    pub fn row(&self, at: usize, row: usize) -> String {
        let pixels = &self.digit(at).0[row * SIDE..][..SIDE];
        let shades = ["  ", "░░", "▒▒", "▓▓", "██"];
        pixels
            .iter()
            .map(|&ink| shades[usize::from(ink) * 4 / 16])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_there() {
        let (known, unknown) = Digits::all();
        assert_eq!((known.len(), unknown.len()), (1437, 360));
        assert!(known.pixels().iter().all(|&ink| ink <= 16));
        for digit in 0..10 {
            assert!(
                unknown
                    .labels()
                    .iter()
                    .filter(|&&label| label == digit)
                    .count()
                    > 30
            );
        }
    }

    #[test]
    fn workers_share_all_digits() {
        let (_, digits) = Digits::all();
        let mut indices: Vec<usize> = (0..7)
            .flat_map(|worker| digits.indices(worker, 7))
            .collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..digits.len()));
    }
}
