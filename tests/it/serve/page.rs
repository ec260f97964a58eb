//! What `docs/serving.md` has a newcomer type: the way to a service on three machines that is updated while clients ask, and a
//! request of a function.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use wasmrun_tests::{guest, scratch};

use super::everywhere::Host;
use super::service::second_version;
use super::typed::send;
use super::{Connection, Service, serve};

const PAGE: &str = include_str!("../../../docs/serving.md");

/// A command, the machine where it is typed, and what the page shows of what it prints.
struct Step {
    machine: &'static str,
    words: Vec<&'static str>,
    shown: String,
}

/// The commands of the first block of a section.
fn steps(heading: &str) -> Vec<Step> {
    let (_, section) = PAGE.split_once(heading).expect("there is this section");
    let (_, block) = section.split_once("```console\n").expect("with commands");
    let (block, _) = block.split_once("```").expect("that end");
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match line.split_once("$ ") {
            Some((machine, typed)) => steps.push(Step {
                machine,
                words: typed.split_whitespace().collect(),
                shown: String::new(),
            }),
            None => {
                let step = steps.last_mut().expect("a block begins with a command");
                step.shown += &format!("{line}\n");
            }
        }
    }
    steps
}

/// Who does what the page says.
struct Newcomer {
    machines: BTreeMap<&'static str, Host>,
    /// The files of the page's modules.
    modules: [(&'static str, String); 2],
    token: String,
}

impl Newcomer {
    /// A text of the page, with what is this test's own in it.
    fn own(&self, text: &str) -> String {
        let module = self.modules.iter().find(|(name, _)| *name == text);
        let text = module.map_or(text, |(_, file)| file.as_str());
        let text = text.replace("TOKEN", &self.token);
        let machines = self.machines.iter();
        machines.fold(text, |text, (name, host)| {
            text.replace(name, &host.at.ip().to_string())
        })
    }

    fn types(&mut self, step: &Step) {
        let shown = self.own(&step.shown);
        let words: Vec<String> = step.words.iter().map(|it| self.own(it)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((&"wasmrun", words)) = words.split_first() else {
            panic!("nobody types {words:?}");
        };
        let host = self.machines.get_mut(step.machine).expect("one of three");
        if let ["node", "start", options @ .., "&"] = words {
            return host.member.start(options);
        }
        let ended = host.member.command(words).run();
        assert_eq!(ended.code, Some(0), "{words:?}: {ended}");
        assert!(!ended.stderr.contains("warning"), "{words:?}: {ended}");
        let said = ended.stdout_text();
        if words.starts_with(&["node", "token"]) {
            self.token = said.trim().to_owned();
        } else if !shown.is_empty() {
            assert_eq!(said, shown, "{words:?}");
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.machines.values().map(|it| it.at).collect()
    }

    fn versions(&self) -> Vec<String> {
        let asked = self.addresses().into_iter().map(version);
        asked.collect()
    }
}

/// What a machine answers.
#[track_caller]
fn version(at: SocketAddr) -> String {
    let answer = Connection::open(at).ask("GET /version", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// Ends the clients, however the test goes on.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_service_on_three_machines_is_updated_while_clients_ask() {
    let dir = scratch();
    let second = dir.path().join("second.wasm");
    std::fs::write(&second, second_version()).expect("there is room");
    let machines = ["10.0.0.5", "10.0.0.6", "10.0.0.7"];
    let names = ["a", "b", "c"];
    let mut newcomer = Newcomer {
        machines: machines.into_iter().zip(names.map(Host::new)).collect(),
        modules: [
            ("shop.wasm", guest("web").display().to_string()),
            ("shop-2.wasm", second.display().to_string()),
        ],
        token: String::new(),
    };
    let mut steps = steps("\n## A service on a cluster\n").into_iter();
    let is_node = |step: &Step| step.words.get(1) == Some(&"node");
    let first = loop {
        match steps.next().expect("there is a service") {
            step if is_node(&step) => newcomer.types(&step),
            step => break step,
        }
    };
    // A newcomer is slow.
    for host in newcomer.machines.values() {
        for name in names {
            host.member.wait_for(name, "alive");
        }
    }
    newcomer.types(&first);
    assert_eq!(newcomer.versions(), ["version 1 of web\n"; 3]);
    let stop = steps.next_back().expect("it ends");
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(is_over);
        let asking = newcomer.addresses().into_iter().map(|at| {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    version(at);
                }
            })
        });
        let asking: Vec<_> = asking.collect();
        steps.for_each(|step| newcomer.types(&step));
        assert_eq!(newcomer.versions(), ["version 2 of web\n"; 3]);
        drop(over);
        for asking in asking {
            asking.join().expect("no request fails");
        }
    });
    newcomer.types(&stop);
}

#[test]
fn a_request_of_a_function_is_answered() {
    let (_, rest) = PAGE.split_once("/price --json '").expect("there is one");
    let (body, _) = rest.split_once('\'').expect("that ends");
    let service = Service::start(serve("orders", &["--route", "POST /price=price"]));
    send(&service, "POST /price", body).json(200, "application/json");
}
