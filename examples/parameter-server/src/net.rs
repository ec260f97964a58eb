//! A network of one hidden layer that reads digits, and its gradient.
//!
//! All weights are one list: those of the hidden layer, unit by unit, each with its bias last, then those
//! of the output in the same way. So what the server adds up needs no form.

use crate::digits::{Digits, PIXELS};

const HIDDEN: usize = 32;
const CLASSES: usize = 10;
/// Where the output's weights begin.
const OUTPUT: usize = HIDDEN * (PIXELS + 1);
const WEIGHTS: usize = OUTPUT + CLASSES * (HIDDEN + 1);

/// Small weights of chance, the same for the same seed.
pub fn random(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let unit = |_| {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 24) as f32
    };
    (0..WEIGHTS)
        .map(unit)
        .map(|unit| (unit - 0.5) * 0.4)
        .collect()
}

/// The mean loss (cross entropy, in nats) of some digits, and its slope along each weight.
pub fn gradient(weights: &[f32], digits: &Digits<'_>, batch: &[usize]) -> (f64, Vec<f32>) {
    let mut gradient = vec![0.0; weights.len()];
    let mut loss = 0.0;
    let scale = 1.0 / batch.len() as f32;
    for &at in batch {
        let (pixels, label) = digits.digit(at);
        let inputs = inputs(pixels);
        let hidden = hidden(weights, &inputs);
        let mut errors = chances(weights, &hidden);
        loss -= f64::from(errors[usize::from(label)].max(1e-9).ln());
        errors[usize::from(label)] -= 1.0;

        let mut back = [0.0; HIDDEN];
        for (class, error) in errors.iter().enumerate() {
            let start = OUTPUT + class * (HIDDEN + 1);
            add(&mut gradient[start..], &hidden, error * scale);
            for (slope, weight) in back.iter_mut().zip(&weights[start..]) {
                *slope += error * weight;
            }
        }
        for (unit, slope) in back.iter().enumerate() {
            // A unit that is off has no slope.
            if hidden[unit] > 0.0 {
                add(&mut gradient[unit * (PIXELS + 1)..], &inputs, slope * scale);
            }
        }
    }
    (loss / batch.len() as f64, gradient)
}

/// Which share of the digits is read right.
pub fn right(weights: &[f32], digits: &Digits<'_>) -> f64 {
    let is_right = |&at: &usize| {
        let (pixels, label) = digits.digit(at);
        read(weights, pixels) == label
    };
    (0..digits.len()).filter(is_right).count() as f64 / digits.len() as f64
}

/// Which digit it is, most likely.
pub fn read(weights: &[f32], pixels: &[u8]) -> u8 {
    let chances = chances(weights, &hidden(weights, &inputs(pixels)));
    let best = (0..CLASSES).max_by(|&a, &b| chances[a].total_cmp(&chances[b]));
    best.map_or(0, |class| class as u8)
}

fn inputs(pixels: &[u8]) -> [f32; PIXELS] {
    std::array::from_fn(|at| f32::from(pixels[at]) / 16.0)
}

fn hidden(weights: &[f32], inputs: &[f32; PIXELS]) -> [f32; HIDDEN] {
    std::array::from_fn(|unit| dot(&weights[unit * (PIXELS + 1)..], inputs).max(0.0))
}

/// How likely it is each of the digits: a softmax.
fn chances(weights: &[f32], hidden: &[f32; HIDDEN]) -> [f32; CLASSES] {
    let sums: [f32; CLASSES] =
        std::array::from_fn(|class| dot(&weights[OUTPUT + class * (HIDDEN + 1)..], hidden));
    let most = sums.iter().copied().fold(f32::MIN, f32::max);
    let powers = sums.map(|sum| (sum - most).exp());
    let total: f32 = powers.iter().sum();
    powers.map(|power| power / total)
}

/// The inputs' weighted sum, with the bias, which follows their weights.
fn dot(weights: &[f32], inputs: &[f32]) -> f32 {
    let sum: f32 = weights
        .iter()
        .zip(inputs)
        .map(|(weight, input)| weight * input)
        .sum();
    sum + weights[inputs.len()]
}

fn add(gradient: &mut [f32], inputs: &[f32], error: f32) {
    for (slope, input) in gradient.iter_mut().zip(inputs) {
        *slope += error * input;
    }
    gradient[inputs.len()] += error;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let (digits, _) = Digits::all();
        let weights = random(3);
        let batch = [0, 1, 2];
        let (_, slopes) = gradient(&weights, &digits, &batch);
        for at in [20, 70, OUTPUT - 3, OUTPUT, OUTPUT + 40, WEIGHTS - 1] {
            let loss = |by: f32| {
                let mut moved = weights.clone();
                moved[at] += by;
                gradient(&moved, &digits, &batch).0
            };
            let measured = (loss(1e-3) - loss(-1e-3)) / 2e-3;
            let slope = f64::from(slopes[at]);
            assert!(
                (measured - slope).abs() < 2e-3,
                "weight {at}: {measured}, not {slope}"
            );
        }
    }

    #[test]
    fn chances_add_up_to_one() {
        let chances = chances(&random(1), &[0.5; HIDDEN]);
        assert!((chances.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
}
