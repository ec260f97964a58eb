//! `wasmrun dashboard`: a link to the page of a running node.

use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

use serde_json::json;
use wasmrun_client::wire::{Request, Response};
use wasmrun_model::fairness::TenantName;

use crate::args::{Dashboard, Global, Output};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

pub fn dashboard(options: &Dashboard, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let answer = client.wait(client.request(Request::Dashboard));
    let Response::Text(link) = answer.map_err(remote::failed)? else {
        return Err(remote::unexpected("link"));
    };
    if printer.output == Output::Json {
        return printer.json(&json!({ "version": 1, "link": link }));
    }
    printer.result(&link)?;
    let is_watched = printer.output == Output::Table && io::stdout().is_terminal();
    if is_watched && !options.no_open && has_desktop() {
        open(&link, printer);
    }
    Ok(())
}

/// Whether there is a screen that a browser could be on. Without one the desktop's opener would start one in the terminal.
fn has_desktop() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Has the desktop open a browser.
fn open(link: &str, printer: &Printer) {
    let mut opener = Command::new("xdg-open");
    opener
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let is_open = opener.status().is_ok_and(|status| status.success());
    if !is_open {
        printer.note("no browser could be opened: open the link above");
    }
}
