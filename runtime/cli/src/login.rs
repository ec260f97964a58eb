//! `wasmrun login`: a certificate of ours, with which nodes of other machines let us in.

use std::path::Path;

use anyhow::Context;
use serde_json::json;
use wasmrun_client::identity::{self, Identity, LoginError, Role};
use wasmrun_oidc::{Device, Offer, ProviderError};

use crate::args::{Global, Login, Output};
use crate::daemon::cluster;
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::remote;

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
    if let Some(head) = &login.oidc {
        let person = as_person(login, head, &folder, printer);
        let identity = runtime.block_on(person)?;
        return tell(&identity, &folder, Some(head.as_str()), printer);
    }
    let token = match &login.token {
        Some(token) => Some(token.clone()),
        None => cluster::token_from_env()?,
    };
    let token = token.ok_or_else(|| {
        Failure::usage(
            "a token is needed: an operator makes one with `wasmrun node token create --client`; where people log in \
             themselves, use --oidc HOST:PORT",
        )
    })?;
    let identity = runtime.block_on(identity::login(&token, &folder));
    let identity = identity.map_err(failed)?;
    let address = token.addresses.first().map(String::as_str);
    tell(&identity, &folder, address, printer)
}

/// Has somebody log in at the provider of a head, in a browser.
async fn as_person(
    login: &Login,
    head: &str,
    folder: &Path,
    printer: &Printer,
) -> Result<Identity, Failure> {
    let is_known = login.authority.is_some() || matches!(identity::load(folder), Ok(Some(_)));
    let begun = identity::begin_login(head, login.authority, folder).await;
    let begun = begun.map_err(failed)?;
    if !is_known {
        let authority = begun.authority();
        printer.note(format_args!(
            "{head} is believed to be the head, as nothing here knows its cluster yet: its log says whether its authority is \
             {authority}"
        ));
    }
    let offer = Offer::parse(begun.offer()).map_err(unprovided)?;
    let device = Device::begin(offer, &begun.nonce()).await;
    let device = device.map_err(unprovided)?;
    // Not as a note, which --quiet would take away.
    printer.stderr(format_args!(
        "open {} and enter {}",
        device.page, device.code
    ));
    let id_token = device.id_token().await.map_err(unprovided)?;
    let identity = identity::finish_login(begun, id_token, head, folder).await;
    identity.map_err(failed)
}

fn tell(
    identity: &Identity,
    folder: &Path,
    address: Option<&str>,
    printer: &Printer,
) -> CommandResult {
    let Role::Client(client) = identity.role() else {
        return Err(failed(LoginError::NotClient));
    };
    let cluster = identity.cluster();
    let time = match remote::days(identity) {
        days @ 2.. => format!("{days} days"),
        _ => format!("{} hours", remote::hours(identity)),
    };
    if printer.output == Output::Json {
        return printer.json(&json!({
            "version": 1, "client": client.to_string(), "cluster": cluster.to_string(),
            "valid_until_s": identity.valid_until_s(), "folder": folder,
        }));
    }
    printer.result(format_args!(
        "client {client} of cluster {cluster}, for {time}, in {}",
        folder.display()
    ))?;
    if let Some(address) = address {
        printer.note(format_args!(
            "any node lets you in now, such as: wasmrun --address {address} status"
        ));
    }
    Ok(())
}

fn unprovided(error: ProviderError) -> Failure {
    let exit = match &error {
        ProviderError::Unreachable { .. } => Exit::Unreachable,
        _ => Exit::Usage,
    };
    Failure::new(exit, error)
}

fn failed(error: LoginError) -> Failure {
    let exit = match &error {
        LoginError::Join(_) => Exit::Unreachable,
        _ => Exit::Usage,
    };
    Failure::new(exit, error)
}
