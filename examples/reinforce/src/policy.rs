//! Which way to push, and how to become better at it: policy gradients with a baseline (REINFORCE,
//! Williams 1992).
//!
//! A policy is five weights: a bias and one for each number of the state. Their sum says how likely it
//! pushes to the right.

use crate::app::Game;

/// How much less a step counts than the one before it.
const DISCOUNT: f64 = 0.99;
/// How far the first update goes. Later ones go less and less far: after `RATE_UPDATES`, half as far.
const RATE: f64 = 0.5;
const RATE_UPDATES: f64 = 20.0;
/// An action that the newer policy likes better than the older one did counts more, up to this.
const WEIGHT_MAX: f64 = 2.0;
/// About the largest that the numbers of a state become while the pole is up.
const SCALE: [f64; 4] = [2.4, 2.0, 0.21, 2.0];

/// The policy that knows nothing.
pub fn first() -> Vec<f64> {
    vec![0.0; 1 + SCALE.len()]
}

/// How likely the policy is to push to the right.
pub fn chance(weights: &[f64], state: &[f64]) -> f64 {
    let sum: f64 = inputs(state).zip(weights).map(|(x, w)| x * w).sum();
    1.0 / (1.0 + (-sum).exp())
}

/// The weights after a step along the gradient of what the games are expected to last, when so many were
/// made before.
pub fn improved(weights: &[f64], games: &[Game], updates: u32) -> Vec<f64> {
    let returns: Vec<f64> = games
        .iter()
        .flat_map(|game| returns(game.pushes.len()))
        .collect();
    let count = returns.len().max(1) as f64;
    let mean = returns.iter().sum::<f64>() / count;
    let variance = returns.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt().max(1e-9);

    let mut gradient = vec![0.0; weights.len()];
    let mut returns = returns.iter();
    for game in games {
        let steps = game
            .states
            .chunks(SCALE.len())
            .zip(&game.pushes)
            .zip(&game.chances);
        for (((state, push), was), gain) in steps.zip(&mut returns) {
            let right = chance(weights, state);
            let (now, error) = if *push {
                (right, 1.0 - right)
            } else {
                (1.0 - right, -right)
            };
            let advantage = (gain - mean) / deviation * (now / was).min(WEIGHT_MAX);
            for (slope, input) in gradient.iter_mut().zip(inputs(state)) {
                *slope += advantage * error * input;
            }
        }
    }
    // A step of a length that does not depend on how steep it is.
    let length = gradient
        .iter()
        .map(|slope| slope * slope)
        .sum::<f64>()
        .sqrt()
        .max(1e-9);
    let rate = RATE * RATE_UPDATES / (RATE_UPDATES + f64::from(updates));
    let step = |(weight, slope): (&f64, &f64)| weight + rate * slope / length;
    weights.iter().zip(&gradient).map(step).collect()
}

/// What follows from each step of a game of this many: 1 for every step that comes, discounted.
fn returns(steps: usize) -> impl Iterator<Item = f64> {
    (0..steps).map(move |at| (1.0 - DISCOUNT.powi((steps - at) as i32)) / (1.0 - DISCOUNT))
}

/// What the weights are for.
fn inputs(state: &[f64]) -> impl Iterator<Item = f64> {
    let scaled = state.iter().zip(SCALE).map(|(x, scale)| x / scale);
    std::iter::once(1.0).chain(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_sums_of_what_comes() {
        let all: Vec<f64> = returns(3).collect();
        let expected = [1.0 + 0.99 + 0.9801, 1.99, 1.0];
        assert!(
            all.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
            "{all:?}"
        );
    }

    #[test]
    fn what_lasted_longer_becomes_more_likely() {
        let game = |push, steps: usize| Game {
            states: [0.0, 0.0, 0.1, 0.0].repeat(steps),
            pushes: vec![push; steps],
            chances: vec![0.5; steps],
        };
        let before = first();
        let after = improved(&before, &[game(true, 50), game(false, 5)], 0);
        let state = [0.0, 0.0, 0.1, 0.0];
        assert_eq!(chance(&before, &state), 0.5);
        assert!(chance(&after, &state) > 0.55);
    }
}
