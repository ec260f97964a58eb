//! Which minor version each message came with, and that their order never changes.

use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use wasmrun_model::group;
use wasmrun_model::scheduler::Message;

use super::*;
use crate::peers::{ask, protocol as words};

/// Is asked to be read as an enum, and keeps the names of its variants.
struct Reader<'a>(&'a mut Option<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = Some(variants);
        Err(Error::custom("the names are all that is wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("it is no enum"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The variants of this enum are these, in this order.
#[track_caller]
fn holds<T: DeserializeOwned>(names: &str) {
    let mut found = None;
    assert!(T::deserialize(Reader(&mut found)).is_err());
    let found = found.expect("an enum").join(" ");
    assert_eq!(
        found, names,
        "a variant's place is its number on the wire: see docs/decisions/versions.md"
    );
}

/// A new one goes to the end, here as there.
#[test]
fn variants_keep_their_places() {
    holds::<OneWay>("Work View");
    holds::<Request>("Work Control Watch Clock SecretKey");
    holds::<Response>("Work Control Watched NotMember NoStore Clock SecretKey");
    holds::<peers::OneWay>(
        "Scheduler Place Settled Output Want Made Release Holding Drop DriverGone WantActor Stands Born \
         Kill State Cancel Find Found Called Replay CalledAgain Lend Lent LendKept LeftBehind EndLeft \
         BreakWait Outlives Keeps Left",
    );
    holds::<peers::Request>("Where Ask Source Hold Waits MoveAway Keep Bring Standstill");
    holds::<peers::Response>("Made Answered Source Holds Waits Moved Standstill");
    holds::<peers::Bulk>("Object Module State");
    holds::<words::Whose>("Actor Held Gone");
    holds::<words::Deed>("Task Create Call");
    holds::<words::Where>("At Away Dead");
    holds::<words::CarriedArgument>("Value Object");
    holds::<words::Named>("Object Actor");
    holds::<words::Body>("Inline At");
    holds::<words::Moved>("Done Unknown Refused");
    holds::<ask::Question>(
        "List Describe Cancel Logs Group RemoveGroup Object Delete Things CancelJob LogsOf SetResource Scheduler \
         Holders Given",
    );
    holds::<ask::Answer>(
        "Rows Task Outputs Done Refused NotServed Group Object Things Count OutputsOf Text Holders Given",
    );
    holds::<Message>("Place Placed Settled Withdraw Group WantGroup GroupStands");
    holds::<group::GroupMessage>("Request Answer");
    holds::<group::GroupRequest>("Prepare Commit Remove Claim");
    holds::<group::GroupAnswer>("Prepared Refused Committed Gone Removed Holds");
    holds::<group::Refusal>("Unavailable Infeasible Stale Ending");
    holds::<gossip::Message>("News Compare Digest Repair");
    holds::<remote::Request>("Get Range Change KeepAlive Revision");
    holds::<remote::Response>("Entry Page Answer Alive Revision Failed");
}
