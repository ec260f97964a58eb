//! Random events.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::scheduler::fuzz;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes(data in vec(any::<u8>(), 0..3_000)) {
        fuzz(&data);
    }
}
