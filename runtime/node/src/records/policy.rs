//! What tasks and actors get that ask for nothing, and the most that one may ask for.
//!
//! Owns the node's own settings of both, and the checks against them. Must not: know what the node has:
//! what it can never serve the scheduler refuses.

use std::time::Duration;

use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName, ResourceSet};
use wasmrun_model::units;

/// The CPU of a task that says nothing.
const TASK_CPUS: Amount = Amount::units(1);
/// The memory of a task that says nothing: 256 MiB.
const TASK_MEMORY: Amount = Amount::units(256 << 20);
/// The memory of an actor that says nothing: 64 MiB. Unlike tasks, actors hold no CPU unless they say so: most
/// of them wait most of the time.
const ACTOR_MEMORY: Amount = Amount::units(64 << 20);

/// How many tasks, calls and actors of one task may be in flight.
const MOST_NESTED: u64 = 1_000_000;

/// What an operator says about both; what is not said is as usual. The default says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// What a task gets of the resources that it says nothing about: CPU 1 and 256 MiB of memory as usual.
    pub task: Asked,
    /// What an actor gets: 64 MiB of memory as usual.
    pub actor: Asked,
    /// How long a task may run that says nothing; as long as it likes as usual.
    pub task_time: Option<Duration>,
    /// The most that one task or actor may ask for, of any resource; whatever the node has as usual.
    pub most: Asked,
    /// The most time that a task, a constructor or a call may ask for, and what those get that ask for none.
    pub most_time: Option<Duration>,
    /// The most tasks, calls and actors that one attempt of a task or call may have started and not seen
    /// end; 1,000,000 as usual.
    pub most_nested: Option<u64>,
}

/// The same with nothing left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    task: ResourceSet,
    actor: ResourceSet,
    task_time: Option<Duration>,
    most: Asked,
    most_time: Option<Duration>,
    most_nested: u64,
}

/// A default is above its maximum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a default is more than may be asked for: {what} {default} and at most {most} ({flag}); lower the one or \
     raise the other"
)]
pub struct PolicyError {
    what: String,
    default: String,
    most: String,
    flag: &'static str,
}

/// More than the node gives one task or actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} limit of {most} for one {who} on this node: {asked} was asked for; ask for less, or start the node \
     with {flag}{asked}"
)]
pub struct TooMuch {
    who: &'static str,
    what: String,
    asked: String,
    most: String,
    /// With what stands before the amount.
    flag: String,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(&PolicyConfig::default()).expect("the usual has no maxima")
    }
}

impl Policy {
    /// What follows from what is said. A usual default above a maximum is lowered to that.
    ///
    /// # Errors
    /// When a default that is said is above its maximum.
    pub fn new(config: &PolicyConfig) -> Result<Self, PolicyError> {
        let usual_task = ResourceSet::new()
            .with(ResourceName::CPU, TASK_CPUS)
            .with(ResourceName::MEMORY, TASK_MEMORY);
        let usual_actor = ResourceSet::new().with(ResourceName::MEMORY, ACTOR_MEMORY);
        if let (Some(default), Some(most)) = (config.task_time, config.most_time)
            && default > most
        {
            return Err(PolicyError {
                what: "time".into(),
                default: time(default),
                most: time(most),
                flag: TIME_FLAG,
            });
        }
        Ok(Self {
            task: defaults(usual_task, &config.task, &config.most)?,
            actor: defaults(usual_actor, &config.actor, &config.most)?,
            task_time: config.task_time.or(config.most_time),
            most: config.most.clone(),
            most_time: config.most_time,
            most_nested: config.most_nested.unwrap_or(MOST_NESTED),
        })
    }

    /// The most that one attempt may have started and not seen end.
    pub(crate) fn most_nested(&self) -> u64 {
        self.most_nested
    }

    /// What a task gets of the resources that it says nothing about.
    pub(crate) fn task(&self) -> ResourceSet {
        self.task.clone()
    }

    /// What an actor gets of those.
    pub(crate) fn actor(&self) -> ResourceSet {
        self.actor.clone()
    }

    /// Whether an actor asks for nothing that says which node would be a good one: no more than the memory of those that
    /// say nothing, and nothing else.
    pub(crate) fn is_idle_actor(&self, asked: &ResourceSet) -> bool {
        let mut usual = ResourceSet::new();
        usual.set(ResourceName::MEMORY, self.actor.get(&ResourceName::MEMORY));
        asked.is_subset(&usual)
    }

    /// How long a task may run that asks for so much.
    pub(crate) fn task_time(&self, asked: Option<Duration>) -> Result<Option<Duration>, TooMuch> {
        self.check_time("task", asked)?;
        Ok(asked.or(self.task_time))
    }

    /// How long a constructor or call may run that asks for so much.
    pub(crate) fn actor_time(
        &self,
        who: &'static str,
        asked: Option<Duration>,
    ) -> Result<Option<Duration>, TooMuch> {
        self.check_time(who, asked)?;
        Ok(asked.or(self.most_time))
    }

    fn check_time(&self, who: &'static str, asked: Option<Duration>) -> Result<(), TooMuch> {
        match (asked, self.most_time) {
            (Some(asked), Some(most)) if asked > most => Err(TooMuch {
                who,
                what: "time".into(),
                asked: time(asked),
                most: time(most),
                flag: format!("{TIME_FLAG} "),
            }),
            _ => Ok(()),
        }
    }

    /// Whether one may ask for so much.
    pub(crate) fn check(&self, who: &'static str, asked: &ResourceSet) -> Result<(), TooMuch> {
        let most = self.most.0.iter();
        let mut above = most.filter(|(name, most)| asked.get(name) > **most);
        match above.next() {
            None => Ok(()),
            Some((name, most)) => Err(TooMuch {
                who,
                what: name.to_string(),
                asked: asked.get(name).display_for(name).to_string(),
                most: most.display_for(name).to_string(),
                flag: match flag_of(name) {
                    OTHERS => format!("{OTHERS} {name}="),
                    flag => format!("{flag} "),
                },
            }),
        }
    }
}

/// The flag of the most time.
const TIME_FLAG: &str = "--max-time-limit";

fn time(duration: Duration) -> String {
    units::milliseconds(units::ms(duration))
}

/// The flag of maxima of resources that have none of their own.
const OTHERS: &str = "--max-resource";

/// The flag of a maximum.
fn flag_of(name: &ResourceName) -> &'static str {
    match name {
        name if *name == ResourceName::CPU => "--max-cpus",
        name if *name == ResourceName::GPU => "--max-gpus",
        name if name.is_memory() => "--max-memory",
        _ => OTHERS,
    }
}

fn defaults(usual: ResourceSet, said: &Asked, most: &Asked) -> Result<ResourceSet, PolicyError> {
    let mut set = usual;
    for (name, most) in &most.0 {
        set.set(name.clone(), set.get(name).min(*most));
    }
    for (name, default) in &said.0 {
        match most.0.get(name) {
            Some(most) if default > most => {
                return Err(PolicyError {
                    what: name.to_string(),
                    default: default.display_for(name).to_string(),
                    most: most.display_for(name).to_string(),
                    flag: flag_of(name),
                });
            }
            _ => set.set(name.clone(), *default),
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(amounts: &[(ResourceName, u32)]) -> Asked {
        let amounts = amounts.iter();
        Asked(
            amounts
                .map(|(name, n)| (name.clone(), Amount::units(*n)))
                .collect(),
        )
    }

    #[test]
    fn who_says_nothing_gets_what_is_usual() {
        let policy = Policy::default();
        let (cpu, memory) = (ResourceName::CPU, ResourceName::MEMORY);
        let task = ResourceSet::new()
            .with(cpu, Amount::units(1))
            .with(memory.clone(), Amount::units(256 << 20));
        assert_eq!(policy.task(), task);
        // An actor holds no CPU: most of them wait most of the time.
        let actor = ResourceSet::new().with(memory, Amount::units(64 << 20));
        assert_eq!(policy.actor(), actor);
        assert_eq!(policy.task_time(None), Ok(None));
        assert_eq!(policy.actor_time("call", None), Ok(None));
    }

    #[test]
    fn an_actor_is_idle_that_asks_for_no_more_than_the_usual_memory() {
        let config = PolicyConfig {
            actor: asked(&[(ResourceName::MEMORY, 128 << 20)]),
            ..PolicyConfig::default()
        };
        let memory =
            |mib: u32| ResourceSet::new().with(ResourceName::MEMORY, Amount::units(mib << 20));
        for (policy, most) in [
            (Policy::default(), 64),
            (Policy::new(&config).unwrap(), 128),
        ] {
            assert!(policy.is_idle_actor(&policy.actor()));
            assert!(policy.is_idle_actor(&ResourceSet::new()));
            assert!(policy.is_idle_actor(&memory(most)));
            assert!(!policy.is_idle_actor(&memory(most + 1)));
            let cpu = memory(1).with(ResourceName::CPU, Amount::from_steps(1));
            assert!(!policy.is_idle_actor(&cpu));
        }
    }

    #[test]
    fn what_is_usual_stays_below_the_maxima() {
        let config = PolicyConfig {
            most: asked(&[(ResourceName::MEMORY, 32 << 20)]),
            most_time: Some(Duration::from_secs(5)),
            ..PolicyConfig::default()
        };
        let policy = Policy::new(&config).unwrap();
        for set in [policy.task(), policy.actor()] {
            assert_eq!(set.get(&ResourceName::MEMORY).whole_units(), 32 << 20);
        }
        assert_eq!(policy.task_time(None), Ok(config.most_time));
        let second = Some(Duration::from_secs(1));
        assert_eq!(policy.actor_time("call", second), Ok(second));
        let error = policy.task_time(Some(Duration::from_secs(6))).unwrap_err();
        assert!(error.to_string().contains("--max-time-limit"), "{error}");
        let large = ResourceSet::new().with(ResourceName::MEMORY, Amount::units(33 << 20));
        let error = policy.check("actor", &large).unwrap_err();
        assert_eq!(
            error.to_string(),
            "memory limit of 32MiB for one actor on this node: 33MiB was asked for; ask for less, or start \
             the node with --max-memory 33MiB"
        );
    }

    #[test]
    fn a_default_above_its_maximum_is_an_error() {
        let config = PolicyConfig {
            task: asked(&[(ResourceName::CPU, 4)]),
            most: asked(&[(ResourceName::CPU, 2)]),
            ..PolicyConfig::default()
        };
        let error = Policy::new(&config).unwrap_err().to_string();
        assert!(
            error.contains("CPU 4 and at most 2 (--max-cpus)"),
            "{error}"
        );
    }
}
