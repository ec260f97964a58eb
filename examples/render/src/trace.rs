//! Follows light from the eye back to the sky.
//!
//! A path tracer: at each surface the path goes on one way, chosen by the sampler. The sun is too
//! small to be met by chance, so matt surfaces look for it on purpose.

use crate::bvh::Ray;
use crate::sampler::Sampler;
use crate::scene::{Hit, Material, SUN_LIGHT, SUN_RADIUS, Scene};
use crate::vec3::{Vec3, vec3};

/// After so many surfaces a path adds nothing that can be seen.
const SURFACES_MAX: usize = 6;
/// A path that carries less than this of its light is given up.
const LIGHT_MIN: f32 = 0.02;
/// How fast the haze takes over, per unit of distance.
const HAZE: f32 = 0.012;
const GLASS_INDEX: f32 = 1.5;

/// The light that reaches the eye along a ray.
pub fn light(scene: &Scene, ray: Ray, sampler: &mut Sampler) -> Vec3 {
    let mut ray = ray;
    let mut found = Vec3::ZERO;
    // How much of what is found from here on reaches the eye.
    let mut share = Vec3::ONE;
    let mut sees_sun = true;
    for surface in 0..SURFACES_MAX {
        let Some(hit) = scene.hit(&ray) else {
            let sky = match sees_sun {
                true => scene.sky_with_sun(ray.direction),
                false => scene.sky(ray.direction),
            };
            return found + share * sky;
        };
        // Only as the eye sees it: in mirrors and on matt surfaces nobody would notice.
        if surface == 0 {
            let haze = 1.0 - (-HAZE * hit.distance).exp();
            let level = vec3(ray.direction.x, 0.0, ray.direction.z).normalized();
            found = scene.sky(level) * haze;
            share = Vec3::ONE * (1.0 - haze);
        }
        let outgoing = scatter(scene, &ray, &hit, sampler);
        found += share * outgoing.direct;
        share = share * outgoing.share;
        sees_sun = outgoing.sees_sun;
        if share.largest() < LIGHT_MIN {
            break;
        }
        ray = Ray {
            origin: hit.point,
            direction: outgoing.direction,
        };
    }
    found
}

/// How a path goes on from a surface.
struct Outgoing {
    direction: Vec3,
    /// How much of the light from there is sent on.
    share: Vec3,
    /// Light straight from the sun, sent on.
    direct: Vec3,
    /// Whether the sun counts if the path meets it: not where it was looked for already.
    sees_sun: bool,
}

fn scatter(scene: &Scene, ray: &Ray, hit: &Hit, sampler: &mut Sampler) -> Outgoing {
    let cosine = -ray.direction.dot(hit.normal);
    match hit.material {
        Material::Matt(colour) => matt(scene, hit, colour, sampler),
        Material::Glossy(colour) => {
            if sampler.number() < mirrored(cosine, 0.045) {
                mirror(ray.direction.reflected(hit.normal), Vec3::ONE)
            } else {
                matt(scene, hit, colour, sampler)
            }
        }
        Material::Metal(colour, roughness) => {
            let blur = if roughness > 0.0 {
                sampler.ball() * roughness
            } else {
                Vec3::ZERO
            };
            let direction = (ray.direction.reflected(hit.normal) + blur).normalized();
            // Blurred into the surface: as if it had gone along it.
            let into = direction.dot(hit.normal).min(0.0);
            let direction = (direction - hit.normal * (2.0 * into)).normalized();
            mirror(direction, colour.mix(Vec3::ONE, mirrored(cosine, 0.0)))
        }
        Material::Glass(tint) => glass(ray, hit, tint, sampler),
    }
}

fn mirror(direction: Vec3, share: Vec3) -> Outgoing {
    Outgoing {
        direction,
        share,
        direct: Vec3::ZERO,
        sees_sun: true,
    }
}

fn matt(scene: &Scene, hit: &Hit, colour: Vec3, sampler: &mut Sampler) -> Outgoing {
    let (x, y) = sampler.disc();
    let (tangent, bitangent) = scene.sun.basis();
    let to_sun = (scene.sun + (tangent * x + bitangent * y) * SUN_RADIUS).normalized();
    let facing = to_sun.dot(hit.normal);
    let mut direct = Vec3::ZERO;
    if facing > 0.0 {
        let through = scene.light_through(&Ray {
            origin: hit.point,
            direction: to_sun,
        });
        direct = colour * SUN_LIGHT * (facing * through);
    }
    let direction = sampler.cosine_direction(hit.normal);
    Outgoing {
        direction,
        share: colour,
        direct,
        sees_sun: false,
    }
}

fn glass(ray: &Ray, hit: &Hit, tint: Vec3, sampler: &mut Sampler) -> Outgoing {
    let enters = ray.direction.dot(hit.normal) < 0.0;
    let (normal, ratio) = match enters {
        true => (hit.normal, 1.0 / GLASS_INDEX),
        false => (-hit.normal, GLASS_INDEX),
    };
    let cosine = -ray.direction.dot(normal);
    let sine_squared = ratio * ratio * (1.0 - cosine * cosine);
    let bent_cosine = (1.0 - sine_squared).max(0.0).sqrt();
    // On the way out the flatter of the two angles decides.
    let angle = if enters { cosine } else { bent_cosine };
    if sine_squared >= 1.0 || sampler.number() < mirrored(angle, 0.04) {
        return mirror(ray.direction.reflected(normal), Vec3::ONE);
    }
    let direction = ray.direction * ratio + normal * (ratio * cosine - bent_cosine);
    mirror(direction.normalized(), tint)
}

/// The part of the light that a smooth surface mirrors (Schlick's approximation of Fresnel's
/// law), given the part it mirrors when looked at squarely.
fn mirrored(cosine: f32, squarely: f32) -> f32 {
    squarely + (1.0 - squarely) * (1.0 - cosine).clamp(0.0, 1.0).powi(5)
}
