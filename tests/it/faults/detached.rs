//! What nobody waits for, while nodes fail: detached tasks of every node, a detached group with what runs in it, and
//! actors with names.
//!
//! A test begins it, has nodes fail, and asks every node what came of it: each task ended once, with its result; the group
//! is one node's, and each bundle is taken on one node, once; a name is one actor's, wherever it is looked for, and free
//! when that is killed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use wasmrun_tests::{Ended, Wasmrun, assert_says, guest};

use super::durable::wait_for;
use super::groups;
use super::world::{Node, Three, eventually};

/// How often a task gives its number so that only a store holds that, and not its record.
const COPIES: usize = 10_000;
/// How many tasks of each node are under way, and for how long each keeps a CPU busy.
const UNDER_WAY: usize = 6;
const BUSY_MS: u32 = 1500;
/// What a bundle of the group has. A node can have all three, and work besides.
const BUNDLE_CPUS: f64 = 0.2;

/// A detached task, and what it gives.
struct Leaf {
    task: String,
    number: usize,
    copies: usize,
}

/// An actor that lives until it is killed, and has a name.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) id: String,
}

/// See the module.
pub(super) struct Detached {
    leaves: Vec<Leaf>,
    group: String,
    /// For each bundle a task that runs in it for ever.
    inside: Vec<String>,
    actors: Vec<Named>,
}

impl Detached {
    /// A group of `b`'s, and of each node tasks that are done and others that are under way, one that runs in the group,
    /// and an actor which may live again. `large`: who owns a large result, and who has it.
    pub(super) fn begin(three: &Three, large: &[(&str, &str)]) -> Self {
        let bundle = format!("cpus={BUNDLE_CPUS},memory=64MiB");
        let group = groups::create_of(&three.b, "kept", &bundle);
        groups::ready(&three.c, &group);
        let inside = three.all().into_iter().enumerate().map(|(bundle, node)| {
            let submit = groups::within(node, &group, bundle, "sleep-forever()");
            submit.arg("--detach").ok().trim().to_owned()
        });
        let mut all = Self {
            inside: inside.collect(),
            group,
            leaves: Vec::new(),
            actors: Vec::new(),
        };
        for task in &all.inside {
            wait_for(&three.b, task, "running");
        }
        for node in three.all() {
            let name = format!("of-{}", node.name);
            let create = create(node, &name).args(["--restarts", "1000"]);
            let id = create.ok().trim().to_owned();
            all.actors.push(Named { name, id });
            all.submit(node, 0);
            for (_, on) in large.iter().filter(|(owner, _)| *owner == node.name) {
                let strategy = format!("node:{on}:soft");
                all.submitted((node, COPIES, 0), &["--strategy", &strategy], false);
            }
        }
        all.wait_for_leaves(&three.a);
        for node in three.all() {
            // Their records are written behind those of what has ended.
            (0..UNDER_WAY).for_each(|_| all.submit(node, BUSY_MS));
        }
        all
    }

    /// Another task.
    fn submit(&mut self, at: &Node, busy_ms: u32) {
        self.submitted((at, 1, busy_ms), &[], false);
    }

    /// Another task of a node, which may be without the control store.
    pub(super) fn submit_anyhow(&mut self, at: &Node, is_without: bool) {
        self.submitted((at, 1, 0), &[], is_without);
    }

    fn submitted(
        &mut self,
        (at, copies, busy_ms): (&Node, usize, u32),
        args: &[&str],
        is_without: bool,
    ) {
        let number = self.leaves.len();
        let call = format!("leaf({number}, {copies}, {busy_ms})");
        let submit = at.command(&["submit", "--detach"]).arg(guest("faults"));
        let ended = submit.args(["--invoke", &call]).args(args).run();
        assert_eq!(ended.code, Some(0), "{ended}");
        assert_eq!(ended.stderr.contains("is lost if"), is_without, "{ended}");
        let task = ended.stdout_text().trim().to_owned();
        // Shown if it fails.
        println!("{task}: {call} of {} {args:?}", at.name);
        self.leaves.push(Leaf {
            task,
            number,
            copies,
        });
    }

    /// Another actor, which is to be found by its name afterwards.
    pub(super) fn add_actor(&mut self, actor: Named) {
        self.actors.push(actor);
    }

    /// All is as it was to be, at every node, and can be ended.
    #[track_caller]
    pub(super) fn ends_well(self, three: &Three) {
        self.leaves_are_counted_once(three);
        self.group_is_taken_once(three);
        self.names_are_of_one(three);
        three.c.command(&["group", "remove", &self.group]).ok();
        for task in &self.inside {
            for node in three.all() {
                let seen = wait_for(node, task, "failed");
                assert_says(&seen["error"].to_string(), &["placement group", "removed"]);
            }
        }
        for node in three.all() {
            node.wait_for_rest();
            eventually("the group was gone", || match groups::listed(node) {
                groups if groups.is_empty() => Ok(()),
                groups => Err(format!("{groups:?}")),
            });
        }
    }

    /// Waits until a node knows all tasks as finished. Where each was.
    #[track_caller]
    fn wait_for_leaves(&self, at: &Node) -> BTreeMap<String, String> {
        let ids: BTreeSet<&str> = self.leaves.iter().map(|it| &*it.task).collect();
        let rows = eventually(&format!("all ended for {}", at.name), || {
            let rows = tasks(at, &ids);
            let is_over = |it: &Json| it["state"] == "finished";
            match rows.len() >= ids.len() && rows.iter().all(is_over) {
                true => Ok(rows),
                false => Err(format!("{rows:?}")),
            }
        });
        let places = rows
            .iter()
            .map(|row| (text(&row["id"]), text(&row["node"])));
        let places: BTreeMap<_, _> = places.collect();
        assert_eq!(places.len(), rows.len(), "one is there twice: {rows:?}");
        places
    }

    fn leaves_are_counted_once(&self, three: &Three) {
        eventually("all said the same of where tasks ran", || {
            let [one, two, other] = three.all().map(|node| self.wait_for_leaves(node));
            let is_it = one == two && one == other;
            is_it
                .then_some(())
                .ok_or_else(|| format!("{one:?}\n{two:?}\n{other:?}"))
        });
        for leaf in &self.leaves {
            let number = leaf.number.to_string();
            let result = format!("[{}]\n", vec![number; leaf.copies].join(", "));
            for node in three.all() {
                let get = node.command(&["object", "get", &leaf.task]);
                let ended = get.run();
                assert!(
                    ended.code == Some(0) && ended.stdout_text() == result,
                    "{}: {ended}",
                    node.name
                );
            }
            if leaf.copies > 1 {
                three.a.command(&["object", "delete", &leaf.task]).ok();
            }
        }
    }

    fn group_is_taken_once(&self, three: &Three) {
        for node in three.all() {
            groups::ready(node, &self.group);
        }
        let [row] = &groups::listed(&three.a)[..] else {
            panic!("not one: {:?}", groups::listed(&three.a));
        };
        for node in three.all() {
            let owner = text(&row["node"]);
            groups::wait_for_owner(node, &self.group, |it| it == owner);
        }
        let places = groups::places(&three.a);
        for node in three.all() {
            assert_eq!(groups::places(node), places);
            // Each bundle runs what was to run in it, there, once.
            let ids: BTreeSet<&str> = self.inside.iter().map(|it| &**it).collect();
            eventually("all ran in their bundles", || {
                let rows = tasks(node, &ids);
                let is_there = |(task, place): (&String, &String)| {
                    let mut of_it = rows.iter().filter(|row| row["id"] == **task);
                    let is_it = |row: &Json| row["state"] == "running" && row["node"] == **place;
                    of_it.next().is_some_and(is_it) && of_it.next().is_none()
                };
                match self.inside.iter().zip(&places).all(is_there) {
                    true => Ok(()),
                    false => Err(format!("{places:?}: {rows:?}")),
                }
            });
            let bundles = places.iter().filter(|it| **it == node.name).count();
            eventually("no more is taken than the bundles", || {
                let own = node.sees(&node.name).expect("itself");
                let cpus = |it: &Json| text(&it["CPU"]).parse::<f64>().expect("a number");
                let taken = cpus(&own["total"]) - cpus(&own["available"]);
                let is_it = (taken - BUNDLE_CPUS * bundles as f64).abs() < 0.01;
                is_it.then_some(()).ok_or(own)
            });
        }
    }

    fn names_are_of_one(&self, three: &Three) {
        let [a, b, c] = three.all();
        for Named { name, id } in &self.actors {
            for node in three.all() {
                eventually(&format!("{name} was one actor for {}", node.name), || {
                    let listed = node.command(&["list", "actors"]).json(0);
                    let mut rows = listed["actors"].as_array().expect("a list").iter();
                    let found = rows.clone().filter(|row| row["name"] == **name);
                    let is_it = found.count() == 1 && rows.any(|row| row["id"] == **id);
                    is_it.then_some(()).ok_or(listed)
                });
                answers(node, name);
            }
            // And free again when that ends, for whoever comes first, elsewhere.
            b.command(&["actor", "kill", name]).ok();
            create(b, name).ok();
            for node in three.all() {
                answers(node, name);
            }
            c.command(&["actor", "kill", name]).ok();
            eventually(&format!("{name} was free"), || {
                let ended = create(a, name).run();
                (ended.code == Some(0)).then_some(()).ok_or(ended)
            });
            a.command(&["actor", "kill", name]).ok();
        }
    }
}

fn text(json: &Json) -> String {
    json.as_str().expect("a text").to_owned()
}

/// What a node lists of these tasks.
fn tasks(at: &Node, ids: &BTreeSet<&str>) -> Vec<Json> {
    let listed = at.command(&["list", "tasks"]).json(0);
    let rows = listed["tasks"].as_array().expect("a list").iter();
    let is_it = |row: &&Json| ids.contains(row["id"].as_str().expect("an id"));
    rows.filter(is_it).cloned().collect()
}

/// Creates an actor that counts, with a name.
pub(super) fn create(at: &Node, name: &str) -> Wasmrun {
    let create = at.command(&["actor", "create"]).arg(guest("faults"));
    let strategy = format!("node:{}:soft", at.name);
    create.args(["kept", "--name", name, "--strategy", &strategy])
}

/// Asks for an actor by its name, and for something of it.
pub(super) fn ask(at: &Node, name: &str) -> Wasmrun {
    at.command(&["actor", "call", name, "add(1)"])
}

/// Waits until an actor of this name answers.
#[track_caller]
pub(super) fn answers(at: &Node, name: &str) -> Ended {
    eventually(&format!("{name} answered at {}", at.name), || {
        let ended = ask(at, name).run();
        match ended.code {
            Some(0) => Ok(ended),
            _ => Err(ended),
        }
    })
}
