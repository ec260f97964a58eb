//! Finds what a ray hits among many spheres without asking each.
//!
//! A tree of boxes: a ray that misses a box misses all that is in it.

use crate::scene::Sphere;
use crate::vec3::{Vec3, least, most, vec3};

/// A half-line: all points `origin + direction * distance`. The direction has length 1.
#[derive(Clone, Copy)]
pub struct Ray {
    pub origin: Vec3,
    pub direction: Vec3,
}

impl Ray {
    pub fn at(&self, distance: f32) -> Vec3 {
        self.origin + self.direction * distance
    }
}

/// As many spheres as it takes to make another box worth while.
const LEAF_MAX: usize = 4;
/// The tree is halved at each level, so this is enough for 2^32 leaves.
const STACK_MAX: usize = 32;

struct Node {
    low: Vec3,
    high: Vec3,
    /// The spheres in a leaf; empty for a branch.
    first: u32,
    count: u32,
    /// Of a branch: the second of its two children. The first comes right after the branch.
    second: u32,
    /// Of a branch: the way from its first child to its second.
    axis: Vec3,
}

/// The tree. Sphere indices are those of the slice it was built from.
pub struct Bvh {
    nodes: Vec<Node>,
    spheres: Vec<(Sphere, u32)>,
}

impl Bvh {
    pub fn new(spheres: &[Sphere]) -> Self {
        let spheres = spheres.iter().copied().zip(0..).collect();
        let mut bvh = Bvh {
            nodes: Vec::new(),
            spheres,
        };
        bvh.build(0, bvh.spheres.len());
        bvh
    }

    /// Builds the node of the spheres `from..to` and returns its index.
    fn build(&mut self, from: usize, to: usize) -> u32 {
        let group = &mut self.spheres[from..to];
        let mut low = Vec3::ONE * f32::INFINITY;
        let mut high = Vec3::ONE * f32::NEG_INFINITY;
        for (sphere, _) in group.iter() {
            low = low.min(sphere.center - Vec3::ONE * sphere.radius);
            high = high.max(sphere.center + Vec3::ONE * sphere.radius);
        }
        let at = self.nodes.len();
        let is_leaf = group.len() <= LEAF_MAX;
        let count = if is_leaf { group.len() as u32 } else { 0 };
        self.nodes.push(Node {
            low,
            high,
            first: from as u32,
            count,
            second: 0,
            axis: Vec3::ZERO,
        });
        if !is_leaf {
            let size = high - low;
            let axis = match size.largest() {
                largest if largest == size.x => vec3(1.0, 0.0, 0.0),
                largest if largest == size.z => vec3(0.0, 0.0, 1.0),
                _ => vec3(0.0, 1.0, 0.0),
            };
            group.sort_by(|(a, _), (b, _)| a.center.dot(axis).total_cmp(&b.center.dot(axis)));
            self.nodes[at].axis = axis;
            let middle = from + group.len() / 2;
            self.build(from, middle);
            self.nodes[at].second = self.build(middle, to);
        }
        at as u32
    }

    /// The nearest sphere that the ray meets before `limit`: its index and how far away.
    pub fn nearest(&self, ray: &Ray, limit: f32) -> Option<(usize, f32)> {
        let mut found = None;
        let mut limit = limit;
        self.visit(ray, |sphere, index| {
            if let Some(distance) = sphere.distance(ray, limit) {
                limit = distance;
                found = Some((index, distance));
            }
            Some(limit)
        });
        found
    }

    /// Asks about spheres that the ray may meet, until `ask` says `None`; else it says how far
    /// from the origin is still of interest.
    pub fn visit(&self, ray: &Ray, mut ask: impl FnMut(&Sphere, usize) -> Option<f32>) {
        let inverse = ray.direction.map(|part| 1.0 / part);
        let mut limit = f32::INFINITY;
        let mut stack = [0_u32; STACK_MAX];
        let mut waiting = 0;
        let mut at = 0;
        loop {
            let node = &self.nodes[at as usize];
            let mut next = None;
            if node.is_met(ray, inverse, limit) {
                for (sphere, index) in &self.spheres[node.first as usize..][..node.count as usize] {
                    match ask(sphere, *index as usize) {
                        Some(farthest) => limit = farthest,
                        None => return,
                    }
                }
                if node.count == 0 {
                    // The nearer child first: what it has may hide all of the other.
                    let ahead = ray.direction.dot(node.axis) >= 0.0;
                    let (near, far) = if ahead {
                        (at + 1, node.second)
                    } else {
                        (node.second, at + 1)
                    };
                    stack[waiting] = far;
                    waiting += 1;
                    next = Some(near);
                }
            }
            at = match next {
                Some(next) => next,
                None if waiting == 0 => return,
                None => {
                    waiting -= 1;
                    stack[waiting]
                }
            };
        }
    }
}

impl Node {
    fn is_met(&self, ray: &Ray, inverse: Vec3, limit: f32) -> bool {
        let a = (self.low - ray.origin) * inverse;
        let b = (self.high - ray.origin) * inverse;
        let (near, far) = (a.min(b), a.max(b));
        let enters = most(near.largest(), 0.0);
        let leaves = least(far.smallest(), limit);
        enters <= leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Sampler;
    use crate::scene::Scene;

    #[test]
    fn the_tree_finds_what_a_search_of_all_finds() {
        let scene = Scene::new();
        let bvh = Bvh::new(&scene.spheres);
        for sample in 0..2000 {
            let mut sampler = Sampler::new(7, sample, 2000);
            let origin = sampler.ball() * 8.0;
            let ray = Ray {
                origin,
                direction: sampler.ball().normalized(),
            };
            let mut expected = None;
            let mut limit = f32::INFINITY;
            for (index, sphere) in scene.spheres.iter().enumerate() {
                if let Some(distance) = sphere.distance(&ray, limit) {
                    limit = distance;
                    expected = Some((index, distance));
                }
            }
            assert_eq!(bvh.nearest(&ray, f32::INFINITY), expected);
        }
    }
}
