//! `service`: what nodes serve.

use serde_json::json;
use wasmrun_client::wire::What;

use crate::args::{Global, Output, ServiceCommand};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

/// `service`.
pub fn service(command: &ServiceCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        ServiceCommand::List => super::show(What::Services, Vec::new(), global, printer),
        ServiceCommand::Stop {
            name,
            drain,
            tenant,
        } => {
            let client = remote::connect(global, tenant)?;
            let stopped = client.wait(client.stop_service(name, *drain));
            stopped.map_err(remote::failed)?;
            if printer.output == Output::Json {
                let stopped = json!({ "version": 1, "service": name, "stopped": true });
                return printer.json(&stopped);
            }
            printer.note(format_args!("service {name} has ended"));
            Ok(())
        }
    }
}
