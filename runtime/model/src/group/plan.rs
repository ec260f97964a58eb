//! Where the bundles of a group go.
//!
//! Owns the choice of nodes for each kind of group, and the reason where there is none. Must not:
//! take anything; a plan is a proposal, and the nodes decide.
//!
//! Invariants: the same nodes and bundles give the same plan; `strict_spread` finds a plan whenever
//! there is one; what is called impossible is so for certain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::matching::match_bundles;
use super::plan_error::{Impossible, PlanError, Unplaced};
use super::room::{Cell, Offer, Rooms, Shape, left_of, place_in};
use super::spec::GroupKind;
use crate::cluster::Selector;
use crate::resource::{Amount, Fit, Request, ResourceName};

/// Chooses a node for each bundle of a group, in the order of the bundles.
///
/// Bundles are placed from large to small: by the largest part of the cluster that they ask for of
/// any resource, then by number. This is first fit decreasing for vectors by the dominant
/// dimension (Panigrahy et al., "Heuristics for Vector Bin Packing", 2011).
/// - *pack*: the node that takes most of the bundles that are left, then the next one;
/// - *strict_pack*: the node that takes all; both prefer the one that has least left then;
/// - *spread*, *strict_spread*: as many bundles as possible on nodes of their own, by a largest
///   matching, which prefers nodes with most left; *spread* puts the others where fewest are.
///
/// Where *pack* or *spread* find no place in that way, each bundle goes to the node that it leaves
/// least of. Equal nodes: the lower key.
///
/// With many fitting nodes this takes time in proportion to nodes x bundles x resources.
///
/// # Panics
/// If a node is offered twice.
pub fn plan<'a, N: Copy + Ord, O: Offer + ?Sized + 'a>(
    kind: GroupKind,
    bundles: &[Request],
    nodes: impl IntoIterator<Item = (N, &'a O)>,
) -> Result<Vec<N>, PlanError> {
    let numbered: Vec<_> = (0..).zip(bundles).collect();
    let mut places = plan_beside(kind, &numbered, &[], nodes)?;
    places.sort_unstable_by_key(|(bundle, _)| *bundle);
    Ok(places.into_iter().map(|(_, node)| node).collect())
}

/// Chooses nodes for some bundles of a group, given by number, beside others that stay on the
/// nodes `kept`: *pack* fills those first, *strict_pack* goes nowhere else, *spread* and
/// *strict_spread* count them as used.
///
/// The result is in the order in which the bundles should be reserved: in another one, shares of
/// units may lie so that the last one does not fit any more.
///
/// # Panics
/// If a node is offered twice.
pub fn plan_beside<'a, N: Copy + Ord, O: Offer + ?Sized + 'a>(
    kind: GroupKind,
    bundles: &[(u32, &Request)],
    kept: &[N],
    nodes: impl IntoIterator<Item = (N, &'a O)>,
) -> Result<Vec<(u32, N)>, PlanError> {
    let bundles = bundles.iter().map(|&(number, request)| Wanted {
        number,
        request,
        selectors: &[],
    });
    let bundles: Vec<Wanted<'_>> = bundles.collect();
    plan_among(kind, &bundles, kept, nodes)
}

/// A bundle that wants a node.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its number in the group.
    pub number: u32,
    /// What it asks for.
    pub request: &'a Request,
    /// What labels its node must have: fallbacks in their order; none for any node.
    pub selectors: &'a [Selector],
}

/// As [`plan_beside`], on nodes whose labels are as each bundle demands. First all bundles are to have what they like
/// best; where that gives no plan now, the second will do for those that have one, and so on.
///
/// # Panics
/// If a node is offered twice.
pub fn plan_among<'a, N: Copy + Ord, O: Offer + ?Sized + 'a>(
    kind: GroupKind,
    bundles: &[Wanted<'_>],
    kept: &[N],
    nodes: impl IntoIterator<Item = (N, &'a O)>,
) -> Result<Vec<(u32, N)>, PlanError> {
    let mut nodes: Vec<(N, &O)> = match kind {
        GroupKind::StrictPack if !kept.is_empty() => nodes
            .into_iter()
            .filter(|(key, _)| kept.contains(key))
            .collect(),
        _ => nodes.into_iter().collect(),
    };
    nodes.sort_by_key(|(key, _)| *key);
    let levels = bundles.iter().map(|bundle| bundle.selectors.len()).max();
    let mut level = 1;
    loop {
        match plan_at(level, kind, bundles, kept, &nodes) {
            Err(_) if level < levels.unwrap_or(0) => level += 1,
            planned => return planned,
        }
    }
}

/// A plan in which each bundle has one of the first so many of its selectors.
fn plan_at<N: Copy + Ord, O: Offer + ?Sized>(
    level: usize,
    kind: GroupKind,
    bundles: &[Wanted<'_>],
    kept: &[N],
    nodes: &[(N, &O)],
) -> Result<Vec<(u32, N)>, PlanError> {
    let mut planner = Planner::new(level, kind, bundles, kept, nodes);
    let placed = match kind {
        GroupKind::Pack => planner.pack(),
        GroupKind::StrictPack => planner.strict_pack(),
        GroupKind::Spread => planner.spread(),
        GroupKind::StrictSpread => planner.strict_spread(),
    };
    match placed {
        Ok(places) => {
            let place =
                |(bundle, node): (usize, usize)| (bundles[bundle].number, planner.rooms.keys[node]);
            Ok(places.into_iter().map(place).collect())
        }
        Err(why) => Err(match planner.impossible(nodes) {
            Some(never) => PlanError::Infeasible(never),
            None => PlanError::Unavailable(why),
        }),
    }
}

struct Planner<'a, N> {
    bundles: &'a [Wanted<'a>],
    kind: GroupKind,
    /// The resources that the bundles ask for: the columns of `rooms`.
    names: Vec<&'a ResourceName>,
    rooms: Rooms<N>,
    /// By place in `rooms`: how many bundles of the group it has.
    has: Vec<u32>,
    /// What the bundles ask for, each different one once.
    shapes: Vec<Shape>,
    /// By shape: whether each node may have it, by place in `rooms`; nothing if all may.
    may_have: Vec<Vec<bool>>,
    /// By place in `bundles`.
    shape_of: Vec<usize>,
    /// The places in `bundles`, the largest first.
    order: Vec<usize>,
}

/// A node for each bundle, by places in both lists, in the order in which they were placed.
type Places = Result<Vec<(usize, usize)>, Unplaced>;

impl<'a, N: Copy + Ord> Planner<'a, N> {
    fn new<O: Offer + ?Sized>(
        level: usize,
        kind: GroupKind,
        bundles: &'a [Wanted<'a>],
        kept: &[N],
        nodes: &[(N, &O)],
    ) -> Self {
        let amounts = bundles.iter().flat_map(|it| it.request.amounts().iter());
        let mut names: Vec<_> = amounts.map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        let rooms = Rooms::read(&names, nodes.iter().copied());
        let mut has = vec![0; rooms.len()];
        for node in kept
            .iter()
            .filter_map(|key| rooms.keys.binary_search(key).ok())
        {
            has[node] += 1;
        }
        let (mut shapes, mut may_have) = (Vec::new(), Vec::new());
        let mut known = BTreeMap::new();
        let shape_of = bundles.iter().map(|bundle| {
            let selectors = &bundle.selectors[..level.min(bundle.selectors.len())];
            *known.entry((bundle.request, selectors)).or_insert_with(|| {
                shapes.push(shape(&names, bundle.request));
                let matches = |(_, node): &(N, &O)| selectors.iter().any(|it| node.has_labels(it));
                may_have.push(match selectors {
                    [] => Vec::new(),
                    _ => nodes.iter().map(matches).collect(),
                });
                shapes.len() - 1
            })
        });
        let shape_of = shape_of.collect();
        let mut planner = Self {
            bundles,
            kind,
            names,
            rooms,
            has,
            shapes,
            may_have,
            shape_of,
            order: (0..bundles.len()).collect(),
        };
        planner.sort_by_size();
        planner
    }

    fn sort_by_size(&mut self) {
        let totals: Vec<u128> = (0..self.names.len()).map(|at| self.total(at)).collect();
        let size = |shape: &Shape| {
            let ratio = |(column, steps): &(usize, u64)| {
                (u128::from(*steps) << 32) / totals[*column].max(1)
            };
            let ratios = shape.iter().map(ratio);
            (ratios.clone().max(), ratios.sum::<u128>())
        };
        let sizes: Vec<_> = self.shapes.iter().map(size).collect();
        self.order
            .sort_by_key(|bundle| Reverse(sizes[self.shape_of[*bundle]]));
    }

    /// What all nodes have of a resource, in steps.
    fn total(&self, column: usize) -> u128 {
        let capacity = |node| u128::from(self.rooms.row(node)[column].capacity());
        (0..self.rooms.len()).map(capacity).sum()
    }

    fn shape(&self, bundle: usize) -> &Shape {
        &self.shapes[self.shape_of[bundle]]
    }

    /// Whether the labels of a node are as bundles of a shape demand.
    fn may_have(&self, node: usize, shape: usize) -> bool {
        self.may_have[shape].get(node).copied().unwrap_or(true)
    }

    /// Whether a bundle fits a node now.
    fn fits(&self, node: usize, shape: usize) -> bool {
        self.may_have(node, shape) && self.rooms.fits(node, &self.shapes[shape])
    }

    /// Whether a bundle would fit a node if it were empty.
    fn is_feasible(&self, node: usize, shape: usize) -> bool {
        self.may_have(node, shape) && self.rooms.is_feasible(node, &self.shapes[shape])
    }

    /// Whether the labels of a node are as all bundles demand.
    fn may_have_all(&self, node: usize) -> bool {
        (0..self.shapes.len()).all(|shape| self.may_have(node, shape))
    }

    fn strict_pack(&mut self) -> Places {
        let mut row = Vec::new();
        let takes_all = |node| {
            row.clear();
            row.extend_from_slice(self.rooms.row(node));
            let mut bundles = self.order.iter();
            let fits = bundles.all(|bundle| place_in(&mut row, self.shape(*bundle)));
            fits.then(|| (left_of(&row), node))
        };
        let nodes = (0..self.rooms.len()).filter(|node| self.may_have_all(*node));
        let best = nodes.filter_map(takes_all).min();
        let bundles = self.bundles.len();
        match best {
            Some((_, node)) => Ok(self.order.iter().map(|bundle| (*bundle, node)).collect()),
            None => Err(Unplaced::OneNode { bundles }),
        }
    }

    /// The best node, then the best for what is left, and so on. How many bundles a node takes
    /// only shrinks while others are placed, so a node is looked at again only when it is the
    /// best by what it could take before (lazy greedy, Minoux 1978).
    fn pack(&mut self) -> Places {
        let mut scratch = Scratch::default();
        let mut left = self.order.clone();
        let rank = |node: usize| Rank {
            is_new: self.has[node] == 0,
            count: Reverse(0),
            left: 0,
            node,
        };
        let mut ranks: Vec<Rank> = (0..self.rooms.len()).map(rank).collect();
        for rank in &mut ranks {
            self.look(rank, &left, &mut scratch);
        }
        ranks.retain(|rank| rank.count.0 > 0);
        let mut heap: BinaryHeap<Reverse<Rank>> = ranks.into_iter().map(Reverse).collect();
        let mut places = Vec::with_capacity(self.bundles.len());
        while !left.is_empty() {
            let Some(Reverse(mut best)) = heap.pop() else {
                return self.best_fit();
            };
            self.look(&mut best, &left, &mut scratch);
            if best.count.0 == 0 {
                continue;
            }
            if heap.peek().is_some_and(|Reverse(next)| *next < best) {
                heap.push(Reverse(best));
                continue;
            }
            places.extend(scratch.taken.iter().map(|bundle| (*bundle, best.node)));
            left.retain(|bundle| !scratch.taken.contains(bundle));
        }
        Ok(places)
    }

    /// Sees which of the bundles that are left a node takes, the largest first.
    fn look(&self, rank: &mut Rank, left: &[usize], scratch: &mut Scratch) {
        scratch.row.clear();
        scratch.row.extend_from_slice(self.rooms.row(rank.node));
        scratch.taken.clear();
        let mut refused = usize::MAX;
        for bundle in left {
            // Where a bundle does not fit, its like does not fit either.
            let shape = self.shape_of[*bundle];
            if shape == refused {
                continue;
            }
            let may_have = self.may_have(rank.node, shape);
            match may_have && place_in(&mut scratch.row, &self.shapes[shape]) {
                true => scratch.taken.push(*bundle),
                false => refused = shape,
            }
        }
        rank.count = Reverse(scratch.taken.len());
        rank.left = left_of(&scratch.row);
    }

    fn strict_spread(&mut self) -> Places {
        let places = self.match_own_nodes(|node, shape| self.fits(node, shape));
        let mut bundles = 0..self.bundles.len();
        match bundles.find(|bundle| places.iter().all(|(placed, _)| placed != bundle)) {
            None => Ok(places),
            Some(first) => Err(Unplaced::OwnNode {
                bundle: self.bundles[first].number,
                bundles: self.bundles.len(),
                placed: places.len(),
            }),
        }
    }

    fn spread(&mut self) -> Places {
        let before = (self.has.clone(), self.rooms.clone());
        let mut places = self.match_own_nodes(|node, shape| self.fits(node, shape));
        let mut is_placed = vec![false; self.bundles.len()];
        for (bundle, node) in &places {
            is_placed[*bundle] = true;
            self.has[*node] += 1;
            let shape = &self.shapes[self.shape_of[*bundle]];
            self.rooms.place(*node, shape);
        }
        for bundle in self.order.clone() {
            if is_placed[bundle] {
                continue;
            }
            let emptiest = |rooms: &Rooms<N>, has: &[u32], node: usize| {
                (has[node], Reverse(rooms.remaining(node)))
            };
            let Some(node) = self.place_at_best(bundle, emptiest) else {
                (self.has, self.rooms) = before;
                return self.best_fit();
            };
            places.push((bundle, node));
        }
        Ok(places)
    }

    /// A node of its own for as many bundles as possible, none of them in use by the group.
    fn match_own_nodes(&self, fits: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
        let free: Vec<(Reverse<u64>, usize)> = (0..self.rooms.len())
            .filter(|node| self.has[*node] == 0)
            .map(|node| (Reverse(self.rooms.remaining(node)), node))
            .collect();
        // A bundle with as many candidates as there are bundles gets one, whatever others take,
        // so more need not be looked at.
        let enough = self.bundles.len();
        let candidates: Vec<Vec<usize>> = (0..self.shapes.len())
            .map(|shape| {
                let fitting = free.iter().filter(|(_, node)| fits(*node, shape));
                best(fitting.copied().collect(), enough)
            })
            .collect();
        let by_size = self
            .order
            .iter()
            .map(|bundle| &candidates[self.shape_of[*bundle]][..]);
        let matched = match_bundles(&by_size.collect::<Vec<_>>(), self.rooms.len());
        let pairs = self.order.iter().zip(matched);
        pairs
            .filter_map(|(bundle, node)| Some((*bundle, node?)))
            .collect()
    }

    /// The last resort: each bundle where it leaves least.
    fn best_fit(&mut self) -> Places {
        let mut places = Vec::with_capacity(self.bundles.len());
        for bundle in self.order.clone() {
            let node = self.place_at_best(bundle, |rooms, _, node| rooms.remaining(node));
            let number = self.bundles[bundle].number;
            places.push((bundle, node.ok_or(Unplaced::Bundle { bundle: number })?));
        }
        Ok(places)
    }

    /// Places a bundle at the node with the lowest rank, of those that it fits.
    fn place_at_best<K: Ord>(
        &mut self,
        bundle: usize,
        rank: impl Fn(&Rooms<N>, &[u32], usize) -> K,
    ) -> Option<usize> {
        let shape = self.shape_of[bundle];
        let fitting = (0..self.rooms.len()).filter(|node| self.fits(*node, shape));
        let node = fitting.min_by_key(|node| rank(&self.rooms, &self.has, *node))?;
        self.rooms.place(node, &self.shapes[shape]);
        self.has[node] += 1;
        Some(node)
    }

    /// What can never be, if that is certain.
    fn impossible<O: Offer + ?Sized>(&self, nodes: &[(N, &O)]) -> Option<Impossible> {
        let is_feasible = |node, shape| self.is_feasible(node, shape);
        let all = || 0..self.rooms.len();
        for (at, wanted) in self.bundles.iter().enumerate() {
            let shape = self.shape_of[at];
            if all().any(|node| is_feasible(node, shape)) {
                continue;
            }
            let bundle = wanted.number;
            let mut allowed = all().filter(|node| self.may_have(*node, shape));
            let first = allowed.next();
            let why = match first.map(|node| nodes[node].1.judge(wanted.request)) {
                Some(Fit::Infeasible(why)) => Some(why),
                Some(Fit::Available | Fit::Unavailable(_)) | None => None,
            };
            return Some(match wanted.selectors {
                [] => Impossible::Bundle {
                    bundle,
                    nodes: nodes.len(),
                    why,
                },
                selectors => Impossible::Labels {
                    bundle,
                    selectors: said(selectors),
                    of: nodes.len(),
                    nodes: usize::from(first.is_some()) + allowed.count(),
                    why,
                },
            });
        }
        let bundles = self.bundles.len();
        match self.kind {
            GroupKind::Pack | GroupKind::Spread => {
                (0..self.names.len()).find_map(|column| self.too_much(column))
            }
            GroupKind::StrictPack => {
                let holds_all = |node| {
                    let row: &[Cell] = self.rooms.row(node);
                    (0..row.len()).all(|column| self.may_hold_all(row[column], column))
                };
                let mut allowed = all().filter(|node| self.may_have_all(*node)).peekable();
                if allowed.peek().is_none() && !nodes.is_empty() {
                    return Some(Impossible::OneNodeByLabels { bundles });
                }
                (!allowed.any(holds_all)).then_some(Impossible::OneNode { bundles })
            }
            GroupKind::StrictSpread => {
                let nodes = self.match_own_nodes(is_feasible).len();
                (nodes < bundles).then_some(Impossible::OwnNode { bundles, nodes })
            }
        }
    }

    /// What the bundles ask for of a resource, in steps, each by itself.
    fn wants(&self, column: usize) -> impl Iterator<Item = u64> {
        let shapes = (0..self.bundles.len()).map(|bundle| self.shape(bundle));
        shapes
            .flatten()
            .filter_map(move |(at, steps)| (*at == column).then_some(*steps))
    }

    fn too_much(&self, column: usize) -> Option<Impossible> {
        let total = self.total(column);
        let needs: u128 = self.wants(column).map(u128::from).sum();
        let amount = |steps| Amount::from_steps(u64::try_from(steps).unwrap_or(u64::MAX));
        (needs > total).then(|| Impossible::Together {
            name: self.names[column].clone(),
            needs: amount(needs),
            total: amount(total),
        })
    }

    /// False if one node that has this much of a resource can never hold all bundles. Of units
    /// with ids, two shares above a half need two.
    fn may_hold_all(&self, cell: Cell, column: usize) -> bool {
        const UNIT: u64 = Amount::STEPS_PER_UNIT;
        let sum: u128 = self.wants(column).map(u128::from).sum();
        let large = self.wants(column).filter(|steps| *steps > UNIT / 2);
        let alone: u128 = large.map(|steps| u128::from(steps.div_ceil(UNIT))).sum();
        let alone = alone * u128::from(UNIT);
        let capacity = u128::from(cell.capacity());
        sum <= capacity && (!cell.is_indexed() || alone <= capacity)
    }
}

/// How good a node is for packing: the least is the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Whether the group has nothing there yet.
    is_new: bool,
    /// How many bundles it takes.
    count: Reverse<usize>,
    /// What is left of it then.
    left: u64,
    node: usize,
}

/// Space for looking at a node, used again and again.
#[derive(Default)]
struct Scratch {
    row: Vec<Cell>,
    /// The bundles that the node takes.
    taken: Vec<usize>,
}

/// Selectors as they are typed.
fn said(selectors: &[Selector]) -> String {
    let texts: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    texts.join(" ; ")
}

fn shape(names: &[&ResourceName], bundle: &Request) -> Shape {
    let column = |name| names.binary_search(&name).expect("is one of the names");
    let amounts = bundle.amounts().iter();
    amounts
        .map(|(name, amount)| (column(name), amount.steps()))
        .collect()
}

/// The nodes with the least rank, in order, of which at most so many are needed.
fn best<K: Ord + Copy>(mut nodes: Vec<(K, usize)>, enough: usize) -> Vec<usize> {
    if nodes.len() > enough {
        nodes.select_nth_unstable(enough);
        nodes.truncate(enough);
    }
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, node)| node).collect()
}
