//! Max-min fair division of one resource.
//!
//! Owns the weighted water filling. Must not: know tenants.
//!
//! Invariant: nothing is lost and nothing is given twice; what is given is the capacity or the
//! sum of the demands, whichever is less.

use crate::resource::Amount;

use super::weight::Weight;

/// Divides `capacity` so that nobody gets more than it asks and what one leaves is split among the
/// rest by weight, until all is given or all are served (weighted max-min fairness; progressive
/// filling in Bertsekas and Gallager, "Data Networks", 1992).
///
/// Returns what each gets, in the order of `demands`. Exact: a share that is no whole number of
/// steps is rounded down, and the few steps left over go one each to the largest remainders, among
/// equals to the earlier in the list. So no one is more than one step from its exact share.
///
/// # Panics
/// If there are not as many weights as demands.
pub fn max_min(capacity: Amount, demands: &[Amount], weights: &[Weight]) -> Vec<Amount> {
    assert_eq!(
        demands.len(),
        weights.len(),
        "every demand needs its weight"
    );
    let demand = |at: usize| u128::from(demands[at].steps());
    let weight = |at: usize| u128::from(weights[at].steps());
    // Whoever asks for least per weight is served in full first. 64 bits times 34 bits.
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| (demand(a) * weight(b)).cmp(&(demand(b) * weight(a))));

    let mut given = vec![Amount::ZERO; demands.len()];
    let mut left = u128::from(capacity.steps());
    let mut weight_left: u128 = order.iter().map(|&at| weight(at)).sum();
    let mut order = &order[..];
    while let [first, rest @ ..] = order
        && demand(*first) * weight_left <= left * weight(*first)
    {
        given[*first] = demands[*first];
        left -= demand(*first);
        weight_left -= weight(*first);
        order = rest;
    }

    // Nobody else can have all it asks: the rest is split by weight.
    let mut to_give = left;
    let mut remainders = Vec::with_capacity(order.len());
    for &at in order {
        let exact = left * weight(at);
        let steps = exact / weight_left;
        given[at] = from_steps(steps);
        to_give -= steps;
        remainders.push((exact % weight_left, at));
    }
    remainders.sort_by(|(x, a), (y, b)| y.cmp(x).then(a.cmp(b)));
    for (_, at) in &remainders[..to_give.min(order.len() as u128) as usize] {
        given[*at] = from_steps(u128::from(given[*at].steps()) + 1);
    }
    given
}

/// The amount of steps that a demand, which fits 64 bits, bounds.
fn from_steps(steps: u128) -> Amount {
    Amount::from_steps(u64::try_from(steps).expect("no more than a demand"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn divide(capacity: &str, demands: &str, weights: &str) -> String {
        let demands: Vec<Amount> = demands.split(' ').map(|x| x.parse().unwrap()).collect();
        let weights: Vec<Weight> = weights.split(' ').map(|x| x.parse().unwrap()).collect();
        let given = max_min(capacity.parse().unwrap(), &demands, &weights);
        let texts: Vec<_> = given.iter().map(Amount::to_string).collect();
        texts.join(" ")
    }

    #[test]
    fn the_specs_cases() {
        assert_eq!(divide("10", "2 2.6 4 5", "1 1 1 1"), "2 2.6 2.7 2.7");
        assert_eq!(divide("16", "4 2 10 4", "2.5 4 0.5 1"), "4 2 6 4");
    }

    #[test]
    fn edges() {
        assert_eq!(max_min(Amount::ONE, &[], &[]), []);
        assert_eq!(divide("0", "1 2", "1 2"), "0 0");
        assert_eq!(divide("100", "1 0 2", "1 5 0.0001"), "1 0 2");
        // Of two steps for three equals the first two get one each.
        assert_eq!(divide("0.0002", "1 1 1", "1 1 1"), "0.0001 0.0001 0");
        // Of 0.0011 by 2 to 1: 7.33 and 3.67 steps, so the second has the larger remainder.
        assert_eq!(divide("0.0011", "1 1", "2 1"), "0.0007 0.0004");
        // That step may serve one in full that is due a little less: 3.5 of 4 steps.
        assert_eq!(divide("0.0013", "0.001 0.0004", "9.4 3.6"), "0.0009 0.0004");
        let huge = Amount::MAX.to_string();
        let all = format!("{huge} {huge}");
        assert_eq!(
            divide(&huge, &all, "1000000 1000000"),
            "922337203685477.5808 922337203685477.5807"
        );
    }

    /// Demands with weights.
    fn cases() -> impl Strategy<Value = (u64, Vec<(u64, u64)>)> {
        let demand = prop_oneof![Just(0), 1u64..30, 1u64..100_000, any::<u64>()];
        let weight = prop_oneof![Just(10_000u64), 1u64..50_000, 1u64..=10_000_000_000];
        let tenants = prop::collection::vec((demand, weight), 1..8);
        let capacity = prop_oneof![0u64..40, 0u64..300_000, any::<u64>()];
        (capacity, tenants)
    }

    proptest! {
        /// The characterisation of max-min: everything is given, nobody is above its demand, and
        /// whoever is not served in full has (to one step of either) at least as much per weight as
        /// any other, so nothing can be moved to it from someone better off.
        #[test]
        fn max_min_fair((capacity, tenants) in cases()) {
            let demands: Vec<_> =
                tenants.iter().map(|(demand, _)| Amount::from_steps(*demand)).collect();
            let weights: Vec<_> = tenants
                .iter()
                .map(|(_, weight)| Weight::new(Amount::from_steps(*weight)).unwrap())
                .collect();
            let given = max_min(Amount::from_steps(capacity), &demands, &weights);
            let sum = |amounts: &[Amount]| -> u128 {
                amounts.iter().map(|amount| u128::from(amount.steps())).sum()
            };
            prop_assert_eq!(sum(&given), sum(&demands).min(capacity.into()));
            for (at, &(demand, weight)) in tenants.iter().enumerate() {
                let got = u128::from(given[at].steps());
                prop_assert!(got <= demand.into());
                if got == u128::from(demand) {
                    continue;
                }
                for (other, &(_, other_weight)) in tenants.iter().enumerate() {
                    // Less the step that rounding may have given.
                    let others = u128::from(given[other].steps()).saturating_sub(1);
                    prop_assert!(
                        others * u128::from(weight) < (got + 1) * u128::from(other_weight),
                        "{other} has more than {at}"
                    );
                }
            }
        }

        /// Asking for more than one gets changes nothing, and the order of the list decides no
        /// more than a step.
        #[test]
        fn order_and_excess_do_not_matter((capacity, tenants) in cases()) {
            let run = |tenants: &[(u64, u64)]| {
                let (demands, weights): (Vec<_>, Vec<_>) = tenants
                    .iter()
                    .map(|(demand, weight)| {
                        let weight = Weight::new(Amount::from_steps(*weight)).unwrap();
                        (Amount::from_steps(*demand), weight)
                    })
                    .unzip();
                max_min(Amount::from_steps(capacity), &demands, &weights)
            };
            let given = run(&tenants);
            let mut turned: Vec<_> = tenants.clone();
            turned.reverse();
            let mut turned = run(&turned);
            turned.reverse();
            for (a, b) in given.iter().zip(&turned) {
                prop_assert!(a.steps().abs_diff(b.steps()) <= 1);
            }
            let greedy: Vec<_> = tenants
                .iter()
                .zip(&given)
                .map(|((demand, weight), given)| {
                    let is_short = given.steps() < *demand;
                    (if is_short { u64::MAX } else { *demand }, *weight)
                })
                .collect();
            prop_assert_eq!(run(&greedy), given);
        }
    }
}
