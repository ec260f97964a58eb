//! What a task or an actor asks for, in place of what its attribute declares.
//!
//! Owns the settings and how they are set. The host checks the amounts: they are texts here.

use std::fmt::Display;
use std::time::Duration;

/// What a task asks for. Made by `f::options()`, which has all of its setters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSettings {
    /// Amounts by resource, as decimal text.
    pub resources: Vec<(String, String)>,
    /// How often it is tried again.
    pub retries: Option<u32>,
    /// Whether it is after an error that its function returns, too.
    pub retry_on_error: Option<bool>,
    /// How long one attempt may take.
    pub time_limit: Option<Duration>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// What labels the node must have.
    pub label_selector: Option<String>,
    /// How a node is chosen.
    pub strategy: Option<String>,
}

/// What an actor asks for. Made by `C::options()`, which has all of its setters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActorSettings {
    /// Amounts by resource, as decimal text.
    pub resources: Vec<(String, String)>,
    /// A name by which others find it.
    pub name: Option<String>,
    /// How often it is started again.
    pub restarts: Option<u32>,
    /// How often a call that was under way is made again.
    pub call_retries: Option<u32>,
    /// What labels the node must have.
    pub label_selector: Option<String>,
    /// How a node is chosen.
    pub strategy: Option<String>,
    /// How long its constructor may take.
    pub time_limit: Option<Duration>,
}

/// Puts an amount in place of an earlier one of the same resource.
pub fn set(resources: &mut Vec<(String, String)>, name: &str, amount: &dyn Display) {
    let amount = amount.to_string();
    match resources.iter_mut().find(|(other, _)| other == name) {
        Some((_, earlier)) => *earlier = amount,
        None => resources.push((name.to_owned(), amount)),
    }
}

/// The setters that tasks and actors share, for a generated type with a `settings` field.
#[doc(hidden)]
#[macro_export]
macro_rules! __common_setters {
    () => {
        /// So much of one resource. The amount is a whole number or decimal text with at most four
        /// digits after the point; `memory` may have a unit (`"64MiB"`).
        pub fn resource(mut self, name: &str, amount: impl ::std::fmt::Display) -> Self {
            $crate::__private::set_resource(&mut self.settings.resources, name, &amount);
            self
        }

        /// So many cores: `2` or `"0.5"`.
        pub fn cpus(self, amount: impl ::std::fmt::Display) -> Self {
            self.resource("CPU", amount)
        }

        /// So many devices: `1` or `"0.25"`.
        pub fn gpus(self, amount: impl ::std::fmt::Display) -> Self {
            self.resource("GPU", amount)
        }

        /// So much memory: bytes, or text such as `"64MiB"`.
        pub fn memory(self, amount: impl ::std::fmt::Display) -> Self {
            self.resource("memory", amount)
        }

        /// What labels the node must have, as on the command line: `"zone=a,!spot"`.
        pub fn label_selector(
            mut self,
            selector: impl ::core::convert::Into<::std::string::String>,
        ) -> Self {
            self.settings.label_selector = ::core::option::Option::Some(selector.into());
            self
        }

        /// How the node is chosen, as on the command line: `"spread"`.
        pub fn strategy(
            mut self,
            strategy: impl ::core::convert::Into<::std::string::String>,
        ) -> Self {
            self.settings.strategy = ::core::option::Option::Some(strategy.into());
            self
        }
    };
}

/// The setters of a task's options.
#[doc(hidden)]
#[macro_export]
macro_rules! __task_setters {
    ($options:ident) => {
        impl $options {
            $crate::__common_setters!();

            /// How often it is tried again after a trap, an exit code or a limit.
            pub fn retries(mut self, count: u32) -> Self {
                self.settings.retries = ::core::option::Option::Some(count);
                self
            }

            /// Whether it is tried again, too, when its function returns an error: then that is its result only if the
            /// last attempt ends so.
            pub fn retry_on_error(mut self, is_failure: bool) -> Self {
                self.settings.retry_on_error = ::core::option::Option::Some(is_failure);
                self
            }

            /// How long one attempt may take, in whole milliseconds (rounded up).
            pub fn time_limit(mut self, limit: ::std::time::Duration) -> Self {
                self.settings.time_limit = ::core::option::Option::Some(limit);
                self
            }

            /// Higher goes first among the tasks of the tenant.
            pub fn priority(mut self, priority: i32) -> Self {
                self.settings.priority = ::core::option::Option::Some(priority);
                self
            }
        }
    };
}

/// The setters of an actor's options.
#[doc(hidden)]
#[macro_export]
macro_rules! __actor_setters {
    ($options:ident) => {
        impl $options {
            $crate::__common_setters!();

            /// A name by which others of the tenant find it.
            pub fn name(mut self, name: impl ::core::convert::Into<::std::string::String>) -> Self {
                self.settings.name = ::core::option::Option::Some(name.into());
                self
            }

            /// How often it is started again after it died.
            pub fn restarts(mut self, count: u32) -> Self {
                self.settings.restarts = ::core::option::Option::Some(count);
                self
            }

            /// How long its constructor may take, in whole milliseconds (rounded up). For calls see
            /// `LimitCalls`.
            pub fn time_limit(mut self, limit: ::std::time::Duration) -> Self {
                self.settings.time_limit = ::core::option::Option::Some(limit);
                self
            }

            /// How often a call that was under way when it died is made again.
            pub fn call_retries(mut self, count: u32) -> Self {
                self.settings.call_retries = ::core::option::Option::Some(count);
                self
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_last_amount_counts() {
        let mut resources = Vec::new();
        super::set(&mut resources, "CPU", &1);
        super::set(&mut resources, "memory", &"64MiB");
        super::set(&mut resources, "CPU", &"0.5");
        let pair = |name: &str, amount: &str| (name.to_owned(), amount.to_owned());
        assert_eq!(resources, [pair("CPU", "0.5"), pair("memory", "64MiB")]);
    }
}
