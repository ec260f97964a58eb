//! `timeline`: what ran where and when, as a file that Perfetto and chrome://tracing show.

mod lanes;
mod trace;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use wasmrun_client::wire::{List, Listed, Rows, What};

use super::{jobs, rows, warn_of_silent};
use crate::args::{Global, Timeline};
use crate::fail::CommandResult;
use crate::outfile;
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;

/// `timeline`.
pub fn timeline(options: &Timeline, global: &Global, printer: &Printer) -> CommandResult {
    let path = (options.out != "-").then(|| Path::new(&options.out));
    path.map_or(Ok(()), outfile::check)?;
    let client = remote::connect(global, &options.tenant)?;
    let mut list = List::of(What::Attempts);
    if let Some(text) = &options.job {
        list = list.with("job", jobs::find(&client, text)?.row.id);
    }
    let listed = client.wait(client.list_pages(list, usize::MAX));
    let Listed { rows, silent, .. } = listed.map_err(remote::failed)?;
    let Rows::Tasks(mut rows) = rows else {
        return Err(remote::unexpected("attempts"));
    };
    if let Some(since) = options.since {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let first = now.unwrap_or_default().saturating_sub(since).as_micros();
        let is_new = |ended_us: u64| u128::from(ended_us) >= first;
        rows.retain(|row| row.run.as_ref().is_some_and(|run| is_new(run.ended_us)));
    }
    let trace = trace::Trace::of(&rows);
    let text = format!("{}\n", trace.json());
    match path {
        None => written(std::io::Write::write_all(
            &mut stdio::output(),
            text.as_bytes(),
        ))?,
        Some(path) => {
            let replaced = outfile::replace(path, text.as_bytes());
            replaced.with_context(|| format!("cannot write to {}", path.display()))?;
        }
    }
    match path {
        _ if trace.attempts() == 0 => printer.warn(
            "the trace is empty: of what was asked for no attempt has run and ended; what runs is in it once it has ended",
        ),
        None => {}
        Some(path) => {
            let nodes = match trace.nodes() {
                1 => "1 node".to_owned(),
                many => format!("{many} nodes"),
            };
            let (attempts, are) = match trace.attempts() {
                1 => ("1 attempt".to_owned(), "is"),
                many => (format!("{many} attempts"), "are"),
            };
            printer.note(format_args!(
                "{attempts} at {nodes}, over {}, {are} in {}: open it at https://ui.perfetto.dev or chrome://tracing",
                rows::took_text(trace.span_us()),
                path.display()
            ));
        }
    }
    warn_of_silent(&silent, printer);
    Ok(())
}
