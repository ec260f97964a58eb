//! The thread that asks the node for what `top` shows.
//!
//! Owns the sessions: one for each tenant whose work is described or cancelled, since a session finds its own alone.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::Value as Json;
use wasmrun_client::Described;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{List, Listed, What};
use wasmrun_model::fairness::TenantName;

use super::state::{Listing, Row, Tab, Target};
use crate::args::Global;
use crate::fail::Failure;
use crate::remote;
use crate::things::get;
use crate::things::rows::{self, Table};

/// How many rows a list has: more than anybody scrolls through.
const MOST_ROWS: u32 = 500;

/// What is to be asked.
pub enum Ask {
    List(Tab),
    Describe(Target),
    Cancel(Target),
}

/// What has come of it.
pub enum Answer {
    /// The list, or why there is none.
    Listing(Tab, Result<Listing, String>),
    Detail {
        title: String,
        text: String,
    },
    Note(String),
}

/// Starts the thread. It ends when nobody asks any more.
pub fn start(client: Client, global: &Global) -> Result<(Sender<Ask>, Receiver<Answer>), Failure> {
    let (asks, asked) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let mut worker = Worker {
        global: global.clone(),
        sessions: BTreeMap::from([(TenantName::default(), client)]),
    };
    let work = move || {
        while let Ok(ask) = asked.recv() {
            if answers.send(worker.answer(ask)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("wasmrun-top".into())
        .spawn(work)?;
    Ok((asks, answered))
}

struct Worker {
    global: Global,
    sessions: BTreeMap<TenantName, Client>,
}

impl Worker {
    fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::List(tab) => {
                let listing = self.list(tab).map_err(|why| why.to_string());
                if listing.is_err() {
                    // The node may be back the next time.
                    self.sessions.clear();
                }
                Answer::Listing(tab, listing)
            }
            Ask::Describe(target) => match self.describe(&target) {
                Ok(text) => Answer::Detail {
                    title: target.id,
                    text,
                },
                Err(why) => Answer::Note(why.to_string()),
            },
            Ask::Cancel(target) => Answer::Note(match self.cancel(&target) {
                Ok(()) => format!("{} is cancelled", target.id),
                Err(why) => why.to_string(),
            }),
        }
    }

    fn session(&mut self, tenant: TenantName) -> Result<&Client, Failure> {
        if !self.sessions.contains_key(&tenant) {
            let client = remote::connect(&self.global, &tenant)?;
            self.sessions.insert(tenant.clone(), client);
        }
        Ok(&self.sessions[&tenant])
    }

    fn session_of(&mut self, target: &Target) -> Result<&Client, Failure> {
        self.session(target.tenant.parse().unwrap_or_default())
    }

    fn list(&mut self, tab: Tab) -> Result<Listing, Failure> {
        let client = self.session(TenantName::default())?;
        let list = List {
            limit: MOST_ROWS,
            ..List::of(tab.what())
        };
        let listed = client.wait(client.list(list)).map_err(remote::failed)?;
        let listing = listing(tab.what(), &listed);
        let silent = listed.silent.into_iter().map(|it| it.node);
        Ok(Listing {
            silent: silent.collect(),
            ..listing
        })
    }

    fn describe(&mut self, target: &Target) -> Result<String, Failure> {
        let client = self.session_of(target)?;
        let described = client.wait(client.describe(&target.id));
        let described = described.map_err(remote::failed)?;
        let mut text = get::text(&described);
        // The details of tasks and actors have it already.
        if let Described::Job(job) = &described
            && let Ok(why) = client.wait(client.explain(&job.row.id.to_string()))
        {
            text.push_str("\n\n");
            text.push_str(&why);
        }
        Ok(text)
    }

    fn cancel(&mut self, target: &Target) -> Result<(), Failure> {
        let client = self.session_of(target)?;
        client
            .wait(client.cancel(&target.id))
            .map_err(remote::failed)
    }
}

/// Rows as `list` shows them, with ids as short as people need them.
fn listing(what: What, listed: &Listed) -> Listing {
    let object = wasmrun_client::rows::list(what, listed, &[]);
    let table = Table::of(what, &object);
    let field = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let header: Vec<&str> = table.header().iter().map(|it| it.name).collect();
    let lines = table.lines().into_iter().zip(table.rows);
    let rows = lines.map(|(mut cells, all)| {
        let id = match all["id"].is_string() && header.first() == Some(&"id") {
            true => field(all, "id"),
            false => field(all, "name"),
        };
        for (cell, name) in cells.iter_mut().zip(&header) {
            if *name == "id" {
                *cell = rows::short(cell).to_owned();
            }
        }
        Row {
            id,
            tenant: field(all, "tenant"),
            cells,
            all: all.clone(),
        }
    });
    let rows = rows.collect();
    Listing {
        header,
        rows,
        silent: Vec::new(),
    }
}
