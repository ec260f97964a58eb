//! What there is to see: a few large spheres among many small ones, on a polished floor at dusk.
//!
//! Owns every colour and position. Change this file to change the picture.

use std::f32::consts::TAU;

use crate::bvh::{Bvh, Ray};
use crate::sampler::hash;
use crate::vec3::{Vec3, vec3};

/// A surface must be at least this far away to be hit: rounding puts a ray's start a little off
/// the surface it leaves.
pub const NEAR: f32 = 1e-3;

/// What a surface does with light.
#[derive(Clone, Copy, Debug)]
pub enum Material {
    /// Scatters it all ways.
    Matt(Vec3),
    /// As if lacquered: a mirror at a flat angle, matt otherwise.
    Glossy(Vec3),
    /// A tinted mirror; the rougher, the more blurred.
    Metal(Vec3, f32),
    /// Lets it through, bent.
    Glass(Vec3),
}

#[derive(Clone, Copy, Debug)]
pub struct Sphere {
    pub center: Vec3,
    pub radius: f32,
    pub material: Material,
}

impl Sphere {
    /// How far along the ray it is met, if that is less than `limit`.
    pub fn distance(&self, ray: &Ray, limit: f32) -> Option<f32> {
        let offset = ray.origin - self.center;
        let half_b = offset.dot(ray.direction);
        // The squared distance of centre and ray, taken this way because it loses fewer digits
        // for small far spheres (Haines and others, "Precision Improvements for Ray/Sphere
        // Intersection", 2019).
        let across = offset - ray.direction * half_b;
        let inside = self.radius * self.radius - across.dot(across);
        if inside < 0.0 {
            return None;
        }
        let half_chord = inside.sqrt();
        [-half_b - half_chord, -half_b + half_chord]
            .into_iter()
            .find(|&distance| distance > NEAR)
            .filter(|&distance| distance < limit)
    }
}

/// Where a ray meets a surface.
pub struct Hit {
    pub distance: f32,
    pub point: Vec3,
    /// Outward, length 1.
    pub normal: Vec3,
    pub material: Material,
}

pub struct Scene {
    pub spheres: Vec<Sphere>,
    bvh: Bvh,
    /// Towards the sun.
    pub sun: Vec3,
}

/// The sun is shown larger than life, for softer shadows: the sine of half its angle.
pub const SUN_RADIUS: f32 = 0.05;
/// The light of the sun's disc as a whole, on a surface that faces it.
pub const SUN_LIGHT: Vec3 = vec3(4.4, 3.0, 1.75);

impl Scene {
    pub fn new() -> Self {
        let spheres = spheres();
        let bvh = Bvh::new(&spheres);
        Scene {
            spheres,
            bvh,
            sun: vec3(-0.72, 0.46, 0.30).normalized(),
        }
    }

    /// The nearest thing that a ray meets.
    pub fn hit(&self, ray: &Ray) -> Option<Hit> {
        let floor = floor_distance(ray);
        let limit = floor.unwrap_or(f32::INFINITY);
        if let Some((index, distance)) = self.bvh.nearest(ray, limit) {
            let sphere = &self.spheres[index];
            let point = ray.at(distance);
            let normal = (point - sphere.center) / sphere.radius;
            return Some(Hit {
                distance,
                point,
                normal,
                material: sphere.material,
            });
        }
        let distance = floor?;
        let point = ray.at(distance);
        let material = floor_material(point);
        Some(Hit {
            distance,
            point,
            normal: vec3(0.0, 1.0, 0.0),
            material,
        })
    }

    /// How much light comes through from far away: 0 where something is in between, 1 if not.
    /// Glass takes some of it; that it also bundles it is left out.
    pub fn light_through(&self, ray: &Ray) -> f32 {
        let mut light = 1.0;
        self.bvh.visit(ray, |sphere, _| {
            if sphere.distance(ray, f32::INFINITY).is_some() {
                match sphere.material {
                    Material::Glass(_) => light *= 0.6,
                    Material::Matt(_) | Material::Glossy(_) | Material::Metal(..) => light = 0.0,
                }
            }
            (light > 0.0).then_some(f32::INFINITY)
        });
        light
    }

    /// The colour of the sky, without the sun's disc.
    pub fn sky(&self, direction: Vec3) -> Vec3 {
        let height = direction.y.max(0.0);
        let zenith = vec3(0.04, 0.10, 0.30);
        let middle = vec3(0.22, 0.30, 0.54);
        let horizon = vec3(0.92, 0.50, 0.30);
        let low = horizon.mix(middle, (height * 3.2).min(1.0).sqrt());
        let sky = low.mix(zenith, ((height - 0.12) * 1.5).clamp(0.0, 1.0));
        let towards_sun = direction.dot(self.sun).max(0.0);
        let glow = towards_sun.powi(6) * 0.35 + towards_sun.powi(48) * 0.9;
        sky + vec3(1.0, 0.55, 0.25) * glow
    }

    /// The sky as seen by the eye or in a mirror: with the sun's disc.
    pub fn sky_with_sun(&self, direction: Vec3) -> Vec3 {
        let is_sun = direction.dot(self.sun) > (1.0 - SUN_RADIUS * SUN_RADIUS).sqrt();
        self.sky(direction) + if is_sun { SUN_LIGHT * 9.0 } else { Vec3::ZERO }
    }
}

fn floor_distance(ray: &Ray) -> Option<f32> {
    let distance = -ray.origin.y / ray.direction.y;
    // Not so far that the pattern dissolves into noise; the haze hides what is beyond.
    (distance > NEAR && distance < 400.0).then_some(distance)
}

/// Rings around the middle, in two tones.
fn floor_material(point: Vec3) -> Material {
    let distance = (point.x * point.x + point.z * point.z).sqrt();
    let light = vec3(0.20, 0.18, 0.18);
    let dark = vec3(0.045, 0.05, 0.07);
    let wave = (distance * 2.1 - 1.0).sin();
    Material::Glossy(dark.mix(light, (wave * 3.0 + 0.5).clamp(0.0, 1.0)))
}

fn spheres() -> Vec<Sphere> {
    let sphere = |x, z, radius, material| Sphere {
        center: vec3(x, radius, z),
        radius,
        material,
    };
    let mut spheres = vec![
        sphere(0.0, 0.0, 1.25, Material::Glass(vec3(0.97, 0.99, 0.98))),
        sphere(
            -2.55,
            -0.9,
            1.1,
            Material::Metal(vec3(0.98, 0.76, 0.42), 0.03),
        ),
        sphere(2.55, -0.7, 1.1, Material::Glossy(vec3(0.05, 0.16, 0.42))),
        sphere(
            0.9,
            -3.4,
            1.6,
            Material::Metal(vec3(0.86, 0.87, 0.92), 0.12),
        ),
        sphere(-1.15, 1.75, 0.42, Material::Glossy(vec3(0.72, 0.09, 0.08))),
        sphere(
            1.25,
            1.9,
            0.36,
            Material::Metal(vec3(0.95, 0.60, 0.48), 0.0),
        ),
    ];
    // Like the seeds of a sunflower: each a golden angle on from the last and a little farther out.
    let golden_turn = TAU * 0.381_966;
    for seed in 0..150_u32 {
        let step = seed as f32 + 3.0;
        let distance = 0.62 * step.sqrt() + 0.9;
        let (sin, cos) = (step * golden_turn).sin_cos();
        let radius = 0.11 + 0.012 * distance + 0.09 * fraction(seed, 1);
        let small = sphere(distance * cos, distance * sin, radius, small_material(seed));
        let is_free = spheres.iter().all(|other| {
            let gap = (other.center - small.center).length() - other.radius - small.radius;
            gap > 0.02
        });
        if is_free {
            spheres.push(small);
        }
    }
    spheres
}

fn small_material(seed: u32) -> Material {
    // Five colours that go together.
    const PALETTE: [Vec3; 5] = [
        vec3(0.80, 0.24, 0.14),
        vec3(0.90, 0.58, 0.13),
        vec3(0.86, 0.80, 0.66),
        vec3(0.08, 0.42, 0.44),
        vec3(0.16, 0.20, 0.46),
    ];
    let colour = PALETTE[hash(seed ^ 0x51) as usize % PALETTE.len()];
    match fraction(seed, 2) {
        kind if kind < 0.35 => Material::Matt(colour),
        kind if kind < 0.72 => Material::Glossy(colour),
        kind if kind < 0.90 => Material::Metal(colour.mix(Vec3::ONE, 0.35), 0.25 * kind - 0.15),
        _ => Material::Glass(colour.mix(Vec3::ONE, 0.75)),
    }
}

/// A number from 0 to below 1 that depends on the two given.
fn fraction(seed: u32, question: u32) -> f32 {
    (hash(seed.wrapping_mul(31) ^ (question << 20)) >> 8) as f32 / 16_777_216.0
}
