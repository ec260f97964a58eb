//! `wasmrun login`: a certificate of ours, with which nodes of other machines let us in.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use wasmrun_client::identity::{self, Identity, LoginError, Role};

use crate::args::{Global, Login, Output};
use crate::daemon::cluster;
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::remote;

/// A day, in which the lifetimes of certificates are told.
const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn login(login: &Login, global: &Global, printer: &Printer) -> CommandResult {
    let folder = remote::identity(global)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("there can be no sockets")?;
    if login.renew {
        let renewed = runtime.block_on(identity::renew(&folder)).map_err(failed)?;
        return tell(&renewed, &folder, None, printer);
    }
    let token = match &login.token {
        Some(token) => Some(token.clone()),
        None => cluster::token_from_env()?,
    };
    let token = token.ok_or_else(|| {
        Failure::usage(
            "a token is needed: an operator makes one with `wasmrun node token create --client`",
        )
    })?;
    let identity = runtime.block_on(identity::login(&token, &folder));
    let identity = identity.map_err(failed)?;
    let address = token.addresses.first().map(String::as_str);
    tell(&identity, &folder, address, printer)
}

fn tell(
    identity: &Identity,
    folder: &std::path::Path,
    address: Option<&str>,
    printer: &Printer,
) -> CommandResult {
    let Role::Client(client) = identity.role() else {
        return Err(failed(LoginError::NotClient));
    };
    let (cluster, days) = (identity.cluster(), days(identity));
    if printer.output == Output::Json {
        return printer.json(&json!({
            "version": 1, "client": client.to_string(), "cluster": cluster.to_string(),
            "valid_until_s": identity.valid_until_s(), "folder": folder,
        }));
    }
    printer.result(format_args!(
        "client {client} of cluster {cluster}, for {days} days, in {}",
        folder.display()
    ))?;
    if let Some(address) = address {
        printer.note(format_args!(
            "any node lets you in now, such as: wasmrun --address {address} status"
        ));
    }
    Ok(())
}

/// For how many days an identity is still of use, the last one counted.
pub fn days(identity: &Identity) -> u64 {
    identity::time_left(identity)
        .as_secs()
        .div_ceil(DAY.as_secs())
}

fn failed(error: LoginError) -> Failure {
    let exit = match &error {
        LoginError::Join(_) => Exit::Unreachable,
        _ => Exit::Usage,
    };
    Failure::new(exit, error)
}
