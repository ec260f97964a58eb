//! Turns pixels into rays, and light into bytes.

use std::ops::Range;

use crate::bvh::Ray;
use crate::sampler::Sampler;
use crate::scene::Scene;
use crate::trace;
use crate::vec3::{Vec3, vec3};

const EYE: Vec3 = vec3(1.1, 2.35, 9.6);
const LOOKS_AT: Vec3 = vec3(0.0, 1.02, 0.0);
/// The tangent of half the angle of view, from top to bottom.
const HALF_VIEW: f32 = 0.262;
/// The lens: what is nearer or farther than what the camera looks at is blurred.
const LENS_RADIUS: f32 = 0.085;
/// One bright speck must not outshine the other samples of its pixel.
const LIGHT_MAX: f32 = 10.0;

/// A camera for pictures of one size.
pub struct Camera {
    width: u32,
    height: u32,
    focus: f32,
    forward: Vec3,
    right: Vec3,
    up: Vec3,
}

impl Camera {
    pub fn new(width: u32, height: u32) -> Self {
        let forward = (LOOKS_AT - EYE).normalized();
        let right = forward.cross(vec3(0.0, 1.0, 0.0)).normalized();
        let up = right.cross(forward);
        // Sharp at the front of the sphere in the middle.
        let focus = (LOOKS_AT - EYE).length() - 1.0;
        Camera {
            width,
            height,
            focus,
            forward,
            right,
            up,
        }
    }

    /// The bytes of these rows, top to bottom: red, green and blue of each pixel.
    pub fn render(&self, scene: &Scene, rows: Range<u32>, samples: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(rows.len() * self.width as usize * 3);
        for y in rows {
            for x in 0..self.width {
                let colour = self.pixel(scene, x, y, samples);
                bytes.extend([colour.x, colour.y, colour.z].map(to_byte));
            }
        }
        bytes
    }

    fn pixel(&self, scene: &Scene, x: u32, y: u32, samples: u32) -> Vec3 {
        let mut sum = Vec3::ZERO;
        for sample in 0..samples {
            let mut sampler = Sampler::new(y * self.width + x, sample, samples);
            let ray = self.ray(x, y, &mut sampler);
            let light = trace::light(scene, ray, &mut sampler);
            sum += light * (LIGHT_MAX / light.largest()).min(1.0);
        }
        filmic(sum / samples as f32)
    }

    /// A ray through some point of the lens and some point of the pixel.
    fn ray(&self, x: u32, y: u32, sampler: &mut Sampler) -> Ray {
        let (dx, dy) = sampler.pair();
        let scale = 2.0 * HALF_VIEW / self.height as f32;
        let across = (x as f32 + dx - 0.5 * self.width as f32) * scale;
        let upward = (0.5 * self.height as f32 - y as f32 - dy) * scale;
        let target = (self.forward + self.right * across + self.up * upward) * self.focus;
        let (lens_x, lens_y) = sampler.disc();
        let lens = (self.right * lens_x + self.up * lens_y) * LENS_RADIUS;
        Ray {
            origin: EYE + lens,
            direction: (target - lens).normalized(),
        }
    }
}

/// Any amount of light to 0 … 1, the way film does it (Narkowicz' fit of the ACES curve).
fn filmic(light: Vec3) -> Vec3 {
    light.map(|x| {
        let x = x * 0.8;
        ((x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14)).clamp(0.0, 1.0)
    })
}

/// The sRGB byte of an amount of light.
fn to_byte(light: f32) -> u8 {
    let encoded = match light {
        light if light <= 0.003_130_8 => light * 12.92,
        light => 1.055 * light.powf(1.0 / 2.4) - 0.055,
    };
    (encoded * 255.0 + 0.5) as u8
}
