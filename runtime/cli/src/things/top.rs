//! `top`: the cluster live, on the whole terminal.
//!
//! Owns the terminal, which it gives back however it ends, and the loop of keys and answers. Must not: ask the node in
//! that loop; a thread of its own does, so that keys are heard while nodes are silent.

mod draw;
mod state;
mod worker;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use wasmrun_model::fairness::TenantName;

use self::state::{Action, App};
use self::worker::{Answer, Ask};
use crate::args::Global;
use crate::fail::{CommandResult, Exit, Failure};
use crate::remote;

/// How often the list is asked for.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a key is waited for before answers are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Gives the terminal back when it is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// `top`.
pub fn top(global: &Global) -> CommandResult {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`top` draws on a terminal, and this is none: use `wasmrun status` and `wasmrun list jobs`, which print once",
        ));
    }
    let client = remote::connect(global, &TenantName::default())?;
    let app = App::new(client.node().to_owned());
    let (asks, answers) = worker::start(client, global)?;
    let restore = Restore;
    // A panic gives the terminal back, too, before it says what it is.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    // Ctrl-C is a key here; this is for signals from elsewhere.
    ctrlc::set_handler(|| {
        ratatui::restore();
        std::process::exit(Exit::Interrupted.code());
    })
    .context("cannot listen for signals")?;
    let ended = run(&mut terminal, app, &asks, &answers);
    drop(restore);
    ended
}

fn run(
    terminal: &mut DefaultTerminal,
    mut app: App,
    asks: &Sender<Ask>,
    answers: &Receiver<Answer>,
) -> CommandResult {
    let ended =
        || Failure::usage("the thread that asks the node has ended: start `wasmrun top` again");
    let ask = |ask| asks.send(ask).map_err(|_| ended());
    let mut asked_at: Option<Instant> = None;
    let mut is_waiting = false;
    loop {
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= AGAIN);
        if is_due && !is_waiting {
            ask(Ask::List(app.tab))?;
            (asked_at, is_waiting) = (Some(Instant::now()), true);
        }
        terminal.draw(|frame| draw::draw(frame, &app))?;
        if event::poll(TICK)? {
            let action = match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => app.press(key),
                // After a resize all is drawn anew.
                _ => None,
            };
            match action {
                None => {}
                Some(Action::Quit) => return Ok(()),
                Some(Action::Look) => asked_at = None,
                Some(Action::Describe(target)) => ask(Ask::Describe(target))?,
                Some(Action::Cancel(target)) => ask(Ask::Cancel(target))?,
            }
        }
        loop {
            match answers.try_recv() {
                Ok(Answer::Listing(tab, listing)) => {
                    is_waiting = false;
                    match listing {
                        Ok(listing) => app.listed(tab, listing),
                        Err(why) => app.note(why),
                    }
                }
                Ok(Answer::Detail { title, text }) => app.detail(&title, &text),
                Ok(Answer::Note(note)) => app.note(note),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
    }
}
