//! Rows of a trace: what lies on one of them either follows each other or lies within each other.
//!
//! A guest thread goes on with others while one waits, and calls are within the life of their actor. So one thread or
//! actor may need more than one row.

/// The rows of one thread or actor. Times are put in by their beginnings, in order.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Vec<Open>>);

/// Something that has begun on a row.
#[derive(Debug)]
struct Open {
    end_us: u64,
    /// Whether others may lie within it.
    is_holder: bool,
}

/// What is to lie on a row.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start_us: u64,
    pub end_us: u64,
    /// From where on others may lie within it; nothing does if not given.
    pub holds_from_us: Option<u64>,
}

impl Lanes {
    /// The row on which there is room, the first one that fits.
    pub fn place(&mut self, span: Span) -> usize {
        let fits = |lane: &mut Vec<Open>| {
            while lane.last().is_some_and(|it| it.end_us <= span.start_us) {
                lane.pop();
            }
            lane.last()
                .is_none_or(|it| it.is_holder && span.end_us <= it.end_us)
        };
        let at = match self.0.iter_mut().position(fits) {
            Some(at) => at,
            None => {
                self.0.push(Vec::new());
                self.0.len() - 1
            }
        };
        let lane = &mut self.0[at];
        lane.push(Open {
            end_us: span.end_us,
            is_holder: span.holds_from_us.is_some(),
        });
        if let Some(from) = span.holds_from_us.filter(|from| *from > span.start_us) {
            lane.push(Open {
                end_us: from,
                is_holder: false,
            });
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_us: u64, end_us: u64) -> Span {
        Span {
            start_us,
            end_us,
            holds_from_us: None,
        }
    }

    #[test]
    fn what_overlaps_gets_a_row_of_its_own() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.place(span(0, 10)), 0);
        // Within it, and not part of it.
        assert_eq!(lanes.place(span(2, 5)), 1);
        assert_eq!(lanes.place(span(6, 12)), 1);
        assert_eq!(lanes.place(span(10, 20)), 0);
        assert_eq!(lanes.place(span(11, 12)), 2);
    }

    #[test]
    fn calls_lie_within_the_life_of_their_actor() {
        let mut lanes = Lanes::default();
        let life = Span {
            holds_from_us: Some(10),
            ..span(0, 100)
        };
        assert_eq!(lanes.place(life), 0);
        // By another node's clock, it was called before it had been made.
        assert_eq!(lanes.place(span(5, 20)), 1);
        assert_eq!(lanes.place(span(30, 40)), 0);
        assert_eq!(lanes.place(span(40, 60)), 0);
        assert_eq!(lanes.place(span(90, 110)), 1);
    }
}
