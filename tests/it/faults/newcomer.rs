//! The commands of the README that take a newcomer from one machine to three, each on a host of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tempfile::TempDir;
use wasmrun_tests::{Running, Stream, Wasmrun, guest, scratch};

use super::links::Hosts;
use super::world::eventually;

const README: &str = include_str!("../../../README.md");
/// Where the head listens, in the text.
const LISTENS: &str = "10.0.0.1:7461";
/// How a token begins, which is all of it that the text shows.
const TOKEN: &str = "wasmrun-join-1-";
/// What leaves a command in the background, and the prompt to the next one.
const BACKGROUND: &str = "&";

/// Who types what, as the text has it.
fn commands() -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, section) = README
        .split_once("### From one machine to three")
        .expect("the README has this section");
    let (_, block) = section.split_once("```console\n").expect("with commands");
    let (block, _) = block.split_once("```").expect("that end");
    let typed = block.lines().map(|line| {
        let (host, command) = line.split_once('$').expect("a prompt");
        let command = command.split(" #").next().unwrap_or_default();
        let words = command.split_whitespace().map(|it| it.trim_matches('\''));
        (host, words.collect())
    });
    typed.collect()
}

/// A machine with nothing on it but the program.
struct Machine {
    dir: TempDir,
    namespace: String,
    listens: SocketAddr,
    node: Option<Running>,
    /// The node has the terminal: nothing more can be typed there.
    is_busy: bool,
}

impl Machine {
    fn new(hosts: &Hosts, name: &str) -> Self {
        Self {
            dir: scratch(),
            namespace: hosts.namespace(name),
            listens: hosts.node(name).listen(),
            node: None,
            is_busy: false,
        }
    }

    /// A command of the text, with what is this test's own in it.
    fn types(&self, host: &str, words: &[&str], head: SocketAddr, token: &str) -> Wasmrun {
        // Whatever it runs is in the background of this test.
        let words = words.strip_suffix(&[BACKGROUND]).unwrap_or(words);
        let (program, words) = words.split_first().expect("a command");
        assert_eq!(*program, "wasmrun");
        let words = words.iter().map(|word| match *word {
            LISTENS => head.to_string(),
            word if word.starts_with(TOKEN) => token.to_owned(),
            word => match word.strip_prefix("target/guests/") {
                Some(module) => guest(module.trim_end_matches(".wasm"))
                    .display()
                    .to_string(),
                None => word.to_owned(),
            },
        });
        let words: Vec<String> = words.collect();
        let mut command = Wasmrun::new(&words);
        if words.starts_with(&["node".into(), "start".into()]) {
            // Machines have names of their own; these are one.
            command = command.args(["--node-name", host]);
        }
        let command = command.without_env("WASMRUN_ADDRESS");
        let command = command.env("XDG_RUNTIME_DIR", self.dir.path());
        let command = command.env("XDG_STATE_HOME", self.dir.path());
        command.in_namespace(&self.namespace)
    }
}

#[test]
fn five_commands_make_a_cluster_of_three_machines() {
    let Some(hosts) = Hosts::new() else { return };
    let named = ["head", "b", "c"].into_iter().zip(["a", "b", "c"]);
    let machines = named.map(|(host, name)| (host, Machine::new(&hosts, name)));
    let mut machines: BTreeMap<&str, Machine> = machines.collect();
    let head = machines["head"].listens;
    let mut token = String::new();
    let commands = commands();
    assert_eq!(commands.len(), 5, "{commands:?}");
    for (host, words) in commands {
        let machine = machines.get_mut(host).expect("one of three");
        assert!(!machine.is_busy, "nobody can type {words:?} at {host}");
        let types = || machine.types(host, &words, head, &token);
        match words[1..] {
            ["node", "start", ..] => {
                let mut node = types().start();
                node.wait_for(Stream::Out, "listens at unix:");
                if host == "head" {
                    node.wait_for(Stream::Out, TOKEN);
                    let said = node.written(Stream::Out);
                    let made = said.split_whitespace().find(|it| it.starts_with(TOKEN));
                    token = made.expect("the command for the others").to_owned();
                }
                machine.node = Some(node);
                machine.is_busy = words.last() != Some(&BACKGROUND);
            }
            ["node", "list"] => eventually("all are listed", || {
                let list = types().ok();
                match list.matches("alive").count() {
                    3 => Ok(()),
                    _ => Err(list),
                }
            }),
            _ => {
                let places = types().ok();
                for name in ["head", "b", "c"] {
                    assert!(places.contains(&format!("\"{name}\"")), "{places}");
                }
            }
        }
    }
}
