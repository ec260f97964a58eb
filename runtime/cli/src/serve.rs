//! `wasmrun serve`: HTTP requests that a module answers.
//!
//! Owns what is printed of it, and when it ends. The service itself is the node's: one inside this command, or the one that
//! runs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self as threads, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, Bytes, RefusalKind};
use wasmrun_engine::Listener;
use wasmrun_model::id::Digest;
use wasmrun_model::units;
use wasmrun_node::{AccessLog, Answers, AnswersError, JobError, Served, Service, ServiceConfig};

use crate::args::{Global, Output, Serve};
use crate::fail::{CommandResult, Exit, Failure};
use crate::log::stamp;
use crate::printer::Printer;
use crate::signals::stop_on_signals;
use crate::submit::{
    Route, grants, needs_no_secret, overrides, pump, unwritten, wants_own_node, wire_grants,
    wire_limits, wire_terms,
};
use crate::{local, remote};

/// How many chunks of what handlers print may be under way before they wait.
const CHUNKS_IN_FLIGHT: usize = 64;
/// How many lines of the access log may be under way before some are left out.
const LINES_IN_FLIGHT: usize = 4096;
/// The longest name of a service, in bytes.
const NAME_BYTES: usize = 200;
/// How long the reader of our output may take for the last of it.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The largest file with a certificate or a key, in bytes.
const PEM_BYTES: u64 = 1 << 20;
/// How often a command whose service a node serves looks whether that is still there.
const LOOK: Duration = Duration::from_secs(1);

/// `serve`.
pub fn serve(options: &Serve, global: &Global, printer: &Printer) -> CommandResult {
    options.task.grants.check_dirs()?;
    let tls = tls(options)?;
    let name = name(options)?;
    let stop = CancellationToken::new();
    if !options.detach {
        stop_on_signals(&stop)?;
    }
    let tenant = &options.task.scheduling.tenant;
    let found = match options.detach {
        true => Some(remote::connect_for(global, tenant, &name)?),
        false if wants_own_node(&options.node) => None,
        false => remote::find(global, tenant, &name)?,
    };
    match found {
        Some(client) => at_node(&client, options, (name, tls), &stop, printer),
        None => in_command(options, (name, tls), &stop, printer),
    }
}

/// What people call the service: as they say, else as the module's file is called.
fn name(options: &Serve) -> Result<String, Failure> {
    let file = || Some(options.module.file_stem()?.to_string_lossy().into_owned());
    let named = options.name.clone().or_else(file);
    let name = named.unwrap_or_else(|| "service".to_owned());
    if name.is_empty() || name.len() > NAME_BYTES || name.contains(char::is_control) {
        return Err(Failure::usage(format_args!(
            "a service's name has 1 to {NAME_BYTES} bytes and no control characters: name it with --name"
        )));
    }
    Ok(name)
}

type Tls = (Vec<u8>, Vec<u8>);

/// The certificate and its key.
fn tls(options: &Serve) -> Result<Option<Tls>, Failure> {
    let read = |path: &Path| {
        let read = local::read_file(path, PEM_BYTES, "a file that has nothing but that");
        read.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    })
}

/// Serves in a node inside this command.
fn in_command(
    options: &Serve,
    (name, tls): (String, Option<Tls>),
    stop: &CancellationToken,
    printer: &Printer,
) -> CommandResult {
    let scheme = if tls.is_some() { "https" } else { "http" };
    needs_no_secret(&options.task.grants)?;
    let node = local::start(&options.node, printer)?;
    let module = local::load(node.engine(), &options.module, &options.node, printer)?;
    let answers = Answers::new(
        &name,
        &module,
        options.route.clone(),
        &overrides(&options.task, node.policy())?,
        &grants(&options.task.grants)?,
    );
    let answers = answers.and_then(|it| it.that_run(&node.client(), true));
    let answers = answers.map_err(|error| match error {
        AnswersError::Job(JobError::TooMuch(_)) | AnswersError::Never(_) => {
            Failure::new(Exit::Unschedulable, error)
        }
        error => Failure::new(Exit::Usage, error),
    })?;
    let no_thread = "cannot start a thread for the output";
    // Dropped by both threads when they end: those may wait for a reader that has stopped.
    let (writes, written) = threads::channel::<()>();
    let (chunks, printed) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let (stopping, writing) = (stop.clone(), writes.clone());
    let failed = move || {
        let _writing = writing;
        stopping.cancel();
    };
    let pumping = pump(Route::Aside, printed, failed).context(no_thread)?;
    let (lines, ended) = mpsc::channel(LINES_IN_FLIGHT);
    let logging = write_log(ended, (stop.clone(), writes), *printer).context(no_thread)?;
    let config = ServiceConfig {
        name: name.clone(),
        address: options.listen.address(None),
        tls,
        hosts: options.host.clone(),
        most_running: options.concurrency.get() as usize,
        most_waiting: options.queue as usize,
        patience: options.queue_wait,
        listener: Some(Listener::new(0, chunks)),
        log: (!printer.is_quiet()).then(|| {
            let log: AccessLog = Arc::new(move |served: &Served| {
                // A slow reader loses lines and holds up no request.
                let _ = lines.try_send(served.clone());
            });
            log
        }),
    };
    let service = Service::start(node.client(), answers, config);
    let service = service.map_err(|error| Failure::new(Exit::Usage, error))?;
    started(&name, &format!("{scheme}://{}", service.address()), printer)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.context("cannot wait for the end")?;
    runtime.block_on(stop.cancelled());
    if !service.drain(options.drain) {
        printer.warn("some requests were still under way, and were cut off");
    }
    if written.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout) {
        return Ok(());
    }
    let logged = logging
        .join()
        .expect("the thread of the log does not panic");
    let printed = pumping.join().expect("the output thread does not panic");
    logged.and(printed.map(drop).map_err(unwritten))
}

/// Starts a thread that prints a line for each request, as long as there is a service. Where a line cannot be printed, the
/// service is to end.
fn write_log(
    mut ended: mpsc::Receiver<Served>,
    (stop, writes): (CancellationToken, threads::Sender<()>),
    printer: Printer,
) -> io::Result<JoinHandle<CommandResult>> {
    let write = move || -> CommandResult {
        let _writes = writes;
        while let Some(served) = ended.blocking_recv() {
            print(&served, &printer).inspect_err(|_| stop.cancel())?;
        }
        Ok(())
    };
    let thread = std::thread::Builder::new().name("wasmrun-access".into());
    thread.spawn(write)
}

fn print(served: &Served, printer: &Printer) -> CommandResult {
    let now = stamp(OffsetDateTime::now_utc());
    let us = units::us(served.took);
    let task = served.task.map(|it| it.to_string());
    if printer.output == Output::Json {
        return printer.json_line(&json!({
            "version": 1,
            "time": now,
            "client": served.client.to_string(),
            "method": served.method,
            "target": served.target,
            "status": served.status,
            "bytes": served.bytes,
            "took_us": us,
            "cut_off": served.is_cut_off,
            "task": task,
        }));
    }
    printer.result(format_args!(
        "{now} {} {} {} {} {} {us}us {}{}",
        served.client,
        served.method,
        served.target.escape_default(),
        served.status,
        served.bytes,
        task.as_deref().unwrap_or("-"),
        if served.is_cut_off { " cut off" } else { "" },
    ))
}

/// Serves by the node that runs.
fn at_node(
    client: &Client,
    options: &Serve,
    (name, tls): (String, Option<Tls>),
    stop: &CancellationToken,
    printer: &Printer,
) -> CommandResult {
    let bytes = local::read_module(&options.module, &options.node)?;
    client.wait(client.load(&bytes)).map_err(remote::failed)?;
    let serve = wire::Serve {
        name: name.clone(),
        module: Digest::of(&bytes),
        routes: options.route.clone(),
        address: options.listen,
        tls: tls.map(|(cert, key)| (Bytes(cert), Bytes(key))),
        hosts: options.host.clone(),
        most_running: options.concurrency.get(),
        most_waiting: options.queue,
        patience_ms: units::ms(options.queue_wait),
        terms: wire_terms(&options.task)?,
        limits: wire_limits(&options.task.limits),
        grants: wire_grants(&options.task.grants)?,
        is_detached: options.detach,
    };
    let row = client.wait(client.serve(serve)).map_err(remote::failed)?;
    started(&name, &row.url, printer)?;
    if let Some(why) = &row.why {
        printer.warn(format_args!("{name} is not served everywhere: {why}"));
    }
    if options.detach {
        return Ok(());
    }
    client.wait(async {
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    let stopped = client.stop_service(&name, options.drain).await;
                    return match stopped {
                        // It has ended with its node, or somebody has stopped it.
                        Err(wasmrun_client::Error::Refused(why)) if why.kind == RefusalKind::NotFound => Ok(()),
                        stopped => stopped.map_err(remote::failed),
                    };
                }
                () = tokio::time::sleep(LOOK) => {
                    let services = client.services().await.map_err(remote::failed)?;
                    if !services.iter().any(|it| it.job == row.job) {
                        printer.note(format_args!("somebody has stopped service {name}"));
                        return Ok(());
                    }
                }
            }
        }
    })
}

fn started(name: &str, url: &str, printer: &Printer) -> CommandResult {
    match printer.output {
        Output::Json => printer.json_line(&json!({ "version": 1, "name": name, "url": url })),
        _ => printer.result(format_args!("serving {name} at {url}")),
    }
}
