//! What is done to pixels. Each filter makes a band of a band and what it needs of its neighbours.

use crate::bands::{PIXEL, Rows};

/// So many shades are left of each colour.
const SHADES: u32 = 6;
/// A change of brightness of this much is drawn as a black line.
const BLACK_SLOPE: i32 = 200;

/// Two box blurs, one along the columns and one along the rows, `radius` pixels to each side.
///
/// Sums slide: each step adds what comes in and takes away what goes out, whatever the radius.
pub fn blur(rows: &Rows<'_>, radius: usize) -> Vec<u8> {
    let bytes = rows.width() * PIXEL;
    let reach = radius as isize;
    let window = 2 * radius as u32 + 1;
    let mut sums = vec![0_u32; bytes];
    for at in -reach..=reach {
        add(&mut sums, rows.row(at));
    }
    let mut blurred = Vec::with_capacity(rows.height() * bytes);
    let mut column = vec![0_u8; bytes];
    for at in 0..rows.height() as isize {
        for (mean, sum) in column.iter_mut().zip(&sums) {
            *mean = (sum / window) as u8;
        }
        blur_row(&column, radius, &mut blurred);
        add(&mut sums, rows.row(at + reach + 1));
        for (sum, byte) in sums.iter_mut().zip(rows.row(at - reach)) {
            *sum -= u32::from(*byte);
        }
    }
    blurred
}

fn add(sums: &mut [u32], row: &[u8]) {
    for (sum, byte) in sums.iter_mut().zip(row) {
        *sum += u32::from(*byte);
    }
}

fn blur_row(row: &[u8], radius: usize, blurred: &mut Vec<u8>) {
    let last = row.len() / PIXEL - 1;
    let (reach, window) = (radius as isize, 2 * radius as u32 + 1);
    let pixel = |at: isize| {
        let start = at.clamp(0, last as isize) as usize * PIXEL;
        [0, 1, 2].map(|colour| u32::from(row[start + colour]))
    };
    let mut sums = [0; PIXEL];
    for at in -reach..=reach {
        let more = pixel(at);
        sums = [0, 1, 2].map(|colour| sums[colour] + more[colour]);
    }
    for at in 0..=last as isize {
        blurred.extend(sums.map(|sum| (sum / window) as u8));
        let (comes, goes) = (pixel(at + reach + 1), pixel(at - reach));
        sums = [0, 1, 2].map(|colour| sums[colour] + comes[colour] - goes[colour]);
    }
}

/// Few shades of each colour, darkened where the brightness changes (Sobel's operator).
pub fn ink(rows: &Rows<'_>) -> Vec<u8> {
    let width = rows.width();
    let mut inked = Vec::with_capacity(rows.height() * width * PIXEL);
    let mut grey = [-1, 0, 1].map(|at| brightness(rows.row(at)));
    for at in 0..rows.height() as isize {
        for (x, pixel) in rows.row(at).chunks_exact(PIXEL).enumerate() {
            let (left, right) = (x.saturating_sub(1), (x + 1).min(width - 1));
            let [above, own, below] = &grey;
            let across = (above[right] + 2 * own[right] + below[right])
                - (above[left] + 2 * own[left] + below[left]);
            let down = (below[left] + 2 * below[x] + below[right])
                - (above[left] + 2 * above[x] + above[right]);
            let slope = (across.abs() + down.abs()).min(BLACK_SLOPE);
            let light = (BLACK_SLOPE - slope) as u32;
            inked.extend(pixel.iter().map(|&byte| {
                let shade = (u32::from(byte) * SHADES / 256) * 255 / (SHADES - 1);
                (shade * light / BLACK_SLOPE as u32) as u8
            }));
        }
        grey.rotate_left(1);
        grey[2] = brightness(rows.row(at + 2));
    }
    inked
}

/// How bright people find each pixel of a row, from 0 to 255 (ITU-R BT.601).
fn brightness(row: &[u8]) -> Vec<i32> {
    let grey = |pixel: &[u8]| {
        let [red, green, blue] = [0, 1, 2].map(|colour| i32::from(pixel[colour]));
        (299 * red + 587 * green + 114 * blue) / 1000
    };
    row.chunks_exact(PIXEL).map(grey).collect()
}

/// A pixel for each square of `by` times `by`, or what there is of it at the edges: the mean.
pub fn shrink(rows: &Rows<'_>, by: usize) -> Vec<u8> {
    let mut small = Vec::new();
    for top in (0..rows.height()).step_by(by) {
        let bottom = rows.height().min(top + by);
        for left in (0..rows.width()).step_by(by) {
            let right = rows.width().min(left + by);
            let mut sums = [0_usize; PIXEL];
            for at in top..bottom {
                let part = &rows.row(at as isize)[left * PIXEL..right * PIXEL];
                for pixel in part.chunks_exact(PIXEL) {
                    sums = [0, 1, 2].map(|colour| sums[colour] + usize::from(pixel[colour]));
                }
            }
            let pixels = (bottom - top) * (right - left);
            small.extend(sums.map(|sum| (sum / pixels) as u8));
        }
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a picture that is different everywhere.
    fn noise(width: usize, height: usize) -> Vec<u8> {
        let byte = |at: usize| (at * at % 251 + at % 7) as u8;
        (0..width * height * PIXEL).map(byte).collect()
    }

    #[test]
    fn bands_are_filtered_as_the_whole_is() {
        let (width, cut) = (9, 9 * PIXEL * 8);
        let picture = noise(width, 24);
        let bands: Vec<&[u8]> = picture.chunks(cut).collect();
        let of = |filter: &dyn Fn(&Rows<'_>) -> Vec<u8>| {
            let whole = filter(&Rows::new(&[], &picture, &[], width as u32));
            let [a, b, c] = [bands[0], bands[1], bands[2]];
            let parts = [(&[][..], a, b), (a, b, c), (b, c, &[][..])];
            let part = |(above, own, below)| filter(&Rows::new(above, own, below, width as u32));
            assert!(parts.into_iter().flat_map(part).eq(whole));
        };
        of(&|rows| blur(rows, 3));
        of(&ink);
        of(&|rows| shrink(rows, 4));
    }

    #[test]
    fn what_is_even_stays_so() {
        let even = vec![100; 5 * 4 * PIXEL];
        let rows = Rows::new(&[], &even, &[], 5);
        assert_eq!(blur(&rows, 2), even);
        assert_eq!(shrink(&rows, 3), vec![100; 2 * 2 * PIXEL]);
        assert!(ink(&rows).iter().all(|&byte| byte == ink(&rows)[0]));
    }

    #[test]
    fn an_edge_is_black() {
        let row = [[10; PIXEL], [10; PIXEL], [250; PIXEL], [250; PIXEL]].concat();
        let inked = ink(&Rows::new(&[], &row, &[], 4));
        assert_eq!(inked[PIXEL..3 * PIXEL], [0; 2 * PIXEL]);
        assert!(inked[3 * PIXEL] > 200);
    }
}
