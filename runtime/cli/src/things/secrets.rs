//! `secret`: what tasks get that nobody else is to read. No value is ever printed.

use std::io::{IsTerminal, Read, stdin};
use std::path::Path;

use anyhow::Context;
use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use wasmrun_client::wire::SecretRow;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::secret::{MAX_BYTES, SecretName};

use crate::args::{Global, Output, SecretCommand};
use crate::fail::{CommandResult, Failure};
use crate::log::stamp;
use crate::printer::{Column, Printer, table};
use crate::{local, remote};

/// `secret`.
pub fn secret(command: &SecretCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        SecretCommand::Set {
            name,
            from_file,
            tenant,
        } => {
            let value = match from_file {
                Some(path) => read(path)?,
                None => typed()?,
            };
            let client = remote::connect(global, tenant)?;
            let set = client.wait(client.set_secret(name.clone(), value));
            set.map_err(remote::failed)?;
            done("set", name, tenant, printer)
        }
        SecretCommand::List { tenant } => list(tenant, global, printer),
        SecretCommand::Remove { name, tenant } => {
            let client = remote::connect(global, tenant)?;
            let removed = client.wait(client.remove_secret(name.clone()));
            removed.map_err(remote::failed)?;
            done("removed", name, tenant, printer)
        }
        SecretCommand::Rotate => {
            let client = remote::connect(global, &TenantName::default())?;
            let told = client.wait(client.rotate_secrets());
            let told = told.map_err(remote::failed)?;
            if printer.output == Output::Json {
                return printer.json(&json!({ "version": 1, "state": "rotated", "note": told }));
            }
            printer.note(told);
            Ok(())
        }
    }
}

/// The value on standard input.
fn typed() -> Result<Vec<u8>, Failure> {
    if stdin().is_terminal() {
        return Err(Failure::usage(
            "the value would be seen as it is typed: pipe it in (`printf %s \"$VALUE\" | wasmrun secret set …`), or name a file \
             with --from-file",
        ));
    }
    let mut value = read(Path::new("-"))?;
    // `echo` ends with one.
    if value.ends_with(b"\n") {
        value.pop();
    }
    Ok(value)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    // Room for one newline too much.
    let most = MAX_BYTES + 1;
    let mut value = Vec::new();
    let file = local::open(path).and_then(|it| it.take(most as u64 + 1).read_to_end(&mut value));
    file.with_context(|| format!("cannot read {}", local::shown(path)))?;
    match value.len() > most {
        true => Err(Failure::usage(format_args!(
            "{} has more than 64 KiB, which is the most of a secret: put what is larger into an object, encrypted, and its key into \
             the secret",
            local::shown(path)
        ))),
        false => Ok(value),
    }
}

fn done(what: &str, name: &SecretName, tenant: &TenantName, printer: &Printer) -> CommandResult {
    if printer.output == Output::Json {
        return printer
            .json(&json!({ "version": 1, "secret": name, "tenant": tenant, "state": what }));
    }
    printer.note(format_args!("secret {name} of tenant {tenant} is {what}"));
    Ok(())
}

fn list(tenant: &TenantName, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, tenant)?;
    let (rows, left) = client.wait(client.secrets()).map_err(remote::failed)?;
    match printer.output {
        Output::Json => {
            let rows: Vec<Json> = rows.iter().map(to_json).collect();
            printer.json(&json!({ "version": 1, "secrets": rows, "left": left }))?;
        }
        _ => {
            let columns = ["name", "tenant", "bytes", "set", "by"].map(|name| match name {
                "bytes" => Column::number(name),
                name => Column::text(name),
            });
            let lines = rows.iter().map(|row| {
                let SecretRow {
                    name, tenant, by, ..
                } = row;
                let (name, tenant) = (name.to_string(), tenant.to_string());
                vec![name, tenant, row.bytes.to_string(), set(row), by.clone()]
            });
            printer.result(table(&columns, &lines.collect::<Vec<_>>()))?;
        }
    }
    if left > 0 {
        printer.warn(format_args!("{left} more are not shown"));
    }
    Ok(())
}

fn to_json(row: &SecretRow) -> Json {
    let SecretRow {
        name,
        tenant,
        bytes,
        by,
        ..
    } = row;
    json!({ "name": name, "tenant": tenant, "bytes": bytes, "set": set(row), "by": by })
}

/// When it was set, as RFC 3339 has it.
fn set(row: &SecretRow) -> String {
    let seconds = i64::try_from(row.set_s).ok();
    let time = seconds.and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    time.map_or_else(|| "-".to_owned(), stamp)
}
