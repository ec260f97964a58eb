//! Checks that the folders inside a crate under `runtime/` do not use each other in cycles.
//!
//! Owns what the folders of a crate are. A file `x.rs` beside a folder `x/` belongs to that folder, any other file to the
//! folder that it is in. `lib.rs` and `main.rs` are left out, and so are tests. What a module re-exports counts as used
//! where it is defined; to re-export it is no use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::imports::{self, Mention, Source};
use crate::shell::root;

/// A module that is a file: the names on the way from the root of its crate.
type Module = Vec<String>;

/// The files of a crate, by module. Each has its place in the crate's `src`.
struct Sources(BTreeMap<Module, (String, Source)>);

/// Which folder uses which other one, and where.
type Graph = BTreeMap<String, BTreeMap<String, Vec<Use>>>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    file: String,
    mention: Mention,
}

/// The most uses that a message shows of one folder by another.
const SHOWN: usize = 3;

/// No folder of a crate uses another one in a cycle.
pub fn check() -> Result<()> {
    let runtime = root().join("runtime");
    let mut crates = BTreeSet::new();
    for entry in fs::read_dir(&runtime)? {
        crates.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let mut problems = Vec::new();
    for name in &crates {
        let src = runtime.join(name).join("src");
        let read = |file: &str| fs::read_to_string(src.join(file)).ok();
        let graph = Sources::load(read)
            .with_context(|| format!("in runtime/{name}/src"))?
            .graph();
        problems.extend(cycles(name, &graph));
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// The cycles of a crate, each from the first of its folders.
fn cycles(name: &str, graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    for (from, to) in edges(graph) {
        if let Some(back) = way(graph, to, from)
            && back.iter().all(|it| from <= *it)
        {
            problems.push(describe(name, graph, from, to, &back));
        }
    }
    problems
}

fn edges(graph: &Graph) -> impl Iterator<Item = (&str, &str)> {
    let edges = graph
        .iter()
        .flat_map(|(from, to)| to.keys().map(move |to| (from, to)));
    edges.map(|(from, to)| (from.as_str(), to.as_str()))
}

/// The shortest way from one folder to another by uses, both ends included.
fn way<'a>(graph: &'a Graph, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for next in graph.get(last).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

fn describe(name: &str, graph: &Graph, from: &str, to: &str, back: &[&str]) -> String {
    let mut text = format!("`{name}`: folder `{from}` uses `{to}`, which leads back to it:\n");
    let steps = back.windows(2).map(|step| (step[0], step[1]));
    for (from, to) in [(from, to)].into_iter().chain(steps) {
        let uses = &graph[from][to];
        for it in uses.iter().take(SHOWN) {
            let (file, line) = (&it.file, it.mention.line);
            let path = it.mention.path.join("::");
            let _ = writeln!(text, "  runtime/{name}/src/{file}:{line} uses {path}");
        }
        if uses.len() > SHOWN {
            let _ = writeln!(text, "  and {} more in `{from}`", uses.len() - SHOWN);
        }
    }
    text.push_str(
        "  Move what is used into the lower of the two folders, or pass it in as an argument.",
    );
    text
}

impl Sources {
    /// Reads a crate's files from its root on, by their places in `src`. `None` where there is no such file.
    fn load(read: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut next: Vec<Module> = vec![Vec::new()];
        while let Some(module) = next.pop() {
            let at = module.join("/");
            let places = match module.is_empty() {
                true => ["lib.rs".to_owned(), "main.rs".to_owned()],
                false => [format!("{at}.rs"), format!("{at}/mod.rs")],
            };
            let found = places.iter().find_map(|place| Some((place, read(place)?)));
            let (place, text) = found.with_context(|| format!("there is no {}", places[0]))?;
            let source = imports::read(&text).with_context(|| format!("in {place}"))?;
            let inner = source.modules.iter().filter(|name| *name != "tests");
            next.extend(inner.map(|name| [&module[..], std::slice::from_ref(name)].concat()));
            files.insert(module, (place.clone(), source));
        }
        Ok(Self(files))
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (module, (file, source)) in self.0.iter().filter(|(module, _)| !module.is_empty()) {
            let from = self.folder(module);
            let imports = source.imports.iter().filter(|it| !it.is_public);
            let mentions = imports.map(|it| &it.mention).chain(&source.paths);
            for mention in mentions {
                let Some(used) = self.absolute(module, &mention.path, 0) else {
                    continue;
                };
                let used = self.definition(&used, 0);
                let to = self.folder(&used);
                if !used.is_empty() && from != to {
                    let uses = graph
                        .entry(from.clone())
                        .or_default()
                        .entry(to)
                        .or_default();
                    uses.push(Use {
                        file: file.clone(),
                        mention: mention.clone(),
                    });
                }
            }
        }
        graph
    }

    fn folder(&self, module: &[String]) -> String {
        let is_inside = |it: &Module| it.len() > module.len() && it.starts_with(module);
        let (place, _) = &self.0[module];
        let folder = match place.ends_with("/mod.rs") || self.0.keys().any(is_inside) {
            true => module,
            false => &module[..module.len().saturating_sub(1)],
        };
        match folder.is_empty() {
            true => ".".to_owned(),
            false => folder.join("/"),
        }
    }

    /// A path in a module as one from the crate's root. `None` if it leads out of the crate, or to something local.
    fn absolute(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let parent = &module[..module.len().checked_sub(1)?];
                match rest.first().is_some_and(|it| it == "super") {
                    true => self.absolute(parent, rest, depth),
                    false => Some([parent, rest].concat()),
                }
            }
            _ => {
                let inner = [module, &path[..1]].concat();
                if self.0.contains_key(&inner) {
                    return Some([module, path].concat());
                }
                // What an item that is imported has in it is there, too: to import it is the use.
                let import = self.import(module, first).filter(|_| depth < MOST_STEPS)?;
                let imported = self.absolute(module, import, depth + 1)?;
                let imported = Some(imported).filter(|it| self.0.contains_key(it))?;
                Some([&imported[..], rest].concat())
            }
        }
    }

    /// The path that a module imports under a name.
    fn import(&self, module: &[String], name: &str) -> Option<&[String]> {
        let (_, source) = self.0.get(module)?;
        let import = source.imports.iter().find(|it| it.name == name)?;
        Some(&import.mention.path)
    }

    /// The module in which a thing is defined, by any path to it from the crate's root.
    fn definition(&self, path: &[String], depth: usize) -> Module {
        let lengths = (0..=path.len()).rev();
        let mut prefixes = lengths.map(|len| path.split_at(len));
        let known = prefixes.find(|(module, _)| self.0.contains_key(*module));
        let Some((module, [name, rest @ ..])) = known else {
            return path.to_vec();
        };
        if depth == MOST_STEPS {
            return module.to_vec();
        }
        let (_, source) = &self.0[module];
        let absolute = |path: &[String]| self.absolute(module, path, depth);
        if let Some(target) = self.import(module, name).and_then(absolute) {
            return self.definition(&[&target[..], rest].concat(), depth + 1);
        }
        if !source.items.contains(name) {
            let all = source.imports.iter().filter(|it| it.name == "*");
            for import in all {
                let path = &import.mention.path;
                let Some(target) = absolute(&path[..path.len() - 1]) else {
                    continue;
                };
                let target = self.definition(&target, depth + 1);
                if self
                    .0
                    .get(&target)
                    .is_some_and(|(_, it)| it.items.contains(name))
                {
                    return target;
                }
            }
        }
        module.to_vec()
    }
}

/// How many imports are followed from one name to the next: more than there are, but for cycles.
const MOST_STEPS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let read = |place: &str| {
            let found = files.iter().find(|(it, _)| *it == place);
            found.map(|(_, text)| (*text).to_owned())
        };
        Sources::load(read).unwrap().graph()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files);
        edges(&graph)
            .map(|(from, to)| format!("{from} -> {to}"))
            .collect()
    }

    #[test]
    fn a_file_beside_a_folder_belongs_to_it() {
        let files = [
            ("lib.rs", "mod a; mod b; mod tests; use a::X;"),
            ("a.rs", "mod c; use c::X;"),
            ("a/c.rs", "use crate::b::Y; use super::Z;"),
            ("b.rs", "fn f() { crate::a::g(); std::mem::drop(1); }"),
        ];
        assert_eq!(found(&files), [". -> a", "a -> ."]);
    }

    #[test]
    fn reexports_are_followed_to_the_folder_that_defines() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::d::D;"),
            (
                "a/mod.rs",
                "mod c; pub use crate::b::d; pub(crate) use crate::b::E;",
            ),
            ("a/c.rs", "use crate::D; use super::d::F; use super::E;"),
            ("b/mod.rs", "pub mod d; pub use d::*; mod e;"),
            ("b/d/mod.rs", "mod f; pub struct D; pub struct E;"),
            ("b/d/f.rs", ""),
            ("b/e.rs", "use super::d; fn f() { d::g() }"),
        ];
        assert_eq!(found(&files), ["a -> b/d", "b -> b/d"]);
        let uses = &graph(&files)["a"]["b/d"];
        let of_a: Vec<_> = uses.iter().map(|it| it.mention.path.join("::")).collect();
        assert_eq!(of_a, ["crate::D", "super::d::F", "super::E"]);
    }

    const CYCLE: &[(&str, &str)] = &[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a/mod.rs", "\nuse crate::b::B;\nuse crate::d::D;"),
        ("b/mod.rs", "use crate::c::C;"),
        ("c/mod.rs", "fn f() -> crate::a::A;"),
        ("d/mod.rs", ""),
    ];

    #[test]
    fn a_cycle_is_named_once_with_all_its_uses() {
        let expected = "\
`it`: folder `a` uses `b`, which leads back to it:
  runtime/it/src/a/mod.rs:2 uses crate::b::B
  runtime/it/src/b/mod.rs:1 uses crate::c::C
  runtime/it/src/c/mod.rs:1 uses crate::a::A
  Move what is used into the lower of the two folders, or pass it in as an argument.";
        assert_eq!(cycles("it", &graph(CYCLE)), [expected]);
    }

    #[test]
    fn two_cycles_through_one_folder_are_both_named() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "use crate::b::B;"),
            ("b/mod.rs", "use crate::a::A; use crate::c::C;"),
            ("c/mod.rs", "use crate::b::B;"),
        ];
        let found = cycles("it", &graph(&files));
        let [first, second] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(first.contains("folder `a` uses `b`"), "{first}");
        assert!(second.contains("folder `b` uses `c`"), "{second}");
    }

    #[test]
    fn names_that_lead_in_cycles_end() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "pub use crate::b::X; use Y::Z; use Z::Y; fn f() { Y::g() }",
            ),
            ("b.rs", "pub use crate::a::X; fn f() { X::g() }"),
        ];
        assert!(found(&files).is_empty());
    }
}
