//! The node that runs already: finding it, and what its refusals mean for us.

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Address, RefusalKind};
use wasmrun_client::{ConnectError, Error, GetError};
use wasmrun_model::fairness::TenantName;

use crate::args::Global;
use crate::fail::{Exit, Failure};
use crate::submit::exit_of;

/// Where the node is, or is to be.
pub fn address(global: &Global) -> Result<Address, Failure> {
    match &global.address {
        Some(address) => Ok(address.clone()),
        None => Ok(wasmrun_client::default_address()?),
    }
}

/// The running node.
///
/// # Errors
/// When there is none.
pub fn connect(global: &Global, tenant: &TenantName) -> Result<Client, Failure> {
    let client = Client::connect(&address(global)?, tenant.clone());
    client.map_err(|error| Failure::new(Exit::Unreachable, error))
}

/// The running node, if there is one. One that is named must be there.
pub fn find(global: &Global, tenant: &TenantName) -> Result<Option<Client>, Failure> {
    match Client::connect(&address(global)?, tenant.clone()) {
        Ok(client) => Ok(Some(client)),
        Err(ConnectError::NotRunning { .. }) if global.address.is_none() => Ok(None),
        Err(error) => Err(Failure::new(Exit::Unreachable, error)),
    }
}

/// The command's failure for a request's.
pub fn failed(error: Error) -> Failure {
    let exit = match &error {
        Error::Refused(why) => match why.kind {
            RefusalKind::Usage
            | RefusalKind::NotFound
            | RefusalKind::Ambiguous
            | RefusalKind::Tenant => Exit::Usage,
            RefusalKind::Unschedulable => Exit::Unschedulable,
            RefusalKind::Stopping => Exit::Unreachable,
            RefusalKind::Full => Exit::TaskFailed,
        },
        Error::Closed | Error::Undecided { .. } | Error::Unexpected(_) => Exit::Unreachable,
        Error::TooLarge { .. } | Error::Frame(_) | Error::Source(_) => Exit::Usage,
    };
    Failure::new(exit, error)
}

/// The command's failure where there is no value.
pub fn no_value(error: GetError) -> Failure {
    match error {
        GetError::Failed { error, .. } => {
            let exit = match exit_of(&error) {
                Exit::Program(_) => Exit::TaskFailed,
                exit => exit,
            };
            Failure::new(exit, error)
        }
        GetError::TimedOut => Failure::new(Exit::TimedOut, error),
        GetError::Request(error) => failed(error),
    }
}
