//! A pole on a cart, as in Barto, Sutton and Anderson (1983), with the constants of Gym's CartPole-v1.
//!
//! Owns the laws of motion and the numbers of chance. Same seed, same world.

/// Metres from the middle that the cart may go.
const POSITION_MAX: f64 = 2.4;
/// Radians that the pole may lean: 12 degrees.
const ANGLE_MAX: f64 = 12.0 * std::f64::consts::PI / 180.0;
/// A game ends after so many steps, if the pole is still up.
pub const STEPS_MAX: u32 = 500;

const GRAVITY: f64 = 9.8;
const CART_KG: f64 = 1.0;
const POLE_KG: f64 = 0.1;
/// Half of the pole, in metres.
const POLE_HALF: f64 = 0.5;
/// Newton, to one side or the other.
const FORCE: f64 = 10.0;
const STEP_SECONDS: f64 = 0.02;

/// The cart with its pole.
pub struct Pole {
    position: f64,
    speed: f64,
    angle: f64,
    spin: f64,
    steps: u32,
}

impl Pole {
    /// Almost at rest, almost upright.
    pub fn new(random: &mut Random) -> Self {
        let mut small = || random.unit() * 0.1 - 0.05;
        Pole {
            position: small(),
            speed: small(),
            angle: small(),
            spin: small(),
            steps: 0,
        }
    }

    /// Position and speed of the cart, angle and spin of the pole.
    pub fn state(&self) -> [f64; 4] {
        [self.position, self.speed, self.angle, self.spin]
    }

    /// Whether the game goes on.
    pub fn is_up(&self) -> bool {
        self.position.abs() <= POSITION_MAX
            && self.angle.abs() <= ANGLE_MAX
            && self.steps < STEPS_MAX
    }

    /// Pushes the cart for one step.
    pub fn push(&mut self, right: bool) {
        let force = if right { FORCE } else { -FORCE };
        let (sin, cos) = self.angle.sin_cos();
        let kg = CART_KG + POLE_KG;
        let moment = POLE_KG * POLE_HALF;
        let pull = (force + moment * self.spin.powi(2) * sin) / kg;
        let turn =
            (GRAVITY * sin - cos * pull) / (POLE_HALF * (4.0 / 3.0 - POLE_KG * cos.powi(2) / kg));
        let thrust = pull - moment * turn * cos / kg;
        self.position += STEP_SECONDS * self.speed;
        self.speed += STEP_SECONDS * thrust;
        self.angle += STEP_SECONDS * self.spin;
        self.spin += STEP_SECONDS * turn;
        self.steps += 1;
    }
}

/// Numbers of chance: SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// At least 0, below 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pole_that_is_left_alone_falls() {
        let mut pole = Pole::new(&mut Random::new(1));
        let mut right = false;
        while pole.is_up() {
            pole.push(right);
            right = !right;
        }
        assert!((10..200).contains(&pole.steps), "{}", pole.steps);
    }

    #[test]
    fn a_push_to_the_right_leans_the_pole_to_the_left() {
        let mut pole = Pole::new(&mut Random::new(1));
        for _ in 0..5 {
            pole.push(true);
        }
        assert!(pole.speed > 0.5 && pole.spin < -0.5);
    }

    #[test]
    fn chance_is_even() {
        let mut random = Random::new(7);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }
}
