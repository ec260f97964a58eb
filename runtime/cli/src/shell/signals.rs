//! Ctrl-C and SIGTERM for commands that end in order.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::fail::{Exit, Failure};

/// Whether Ctrl-C was pressed, where tasks are submitted.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The first signal ends what is served in order, the second at once.
pub fn stop_on_signals(stop: &CancellationToken) -> Result<(), Failure> {
    let (stop, is_second) = (stop.clone(), AtomicBool::new(false));
    let set = ctrlc::set_handler(move || {
        if is_second.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted.code());
        }
        stop.cancel();
    });
    Ok(set.context("cannot listen for Ctrl-C")?)
}
