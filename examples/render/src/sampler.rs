//! Numbers that look random but are the same every time, spread more evenly than chance would.
//!
//! Each sample of a pixel asks for pairs of numbers: where in the pixel, where on the lens, which
//! way to bounce. Over the samples of one pixel each of these pairs covers its square evenly
//! (Roberts' R2 sequence), shifted and reordered by a hash so that pixels and questions differ.

use std::f32::consts::TAU;

use crate::vec3::{Vec3, vec3};

/// The numbers for one sample of one pixel.
pub struct Sampler {
    pixel: u32,
    sample: u32,
    /// The smallest power of two that is no less than the number of samples, less one.
    mask: u32,
    /// How many pairs were asked for so far.
    asked: u32,
}

impl Sampler {
    pub fn new(pixel: u32, sample: u32, samples: u32) -> Self {
        Sampler {
            pixel,
            sample,
            mask: samples.next_power_of_two() - 1,
            asked: 0,
        }
    }

    /// Two numbers from 0 to below 1.
    pub fn pair(&mut self) -> (f32, f32) {
        let order = hash(self.pixel ^ hash(self.asked));
        let shift_x = hash(order);
        let shift_y = hash(shift_x);
        self.asked += 1;
        // An odd factor makes this one of the orders in which all samples come once.
        let index = self
            .sample
            .wrapping_mul(order | 1)
            .wrapping_add(order >> 16)
            & self.mask;
        // 2^32 over the plastic number, and over its square.
        let x = index.wrapping_mul(3_242_174_889).wrapping_add(shift_x);
        let y = index.wrapping_mul(2_447_445_414).wrapping_add(shift_y);
        (unit(x), unit(y))
    }

    /// One number from 0 to below 1.
    pub fn number(&mut self) -> f32 {
        self.pair().0
    }

    /// A point on the unit disc, every part of it alike.
    pub fn disc(&mut self) -> (f32, f32) {
        let (a, b) = self.pair();
        let radius = a.sqrt();
        let (sin, cos) = (b * TAU).sin_cos();
        (radius * cos, radius * sin)
    }

    /// A direction away from a surface, as likely as matt surfaces reflect light into it.
    pub fn cosine_direction(&mut self, normal: Vec3) -> Vec3 {
        let (x, y) = self.disc();
        let up = (1.0 - x * x - y * y).max(0.0).sqrt();
        let (tangent, bitangent) = normal.basis();
        tangent * x + bitangent * y + normal * up
    }

    /// A point in the unit ball, more often near its middle: for roughness.
    pub fn ball(&mut self) -> Vec3 {
        let (a, b) = self.pair();
        let (radius, _) = self.pair();
        let height = 1.0 - 2.0 * a;
        let (sin, cos) = (b * TAU).sin_cos();
        let ring = (1.0 - height * height).max(0.0).sqrt();
        vec3(ring * cos, height, ring * sin) * radius
    }
}

/// The upper 24 bits, as many as an f32 holds.
fn unit(bits: u32) -> f32 {
    (bits >> 8) as f32 / 16_777_216.0
}

/// A 32-bit mixer of good quality (Wellons' `lowbias32`).
pub fn hash(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_samples_cover_the_square_evenly() {
        for pixel in 0..100 {
            let mut quarters = [0; 4];
            for sample in 0..16 {
                let (x, y) = Sampler::new(pixel, sample, 16).pair();
                assert!((0.0..1.0).contains(&x) && (0.0..1.0).contains(&y));
                quarters[usize::from(x >= 0.5) * 2 + usize::from(y >= 0.5)] += 1;
            }
            assert!(
                quarters.iter().all(|count| (2..=6).contains(count)),
                "{quarters:?}"
            );
        }
    }
}
