//! The node that runs already: finding it, who we are to it, and what its refusals mean for us.

use std::path::PathBuf;
use std::time::Duration;

use wasmrun_client::blocking::Client;
use wasmrun_client::identity::{self, Identity};
use wasmrun_client::wire::{Address, RefusalKind};
use wasmrun_client::{ConnectError, Error, GetError};
use wasmrun_model::fairness::TenantName;

use crate::args::Global;
use crate::fail::{Exit, Failure, exit_of, with_frames};
use crate::printer::Printer;

/// A day, in which the lifetimes of certificates are told.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// For how many days before its end a certificate is worth a note.
const NOTED_DAYS: u64 = 14;
/// The same of one that a person has logged in for.
const NOTED_HOURS: u64 = 2;

/// Where the node is, or is to be.
pub fn address(global: &Global) -> Result<Address, Failure> {
    match &global.address {
        Some(address) => Ok(address.clone()),
        None => Ok(wasmrun_client::default_address()?),
    }
}

/// Where our certificate is, or is to be.
pub fn identity(global: &Global) -> Result<PathBuf, Failure> {
    let folder = global.identity.clone().or_else(identity::default_identity);
    folder.ok_or_else(|| {
        Failure::usage(
            "there is no folder for a certificate: neither HOME nor XDG_CONFIG_HOME is set; name one with --identity",
        )
    })
}

/// Begins a session. `job`: what people call all that is submitted through it; what its first task is called if empty.
fn session(
    address: &Address,
    tenant: TenantName,
    job: &str,
    identity: Option<Identity>,
) -> Result<Client, ConnectError> {
    Client::connect_for(address, tenant, identity, job)
}

fn open(
    global: &Global,
    tenant: &TenantName,
    job: &str,
) -> Result<Result<Client, ConnectError>, Failure> {
    let (address, tenant) = (address(global)?, tenant.clone());
    let Address::Network(_) = address else {
        return Ok(session(&address, tenant, job, None));
    };
    let folder = identity(global)?;
    let identity = match identity::load(&folder) {
        Ok(Some(identity)) => identity,
        Ok(None) => return Ok(Err(ConnectError::NoIdentity { address })),
        Err(error) => return Ok(Err(ConnectError::Identity { folder, error })),
    };
    let (days, hours) = (days(&identity), hours(&identity));
    if let Some(head) = identity::login_head(&folder) {
        if hours < NOTED_HOURS {
            Printer::new(global).note(format_args!(
                "the login ends within {hours} hours: `wasmrun login --oidc {head}` begins another one"
            ));
        }
    } else if days < NOTED_DAYS {
        Printer::new(global).note(format_args!(
            "the certificate in {} ends in {days} days: `wasmrun login --renew` gets a further one",
            folder.display()
        ));
    }
    Ok(session(&address, tenant, job, Some(identity)))
}

/// The running node.
///
/// # Errors
/// When there is none.
pub fn connect(global: &Global, tenant: &TenantName) -> Result<Client, Failure> {
    connect_for(global, tenant, "")
}

/// The running node, for a job of this name.
///
/// # Errors
/// When there is none.
pub fn connect_for(global: &Global, tenant: &TenantName, job: &str) -> Result<Client, Failure> {
    open(global, tenant, job)?.map_err(|error| Failure::new(Exit::Unreachable, error))
}

/// The running node, if there is one, for a job of this name. One that is named must be there.
pub fn find(global: &Global, tenant: &TenantName, job: &str) -> Result<Option<Client>, Failure> {
    match open(global, tenant, job)? {
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
        Error::Closed | Error::Ended { .. } | Error::Undecided { .. } | Error::Unexpected(_) => {
            Exit::Unreachable
        }
        Error::TooManyNames { .. }
        | Error::TooNew { .. }
        | Error::OtherTypes(_)
        | Error::Frame(_)
        | Error::Source(_) => Exit::Usage,
    };
    Failure::new(exit, error)
}

/// The command's failure where an answer does not have what was asked for.
pub fn unexpected(wanted: &str) -> Failure {
    failed(Error::Unexpected(format!("it has no {wanted}")))
}

/// The command's failure where there is no value.
pub fn no_value(error: GetError) -> Failure {
    match error {
        GetError::Failed { error, .. } => {
            let exit = match exit_of(&error) {
                Exit::Program(_) => Exit::TaskFailed,
                exit => exit,
            };
            Failure::new(
                exit,
                anyhow::anyhow!(with_frames(error.to_string(), &error)),
            )
        }
        GetError::TimedOut => Failure::new(Exit::TimedOut, error),
        GetError::Request(error) => failed(error),
    }
}

/// For how many days an identity is still of use, the last one counted.
pub fn days(identity: &Identity) -> u64 {
    identity::time_left(identity)
        .as_secs()
        .div_ceil(DAY.as_secs())
}

/// For how many hours, likewise.
pub fn hours(identity: &Identity) -> u64 {
    identity::time_left(identity).as_secs().div_ceil(60 * 60)
}
