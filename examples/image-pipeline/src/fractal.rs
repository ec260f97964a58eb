//! A picture to work on, as large as one likes: a part of the Mandelbrot set's edge.

use std::ops::Range;

/// The middle of the picture, and how wide it is.
const MIDDLE: (f64, f64) = (-0.7436, 0.1318);
const WIDTH: f64 = 0.012;
/// What is inside after so many steps, counts as inside.
const STEPS_MAX: u32 = 200;

/// Rows of the picture, as RGB.
pub fn paint(width: u32, height: u32, rows: Range<u32>) -> Vec<u8> {
    let step = WIDTH / f64::from(width);
    let left = MIDDLE.0 - WIDTH / 2.0;
    let top = MIDDLE.1 - step * f64::from(height) / 2.0;
    let mut painted = Vec::with_capacity(rows.len() * width as usize * 3);
    for row in rows {
        for column in 0..width {
            let (x, y) = (left + step * f64::from(column), top + step * f64::from(row));
            painted.extend(colour(escape(x, y)));
        }
    }
    painted
}

/// After how many steps a point is gone for good, smoothly; none if it stays.
fn escape(x: f64, y: f64) -> Option<f64> {
    let (mut a, mut b) = (0.0, 0.0);
    for step in 0..STEPS_MAX {
        let (aa, bb) = (a * a, b * b);
        // Far out, so that the smooth count has no steps in it.
        if aa + bb > 256.0 {
            return Some(f64::from(step) - f64::log2(f64::ln(aa + bb) / 2.0));
        }
        (a, b) = (aa - bb + x, 2.0 * a * b + y);
    }
    None
}

/// Three waves, a third of the way apart.
fn colour(steps: Option<f64>) -> [u8; 3] {
    let Some(steps) = steps else {
        return [0; 3];
    };
    [0.0, 0.12, 0.24].map(|phase| {
        let wave = (std::f64::consts::TAU * (steps / 60.0 + phase)).cos();
        (127.5 - 127.5 * wave) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_points_stay_and_others_go() {
        assert_eq!(escape(0.0, 0.0), None);
        assert!(escape(2.0, 2.0).is_some());
    }

    #[test]
    fn bands_join_to_the_same_picture() {
        let whole = paint(16, 9, 0..9);
        let parts = [paint(16, 9, 0..4), paint(16, 9, 4..9)];
        assert_eq!(parts.concat(), whole);
        assert!(whole.iter().any(|&byte| byte != whole[0]));
    }
}
