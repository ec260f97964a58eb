//! How a picture is cut into bands of rows, and how a band and its neighbours are read as one.
//!
//! Invariant: bands are `BAND_ROWS` high, but for the last, which has the rest.

use std::ops::Range;

/// Rows of a band: large enough that its neighbours' rows are few, and a multiple of what pictures are
/// shrunk by.
const BAND_ROWS: u32 = 256;
/// Bytes of a pixel: red, green, blue.
pub const PIXEL: usize = 3;
/// Three bands and what is made of them fit the memory that the tasks ask for, up to this.
const SIDE_MAX: u32 = 16_384;

/// How many bands a picture of this height has.
pub fn count(height: u32) -> u32 {
    height.div_ceil(BAND_ROWS)
}

/// The rows of a band.
pub fn rows(height: u32, band: u32) -> Range<u32> {
    let start = band * BAND_ROWS;
    start..height.min(start + BAND_ROWS)
}

/// How long a side becomes.
pub fn shrunk(side: u32, by: usize) -> u32 {
    side.div_ceil(by as u32)
}

/// The size of a picture in bytes.
pub fn bytes(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height) * PIXEL as u64
}

/// Refuses what cannot be cut.
pub fn check(width: u32, height: u32) -> Result<(), String> {
    let sides = 1..=SIDE_MAX;
    if sides.contains(&width) && sides.contains(&height) {
        return Ok(());
    }
    Err(format!(
        "a picture of {width} x {height} pixels cannot be made: give sides from 1 to {SIDE_MAX}"
    ))
}

/// A band between its neighbours.
pub struct Rows<'a> {
    /// Above, own, below.
    parts: [&'a [u8]; 3],
    row_bytes: usize,
}

impl<'a> Rows<'a> {
    /// Neighbours may be empty, at the edges of the picture.
    ///
    /// # Panics
    /// If one of them does not consist of rows of this width.
    pub fn new(above: &'a [u8], own: &'a [u8], below: &'a [u8], width: u32) -> Self {
        let row_bytes = width as usize * PIXEL;
        let parts = [above, own, below];
        let is_whole = |part: &&[u8]| part.len().is_multiple_of(row_bytes);
        assert!(
            parts.iter().all(is_whole),
            "bands have rows of {width} pixels"
        );
        Rows { parts, row_bytes }
    }

    /// How many rows are its own.
    pub fn height(&self) -> usize {
        self.parts[1].len() / self.row_bytes
    }

    pub fn width(&self) -> usize {
        self.row_bytes / PIXEL
    }

    /// A row, counted from the first of its own. Beyond the picture, the nearest.
    pub fn row(&self, at: isize) -> &'a [u8] {
        let rows = self
            .parts
            .map(|part| (part.len() / self.row_bytes) as isize);
        let at = at.clamp(-rows[0], rows[1] + rows[2] - 1);
        let (part, at) = match at {
            at if at < 0 => (self.parts[0], at + rows[0]),
            at if at < rows[1] => (self.parts[1], at),
            at => (self.parts[2], at - rows[1]),
        };
        &part[at as usize * self.row_bytes..][..self.row_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_have_every_row_once() {
        for height in [1, 255, 256, 257, 3000] {
            let all = (0..count(height)).flat_map(|band| rows(height, band));
            assert!(all.eq(0..height), "{height}");
        }
    }

    #[test]
    fn rows_beyond_the_picture_are_the_nearest() {
        let [above, own, below] = [[1; 6], [2; 6], [3; 6]];
        let between = Rows::new(&above, &own, &below, 1);
        let seen: Vec<u8> = (-3..6).map(|at| between.row(at)[0]).collect();
        assert_eq!(seen, [1, 1, 1, 2, 2, 3, 3, 3, 3]);
        let alone = Rows::new(&[], &own, &[], 1);
        assert!((-3..6).all(|at| alone.row(at)[0] == 2));
    }
}
