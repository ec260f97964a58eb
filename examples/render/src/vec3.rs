//! Three numbers: a point, a direction or a colour.

use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vec3 {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

pub const fn vec3(x: f32, y: f32, z: f32) -> Vec3 {
    Vec3 { x, y, z }
}

impl Vec3 {
    pub const ZERO: Vec3 = vec3(0.0, 0.0, 0.0);
    pub const ONE: Vec3 = vec3(1.0, 1.0, 1.0);

    pub fn dot(self, other: Vec3) -> f32 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub fn cross(self, other: Vec3) -> Vec3 {
        vec3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )
    }

    pub fn length(self) -> f32 {
        self.dot(self).sqrt()
    }

    pub fn normalized(self) -> Vec3 {
        self / self.length()
    }

    /// From this to another, all three numbers alike.
    pub fn mix(self, other: Vec3, share: f32) -> Vec3 {
        self * (1.0 - share) + other * share
    }

    pub fn map(self, f: impl Fn(f32) -> f32) -> Vec3 {
        vec3(f(self.x), f(self.y), f(self.z))
    }

    pub fn min(self, other: Vec3) -> Vec3 {
        vec3(
            self.x.min(other.x),
            self.y.min(other.y),
            self.z.min(other.z),
        )
    }

    pub fn max(self, other: Vec3) -> Vec3 {
        vec3(
            self.x.max(other.x),
            self.y.max(other.y),
            self.z.max(other.z),
        )
    }

    pub fn largest(self) -> f32 {
        most(most(self.x, self.y), self.z)
    }

    pub fn smallest(self) -> f32 {
        least(least(self.x, self.y), self.z)
    }

    /// The direction in which a mirror facing `normal` sends light that came in this one.
    pub fn reflected(self, normal: Vec3) -> Vec3 {
        self - normal * (2.0 * self.dot(normal))
    }

    /// Two directions at right angles to this one and to each other.
    /// (Duff and others, "Building an Orthonormal Basis, Revisited", 2017.)
    pub fn basis(self) -> (Vec3, Vec3) {
        let sign = 1.0_f32.copysign(self.z);
        let a = -1.0 / (sign + self.z);
        let b = self.x * self.y * a;
        (
            vec3(1.0 + sign * self.x * self.x * a, sign * b, -sign * self.x),
            vec3(b, sign + self.y * self.y * a, -self.y),
        )
    }
}

/// The smaller of two. `f32::min` would do, but is a function call in WebAssembly, because it
/// takes care of numbers that are none; a renderer does this a thousand times for a pixel.
pub fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The larger of two; see [`least`].
pub fn most(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Add for Vec3 {
    type Output = Vec3;
    fn add(self, other: Vec3) -> Vec3 {
        vec3(self.x + other.x, self.y + other.y, self.z + other.z)
    }
}

impl AddAssign for Vec3 {
    fn add_assign(&mut self, other: Vec3) {
        *self = *self + other;
    }
}

impl Sub for Vec3 {
    type Output = Vec3;
    fn sub(self, other: Vec3) -> Vec3 {
        vec3(self.x - other.x, self.y - other.y, self.z - other.z)
    }
}

impl Mul for Vec3 {
    type Output = Vec3;
    fn mul(self, other: Vec3) -> Vec3 {
        vec3(self.x * other.x, self.y * other.y, self.z * other.z)
    }
}

impl Mul<f32> for Vec3 {
    type Output = Vec3;
    fn mul(self, factor: f32) -> Vec3 {
        vec3(self.x * factor, self.y * factor, self.z * factor)
    }
}

impl Div<f32> for Vec3 {
    type Output = Vec3;
    fn div(self, divisor: f32) -> Vec3 {
        self * (1.0 / divisor)
    }
}

impl Neg for Vec3 {
    type Output = Vec3;
    fn neg(self) -> Vec3 {
        vec3(-self.x, -self.y, -self.z)
    }
}
