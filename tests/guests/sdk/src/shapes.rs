//! Types of values that are declared outside the module of tasks.

/// A shape, with a payload of every kind.
#[wasmrun_guest::value]
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// No payload.
    Dot,
    /// One.
    Circle(f64),
    /// Several: a tuple in WIT.
    Rect(f64, f64),
    /// With names: a record in WIT.
    Star {
        /// How many points it has.
        points: u32,
        /// From the middle to a point.
        radius: f64,
    },
}

impl Shape {
    /// How much of the plane it covers; of a star, the circle around it.
    pub fn area(&self) -> f64 {
        match self {
            Shape::Dot => 0.0,
            Shape::Circle(radius) | Shape::Star { radius, .. } => {
                std::f64::consts::PI * radius * radius
            }
            Shape::Rect(width, height) => width * height,
        }
    }
}
