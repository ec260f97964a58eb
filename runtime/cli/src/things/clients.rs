//! `client`: who has a certificate of the cluster, and taking it back. `whoami`: who we are to a node.

use serde_json::json;
use wasmrun_client::Error;
use wasmrun_client::wire::{Request, Response, What, WhoAmI};
use wasmrun_model::access::Access;
use wasmrun_model::fairness::TenantName;

use crate::args::{ClientCommand, Global, Output};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

/// `client`.
pub fn client(command: &ClientCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        ClientCommand::List { filter } => {
            let filters = filter.iter().map(|it| (it.0.clone(), it.1.clone()));
            super::show(What::Access, filters.collect(), global, printer)
        }
        ClientCommand::Revoke { client } => revoke(client, global, printer),
    }
}

/// `whoami`.
pub fn who_am_i(tenant: &TenantName, global: &Global, printer: &Printer) -> CommandResult {
    let node = remote::connect(global, tenant)?;
    let told = node.wait(node.request(Request::WhoAmI));
    let Response::WhoAmI(who) = told.map_err(remote::failed)? else {
        let why = "another answer than who we are".to_owned();
        return Err(remote::failed(Error::Unexpected(why)));
    };
    let WhoAmI {
        access,
        tenant,
        node,
        from,
    } = *who;
    let Access {
        name,
        role,
        tenants,
    } = access;
    if printer.output == Output::Json {
        return printer.json(&json!({
            "version": 1, "name": name, "role": role, "tenants": tenants, "tenant": tenant, "node": node, "from": from,
        }));
    }
    let name = if name.is_empty() { "-" } else { &name };
    printer.result(format_args!(
        "name      {name}\nrole      {role}\ntenants   {tenants}\ntenant    {tenant}\nnode      {node}\nfrom      {from}"
    ))
}

fn revoke(client: &str, global: &Global, printer: &Printer) -> CommandResult {
    let node = remote::connect(global, &TenantName::default())?;
    let revoked = node.wait(node.request(Request::RevokeClient(client.to_owned())));
    let Response::Text(id) = revoked.map_err(remote::failed)? else {
        let why = "another answer than the id of a client".to_owned();
        return Err(remote::failed(Error::Unexpected(why)));
    };
    if printer.output == Output::Json {
        return printer.json(&json!({ "version": 1, "client": id, "state": "revoked" }));
    }
    printer.note(format_args!(
        "client {id} is let in no more; nodes that cannot be reached now hear of it when they are back"
    ));
    Ok(())
}
