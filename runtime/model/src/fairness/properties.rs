//! Property tests of sharing: the four properties of dominant resource fairness, what the table
//! does beside it, and its keys beside the comparator written out with fractions.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::reference::{Asker, Rational, drf_divisible};
use super::*;
use crate::id::NodeId;
use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::time::Instant;

const NAMES: [ResourceName; 3] = [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY];

fn set(steps: &[u64]) -> ResourceSet {
    let amounts = NAMES.into_iter().zip(steps);
    amounts
        .map(|(name, steps)| (name, Amount::from_steps(*steps)))
        .collect()
}

/// Whole units.
pub(super) fn units(units: &[u64]) -> ResourceSet {
    let steps: Vec<u64> = units
        .iter()
        .map(|units| units * Amount::STEPS_PER_UNIT)
        .collect();
    set(&steps)
}

fn name(at: usize) -> TenantName {
    char::from(b'A' + at as u8).to_string().parse().unwrap()
}

pub(super) fn weight(steps: u64) -> Weight {
    Weight::new(Amount::from_steps(steps)).unwrap()
}

/// Needs of three resources, not all 0.
fn demand() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0u64..8, 3)
        .prop_filter("needs something", |demand| demand.iter().any(|x| *x > 0))
}

fn askers() -> impl Strategy<Value = Vec<Asker>> {
    let asker = (demand(), 1u64..4).prop_map(|(demand, weight)| Asker { demand, weight });
    prop::collection::vec(asker, 1..5)
}

proptest! {
    /// No one is worse off than with its part, by weight, of everything.
    #[test]
    fn sharing_incentive(capacity in prop::collection::vec(1u64..40, 3), askers in askers()) {
        let tasks = drf_divisible(&capacity, &askers);
        let weights: u64 = askers.iter().map(|asker| asker.weight).sum();
        for (asker, tasks) in askers.iter().zip(&tasks) {
            let part = Rational::new(asker.weight.into(), weights.into());
            let amounts: Vec<_> = capacity.iter().map(|&all| part * Rational::whole(all)).collect();
            prop_assert!(*tasks >= asker.tasks_with(&amounts));
        }
    }

    /// Whatever one says to need, it gets no more useful tasks than by the truth.
    #[test]
    fn strategy_proofness(
        capacity in prop::collection::vec(1u64..40, 3),
        askers in askers(),
        who: prop::sample::Index,
        lies in prop::collection::vec(demand(), 1..8),
    ) {
        let who = who.index(askers.len());
        let honest = drf_divisible(&capacity, &askers)[who];
        for lie in lies {
            let mut claims = askers.clone();
            claims[who].demand = lie;
            let got = claims[who].amounts(drf_divisible(&capacity, &claims)[who]);
            prop_assert!(askers[who].tasks_with(&got) <= honest);
        }
    }

    /// No one can have more unless another has less: nobody could use what is left. And no more
    /// is given than there is.
    #[test]
    fn pareto_efficiency(capacity in prop::collection::vec(1u64..40, 3), askers in askers()) {
        let tasks = drf_divisible(&capacity, &askers);
        let mut left: Vec<_> = capacity.iter().map(|&all| Rational::whole(all)).collect();
        for (asker, tasks) in askers.iter().zip(&tasks) {
            for (left, amount) in left.iter_mut().zip(asker.amounts(*tasks)) {
                *left = *left - amount;
            }
        }
        prop_assert!(left.iter().all(|left| *left >= Rational::ZERO));
        for asker in &askers {
            prop_assert_eq!(asker.tasks_with(&left), Rational::ZERO);
        }
    }

    /// No one would rather have what another got, by weight.
    #[test]
    fn envy_freeness(capacity in prop::collection::vec(1u64..40, 3), askers in askers()) {
        let tasks = drf_divisible(&capacity, &askers);
        for (asker, own) in askers.iter().zip(&tasks) {
            for (other, tasks) in askers.iter().zip(&tasks) {
                let by_weight = Rational::new(asker.weight.into(), other.weight.into());
                let others = other.amounts(*tasks * by_weight);
                prop_assert!(asker.tasks_with(&others) <= *own);
            }
        }
    }
}

/// Progressive filling with the real table: the smallest key whose next task fits, again and again.
/// Returns the tenants in the order of their tasks.
fn fill(capacity: &[u64], askers: &[Asker]) -> (Tenants, Vec<usize>) {
    let mut tenants = Tenants::new(Policy::Drf);
    tenants.set_total(units(capacity));
    for (at, asker) in askers.iter().enumerate() {
        let config = TenantConfig {
            weight: weight(asker.weight * Amount::STEPS_PER_UNIT),
            ..TenantConfig::default()
        };
        let ix = tenants.set_config(&name(at), config).unwrap();
        tenants.note_submission(ix, Instant::ZERO);
    }
    let mut line: BTreeSet<(ShareKey, TenantIx)> = tenants
        .iter()
        .map(|(ix, tenant)| (tenant.key().clone(), ix))
        .collect();
    let demand = |ix: TenantIx| units(&askers[ix.0 as usize].demand);
    let mut free = units(capacity);
    let mut order = vec![];
    while let Some(next) = line
        .iter()
        .find(|(_, ix)| demand(*ix).is_subset(&free))
        .cloned()
    {
        line.remove(&next);
        let ix = next.1;
        free.subtract(&demand(ix)).unwrap();
        tenants.charge(ix, &demand(ix));
        line.insert((tenants.key(ix).clone(), ix));
        order.push(ix.0 as usize);
    }
    (tenants, order)
}

#[test]
fn the_specs_case() {
    let of = |cpu, gigabytes| Asker {
        demand: vec![cpu, 0, gigabytes],
        weight: 1,
    };
    let (tenants, order) = fill(&[9, 0, 18], &[of(1, 4), of(3, 1)]);
    // A runs 3 and B runs 2, both at 2/3.
    assert_eq!(order, [0, 1, 0, 1, 0]);
    let two_thirds = Ratio::of(Amount::units(2), Amount::units(3));
    for (_, tenant) in tenants.iter() {
        assert_eq!(tenant.dominant_share(), two_thirds);
        assert_eq!(tenant.dominant_share().to_string(), "0.6666");
    }
    let why = tenants.compare(TenantIx(1), TenantIx(0)).unwrap();
    // A's CPU is at 3/9, B's memory at 2/18.
    assert_eq!(
        why.to_string(),
        "tenant B is ahead: share 0.66 for both, then 0.11 < 0.33"
    );
}

/// The largest need of one task below, and the smallest capacity.
const LARGEST_NEED: u64 = 10;
const SMALLEST_CAPACITY: u64 = 1_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With small tasks the table comes to what the paper defines: at the end nothing fits, and
    /// everyone has at least its dominant share but for the tasks that cannot be divided. (When the
    /// first task does not fit, some resource is full but for one task, and everyone is within one
    /// task of the lowest level.)
    #[test]
    fn the_table_fills_as_the_paper_defines(
        capacity in prop::collection::vec(SMALLEST_CAPACITY..2_000, 3),
        needs in prop::collection::vec((prop::collection::vec(1..=LARGEST_NEED, 3), 1u64..4), 1..5),
    ) {
        let askers: Vec<_> =
            needs.into_iter().map(|(demand, weight)| Asker { demand, weight }).collect();
        let (tenants, order) = fill(&capacity, &askers);
        let lost = LARGEST_NEED * (askers.len() as u64 + 1);
        let kept = Rational::new((SMALLEST_CAPACITY - lost).into(), SMALLEST_CAPACITY.into());
        for (at, tasks) in drf_divisible(&capacity, &askers).into_iter().enumerate() {
            let ran = order.iter().filter(|other| **other == at).count() as u64;
            prop_assert!(Rational::whole(ran) >= tasks * kept, "{at}: {ran} of {tasks:?}");
            // And it accounts what it gave.
            let used: Vec<_> = askers[at].demand.iter().map(|needs| needs * ran).collect();
            prop_assert_eq!(tenants.get(TenantIx(at as u32)).usage(), units(&used));
        }
    }
}

/// A tenant as the comparator sees it; everything in steps.
#[derive(Debug, Clone)]
struct TenantModel {
    used: Vec<u64>,
    minimum: Vec<u64>,
    weight: u64,
    resource_weights: Vec<u64>,
    submitted: u64,
}

fn tenant_model() -> impl Strategy<Value = TenantModel> {
    let few = || prop::collection::vec(0u64..5, 3);
    let weight = || prop::sample::select(vec![5_000u64, 10_000, 10_000, 20_000, 30_000]);
    let weights = prop::collection::vec(weight(), 3);
    (few(), few(), weight(), weights, 0u64..2).prop_map(
        |(used, minimum, weight, resource_weights, submitted)| TenantModel {
            used,
            minimum,
            weight,
            resource_weights,
            submitted,
        },
    )
}

impl TenantModel {
    fn config(&self) -> TenantConfig {
        let weights = self.resource_weights.iter().map(|steps| weight(*steps));
        TenantConfig {
            weight: weight(self.weight),
            resource_weights: NAMES.into_iter().zip(weights).collect(),
            min_share: set(&self.minimum),
            ..TenantConfig::default()
        }
    }

    /// Share of the cluster ÷ weights, of one resource.
    fn share(&self, resource: usize, total: &[u64]) -> Rational {
        Rational::new(self.used[resource].into(), total[resource].into())
            / Rational::new(self.weight.into(), 10_000)
            / Rational::new(self.resource_weights[resource].into(), 10_000)
    }

    fn is_below(&self, resource: usize) -> bool {
        self.used[resource] < self.minimum[resource]
    }

    /// Its own order of the resources.
    fn order(&self, total: &[u64]) -> Vec<usize> {
        let mut order = vec![0, 1, 2];
        order.sort_by(|&a, &b| {
            let by_share = self.share(b, total).cmp(&self.share(a, total));
            by_share.then(self.is_below(b).cmp(&self.is_below(a)))
        });
        order
    }

    /// Usage ÷ guarantee; something of nothing is beyond all.
    fn of_minimum(&self, resource: usize) -> Rational {
        match (self.used[resource], self.minimum[resource]) {
            (0, _) => Rational::ZERO,
            (_, 0) => Rational::whole(1_000_000),
            (used, minimum) => Rational::new(used.into(), minimum.into()),
        }
    }

    /// The comparator of the specification, up to names.
    fn compare(&self, other: &Self, total: &[u64]) -> Ordering {
        let (mine, others) = (self.order(total), other.order(total));
        let pairs = mine.iter().zip(&others);
        let shares = match (self.is_below(mine[0]), other.is_below(others[0])) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => pairs
                .map(|(&a, &b)| self.of_minimum(a).cmp(&other.of_minimum(b)))
                .fold(Ordering::Equal, Ordering::then),
            (false, false) => pairs
                .map(|(&a, &b)| self.share(a, total).cmp(&other.share(b, total)))
                .fold(Ordering::Equal, Ordering::then),
        };
        shares.then(self.submitted.cmp(&other.submitted))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Keys are ordered as the comparator with exact fractions orders the tenants, and the
    /// explanation names the criterion that decided.
    #[test]
    fn keys_are_the_comparator(
        total in prop::collection::vec(1u64..7, 3),
        both in (tenant_model(), tenant_model()),
    ) {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.set_total(set(&total));
        for (at, seen) in [&both.0, &both.1].into_iter().enumerate() {
            let ix = tenants.set_config(&name(at), seen.config()).unwrap();
            tenants.charge(ix, &set(&seen.used));
            tenants.note_submission(ix, Instant::from_micros(seen.submitted));
        }
        let (a, b) = (TenantIx(0), TenantIx(1));
        let expected = both.0.compare(&both.1, &total);
        prop_assert_eq!(tenants.key(a).cmp(tenants.key(b)), expected.then(Ordering::Less));
        let ahead = tenants.compare(a, b).unwrap();
        prop_assert_eq!(&ahead.ahead, &name(usize::from(expected == Ordering::Greater)));
        prop_assert_eq!(ahead.why == WhyAhead::Name, expected == Ordering::Equal);
        let is_earlier = matches!(ahead.why, WhyAhead::EarlierSubmission { .. });
        let mut alike = both.clone();
        (alike.0.submitted, alike.1.submitted) = (0, 0);
        let shares = alike.0.compare(&alike.1, &total);
        prop_assert_eq!(is_earlier, shares == Ordering::Equal && expected != Ordering::Equal);
        let dominant = (0..3)
            .map(|at| Ratio::of(Amount::from_steps(both.0.used[at]), Amount::from_steps(total[at])))
            .max();
        prop_assert_eq!(Some(tenants.get(a).dominant_share()), dominant);
    }
}

/// A tree of tenants, and one of which only others are part.
const TREE: [&str; 8] = ["a", "b", "a/x", "a/y", "b/x", "a/x/1", "a/x/2", "c/z"];

/// A tenant of the tree with all below it, beside its siblings; or only its own work, beside those below it.
fn in_row(all: &[(&str, TenantModel)], of: &str, is_own: bool) -> TenantModel {
    let nothing = TenantModel {
        used: vec![0; 3],
        minimum: vec![0; 3],
        weight: 10_000,
        resource_weights: vec![10_000; 3],
        submitted: u64::MAX,
    };
    let below = format!("{of}/");
    let itself = all.iter().find(|(name, _)| *name == of && !is_own);
    let mut seen = match itself {
        Some((_, itself)) => TenantModel {
            used: nothing.used,
            submitted: nothing.submitted,
            ..itself.clone()
        },
        None => nothing,
    };
    for (name, one) in all {
        if *name == of || !is_own && name.starts_with(&below) {
            let sums = std::iter::zip(&mut seen.used, &one.used);
            sums.for_each(|(sum, used)| *sum += used);
            seen.submitted = seen.submitted.min(one.submitted);
        }
    }
    seen
}

/// Chooses level by level among those who wait.
fn choose(all: &[(&str, TenantModel)], waiting: &[&str], total: &[u64]) -> String {
    let mut at = String::new();
    loop {
        let below = format!("{at}/");
        let next = waiting.iter().filter_map(|name| match at.as_str() {
            "" => name.split('/').next().map(str::to_owned),
            at if *name == at => Some(at.to_owned()),
            _ => {
                let rest = name.strip_prefix(&below)?;
                let part = rest.split('/').next()?;
                Some(format!("{below}{part}"))
            }
        });
        let next: BTreeSet<String> = next.collect();
        let seen = |name: &String| in_row(all, name, *name == at);
        let first = next.iter().min_by(|a, b| {
            let by_share = seen(a).compare(&seen(b), total);
            by_share.then(a.cmp(b))
        });
        let first = first.expect("somebody waits").clone();
        if first == at {
            return at;
        }
        at = first;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Who is first of those who wait is found by choosing at each level, by the comparator, among those that are part of
    /// the same: so what holds between tenants without parts holds between siblings.
    #[test]
    fn the_tree_is_the_comparator_at_each_level(
        total in prop::collection::vec(1u64..7, 3),
        seen in prop::collection::vec(tenant_model(), TREE.len()),
        waits in prop::collection::vec(any::<bool>(), TREE.len()),
    ) {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.set_total(set(&total));
        let all: Vec<(&str, TenantModel)> = std::iter::zip(TREE, seen).collect();
        let mut ixs = BTreeMap::new();
        for (name, seen) in &all {
            let ix = tenants.set_config(&name.parse().unwrap(), seen.config()).unwrap();
            tenants.charge(ix, &set(&seen.used));
            tenants.note_submission(ix, Instant::from_micros(seen.submitted));
            ixs.insert(*name, ix);
        }
        let waiting = std::iter::zip(TREE, waits).filter(|(_, waits)| *waits);
        let waiting: Vec<&str> = waiting.map(|(name, _)| name).collect();
        prop_assume!(!waiting.is_empty());
        let first = waiting.iter().min_by(|a, b| tenants.order(ixs[**a], ixs[**b]));
        prop_assert_eq!(*first.unwrap(), choose(&all, &waiting, &total));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Charge(usize, Vec<u64>),
    /// The charge to give back, counted round.
    Refund(prop::sample::Index),
    Remote(u8, Vec<(usize, Vec<u64>)>),
    Clear(u8),
    Configure(usize, TenantModel),
    Total(Vec<u64>),
    Policy(Policy),
    Submit(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let few = || prop::collection::vec(0u64..5, 3);
    let report = prop::collection::vec((0usize..3, few()), 0..3);
    let policy = prop::sample::select(vec![Policy::Drf, Policy::Fair, Policy::Fifo]);
    let step = prop_oneof![
        4 => (0usize..3, few()).prop_map(|(who, set)| Step::Charge(who, set)),
        3 => any::<prop::sample::Index>().prop_map(Step::Refund),
        3 => (0u8..3, report).prop_map(|(node, report)| Step::Remote(node, report)),
        1 => (0u8..3).prop_map(Step::Clear),
        1 => (0usize..3, tenant_model()).prop_map(|(who, seen)| Step::Configure(who, seen)),
        1 => few().prop_map(Step::Total),
        1 => policy.prop_map(Step::Policy),
        1 => (0usize..3, 0u64..9).prop_map(|(who, at)| Step::Submit(who, at)),
    ];
    prop::collection::vec(step, 0..40)
}

/// What a table was told, to tell another in one go.
#[derive(Default)]
struct InputLog {
    charges: Vec<(usize, ResourceSet)>,
    remote: BTreeMap<u8, BTreeMap<TenantName, ResourceSet>>,
    configs: BTreeMap<usize, TenantConfig>,
    total: ResourceSet,
    policy: Policy,
    submitted: BTreeMap<usize, u64>,
}

impl InputLog {
    fn tell(&mut self, tenants: &mut Tenants, step: Step) -> Vec<TenantIx> {
        let ix = |who: usize| TenantIx(who as u32);
        let node = |byte| NodeId::from_bytes([byte; 16]);
        match step {
            Step::Charge(who, amounts) => {
                tenants.charge(ix(who), &set(&amounts));
                self.charges.push((who, set(&amounts)));
                vec![ix(who)]
            }
            Step::Refund(at) if !self.charges.is_empty() => {
                let (who, amounts) = self.charges.remove(at.index(self.charges.len()));
                tenants.refund(ix(who), &amounts);
                vec![ix(who)]
            }
            Step::Refund(_) => vec![],
            Step::Remote(byte, report) => {
                let report = report.into_iter();
                let report: BTreeMap<_, _> = report
                    .map(|(who, amounts)| (name(who), set(&amounts)))
                    .collect();
                self.remote.insert(byte, report.clone());
                tenants.set_remote(node(byte), &report).unwrap()
            }
            Step::Clear(byte) => {
                self.remote.remove(&byte);
                tenants.clear_remote(node(byte))
            }
            Step::Configure(who, seen) => {
                self.configs.insert(who, seen.config());
                vec![tenants.set_config(&name(who), seen.config()).unwrap()]
            }
            Step::Total(amounts) => {
                self.total = set(&amounts);
                tenants.set_total(set(&amounts));
                vec![]
            }
            Step::Policy(policy) => {
                self.policy = policy;
                tenants.set_policy(policy);
                vec![]
            }
            Step::Submit(who, at) => {
                self.submitted.entry(who).or_insert(at);
                tenants.note_submission(ix(who), Instant::from_micros(at));
                vec![ix(who)]
            }
        }
    }

    fn fresh(&self) -> Tenants {
        let mut tenants = Tenants::new(self.policy);
        (0..3).for_each(|who| assert_eq!(tenants.intern(&name(who)), Ok(TenantIx(who as u32))));
        for (who, config) in &self.configs {
            tenants.set_config(&name(*who), config.clone()).unwrap();
        }
        for (who, at) in &self.submitted {
            tenants.note_submission(TenantIx(*who as u32), Instant::from_micros(*at));
        }
        for (who, amounts) in &self.charges {
            tenants.charge(TenantIx(*who as u32), amounts);
        }
        for (byte, report) in &self.remote {
            tenants
                .set_remote(NodeId::from_bytes([*byte; 16]), report)
                .unwrap();
        }
        tenants.set_total(self.total.clone());
        tenants
    }
}

proptest! {
    /// After any sequence of calls the keys are those of a table that was told the outcome; and
    /// keys change only where the call says so.
    #[test]
    fn keys_are_always_up_to_date(steps in steps()) {
        let mut tenants = Tenants::new(Policy::Drf);
        (0..3).for_each(|who| assert_eq!(tenants.intern(&name(who)), Ok(TenantIx(who as u32))));
        let mut log = InputLog::default();
        for step in steps {
            let (before, generation) = (tenants.clone(), tenants.generation());
            let changed = log.tell(&mut tenants, step);
            let fresh = log.fresh();
            for (ix, tenant) in tenants.iter() {
                prop_assert_eq!(tenant.key(), fresh.key(ix));
                prop_assert_eq!(tenant.usage(), fresh.get(ix).usage());
                prop_assert_eq!(tenant.dominant_share(), fresh.get(ix).dominant_share());
                prop_assert!(tenant.dominant_share_max() >= tenant.dominant_share());
                if tenants.generation() == generation && !changed.contains(&ix) {
                    prop_assert_eq!(tenant.key(), before.key(ix));
                }
            }
        }
    }
}
