//! The files under `deploy/`: the unit works with the real program, manifests are what Kubernetes takes, alerts are about
//! metrics that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Namespace, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, binary, scratch, skipped};

use crate::cluster::Member;
use crate::metrics;

fn deploy(file: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.parent().expect("the package is in the checkout");
    root.join("deploy").join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(deploy(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A folder of its own with this name, which systemd would have made.
fn folder(dir: &Path, name: &str) -> String {
    let folder = dir.join(name);
    fs::create_dir(&folder).expect("the scratch folder can be written");
    folder.to_str().expect("text").to_owned()
}

#[test]
fn the_unit_starts_a_node_that_says_when_it_is_ready_and_when_it_stops() {
    let unit = text("systemd/wasmrun.service");
    let of = |key: &str| {
        let lines = unit.lines();
        let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("Type"), ["notify"]);
    let dir = scratch();
    let specifiers = ["%S", "%C", "%t"].map(|it| (it, folder(dir.path(), &it[1..])));
    let command = of("ExecStart").pop().expect("it starts something");
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("/usr/local/bin/wasmrun"));
    let args = words.flat_map(|word| match word {
        "$WASMRUN_OPTIONS" => vec!["--head", "--listen", "127.0.0.1:0"],
        // Another may use the port.
        "--metrics" => vec!["--metrics=127.0.0.1:0"],
        word => vec![word],
    });
    let notify = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).expect("the scratch folder can be written");
    let mut start = Wasmrun::new(args).env("NOTIFY_SOCKET", &notify);
    for variable in of("Environment") {
        let (name, value) = variable.split_once('=').expect("NAME=VALUE");
        let value = specifiers
            .iter()
            .fold(value.to_owned(), |value, (it, folder)| {
                value.replace(it, folder)
            });
        start = start.env(name, value);
    }
    let running = start.start();
    let told = || {
        let mut bytes = [0; 256];
        let len = systemd.recv(&mut bytes).expect("it is told");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=node "), "{ready}");
    running.signal(Signal::TERM);
    assert!(told().starts_with("STOPPING=1\n"));
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    // No token where everybody reads it.
    assert_eq!(ended.stdout_text(), "");
    assert!(!ended.stderr.contains("wasmrun-join"), "{ended}");
    // What it keeps is where the unit says.
    for kept in [
        "S/wasmrun/identity.pem",
        "S/wasmrun/authority.pem",
        "C/wasmrun",
    ] {
        assert!(dir.path().join(kept).exists(), "{kept}");
    }
}

#[test]
fn systemd_understands_the_unit() {
    let dir = scratch();
    let program = binary().to_str().expect("text");
    let unit = text("systemd/wasmrun.service").replace("/usr/local/bin/wasmrun", program);
    let path = dir.path().join("wasmrun.service");
    fs::write(&path, unit).expect("the scratch folder can be written");
    let analyze = |args: &[&str]| {
        let ended = Command::new("systemd-analyze")
            .args(args)
            .arg(&path)
            .output();
        match ended {
            Ok(ended) => Some(ended),
            Err(why) => {
                let why =
                    format!("there is no systemd-analyze here ({why}): install Debian's systemd");
                skipped("WASMRUN_REQUIRE_SYSTEMD", &why);
                None
            }
        }
    };
    let Some(verified) = analyze(&["verify", "--man=no"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    // Other units of the machine are none of ours.
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("wasmrun"))
        .collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
    // How much an attacker in it could do, of 10; one decimal is left out.
    let security = analyze(&["security", "--offline=true", "--threshold=20", "--no-pager"]);
    let security = security.expect("it was there before");
    let said = String::from_utf8_lossy(&security.stdout).into_owned();
    assert!(security.status.success(), "{said}");
}

/// The documents of a file of YAML.
fn documents(file: &str) -> Vec<Json> {
    let text = text(file);
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let documents =
        documents.map(|it| Json::deserialize(it).unwrap_or_else(|error| panic!("{file}: {error}")));
    documents.collect()
}

/// What a document is, which must have nothing that Kubernetes does not know.
#[track_caller]
fn typed<T: Serialize + DeserializeOwned>(document: &Json) -> T {
    let typed: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{error}: {document:#}"));
    let again = serde_json::to_value(&typed).expect("it was JSON");
    assert_within(document, &again, "");
    typed
}

/// What Kubernetes' types do not know is not in what comes out of them. They may add what goes without saying.
#[track_caller]
fn assert_within(given: &Json, known: &Json, at: &str) {
    match (given, known) {
        (Json::Object(given), Json::Object(known)) => {
            for (key, value) in given {
                let at = format!("{at}.{key}");
                let known = known.get(key);
                let known = known.unwrap_or_else(|| panic!("Kubernetes does not know {at}"));
                assert_within(value, known, &at);
            }
        }
        (Json::Array(given), Json::Array(known)) if given.len() == known.len() => {
            for (number, (given, known)) in given.iter().zip(known).enumerate() {
                assert_within(given, known, &format!("{at}[{number}]"));
            }
        }
        (given, known) => assert_eq!(given, known, "{at}"),
    }
}

#[test]
#[should_panic(expected = "Kubernetes does not know .spec.replica")]
fn a_typing_error_in_a_manifest_is_found() {
    let mut document = documents("kubernetes/head.yaml").remove(1);
    document["spec"]["replica"] = 1.into();
    typed::<StatefulSet>(&document);
}

#[test]
fn manifests_are_what_kubernetes_takes() {
    let mut sets = Vec::new();
    let mut services = Vec::new();
    let listed = kustomization().resources;
    let example = "secret.example.yaml".to_owned();
    for file in listed.iter().chain([&example]) {
        for document in documents(&format!("kubernetes/{file}")) {
            match document["kind"].as_str().expect("it has a kind") {
                "Namespace" => drop(typed::<Namespace>(&document)),
                "Secret" => drop(typed::<Secret>(&document)),
                "PodDisruptionBudget" => drop(typed::<PodDisruptionBudget>(&document)),
                "NetworkPolicy" => drop(typed::<NetworkPolicy>(&document)),
                "Service" => services.push(typed::<Service>(&document)),
                "StatefulSet" => sets.push(typed::<StatefulSet>(&document)),
                other => panic!("{file}: nothing checks a {other}"),
            }
        }
    }
    let on_disk = fs::read_dir(deploy("kubernetes"))
        .expect("the folder")
        .flatten();
    let on_disk: BTreeSet<String> = on_disk
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .collect();
    let known = listed
        .iter()
        .cloned()
        .chain([example, "kustomization.yaml".to_owned()]);
    assert_eq!(on_disk, known.collect());
    assert_eq!(sets.len(), 2);
    let names: Vec<_> = services
        .iter()
        .filter_map(|it| it.metadata.name.clone())
        .collect();
    for set in &sets {
        let spec = set.spec.as_ref().expect("a spec");
        let name = spec.service_name.clone().expect("a service of its own");
        assert!(names.contains(&name), "{name}");
        let labels = spec
            .template
            .metadata
            .as_ref()
            .and_then(|it| it.labels.clone())
            .expect("labels");
        let wanted = spec.selector.match_labels.clone().expect("a selector");
        assert!(
            wanted
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        );
        let pod = spec.template.spec.as_ref().expect("a pod");
        assert_eq!(pod.automount_service_account_token, Some(false));
        for container in &pod.containers {
            check_container(container, &names);
        }
    }
    // What services send on, a container takes.
    for service in &services {
        let ports = service
            .spec
            .iter()
            .flat_map(|it| it.ports.clone().unwrap_or_default());
        for port in ports {
            let target = format!("{:?}", port.target_port);
            assert!(
                target.contains("quic") || target.contains("metrics"),
                "{target}"
            );
        }
    }
}

/// As much of a Kustomization as ours has, and nothing else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    api_version: String,
    kind: String,
    resources: Vec<String>,
    images: Vec<Image>,
}

/// An image that manifests name, and which one is meant.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Image {
    name: String,
    new_tag: String,
}

fn kustomization() -> Kustomization {
    let text = text("kubernetes/kustomization.yaml");
    serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// The names and tags of the images of all containers, each once.
fn images() -> BTreeSet<(String, String)> {
    let files = kustomization().resources;
    let documents = files
        .iter()
        .flat_map(|file| documents(&format!("kubernetes/{file}")));
    let sets = documents.filter(|it| it["kind"] == "StatefulSet");
    let pods = sets.map(|it| it["spec"]["template"]["spec"].clone());
    let containers = pods.flat_map(|pod| {
        let kinds = ["initContainers", "containers"].map(|kind| pod[kind].clone());
        let containers = kinds.into_iter();
        containers.flat_map(|it| it.as_array().cloned().unwrap_or_default())
    });
    let images = containers.map(|it| {
        let image = it["image"].as_str().expect("an image");
        let (name, tag) = image.split_once(':').expect("a tag");
        (name.to_owned(), tag.to_owned())
    });
    images.collect()
}

#[test]
fn the_image_to_be_named_is_that_of_the_containers() {
    let kustomization = kustomization();
    assert_eq!(
        (&*kustomization.api_version, &*kustomization.kind),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    );
    let named = kustomization.images.into_iter();
    let named = named.map(|image| (image.name, image.new_tag));
    // Kustomize says nothing where it replaces nothing. Each container has what is built of this version.
    let built = ("wasmrun".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    assert_eq!(images(), BTreeSet::from([built]));
    assert_eq!(named.collect::<BTreeSet<_>>(), images());
}

#[test]
fn the_image_is_made_of_what_the_build_leaves() {
    let text = text("Dockerfile");
    let steps = text.lines().filter(|line| !line.starts_with('#'));
    let steps = steps.map(|line| line.split_once(' ').expect("what to do, and with what"));
    let steps: Vec<(&str, &str)> = steps.collect();
    let known = ["FROM", "COPY", "USER", "ENTRYPOINT"];
    assert_eq!(steps.iter().map(|step| step.0).collect::<Vec<_>>(), known);
    let steps = BTreeMap::from_iter(steps);
    // The folder that it is built from is cargo's.
    let (from, to) = steps["COPY"]
        .split_once(' ')
        .expect("from where, and where to");
    let built = binary().with_file_name(from);
    assert!(built.is_file(), "{} is not there", built.display());
    assert_eq!(steps["ENTRYPOINT"], format!("[\"{to}\"]"));
    // Whoever the image is for is whom the pods run it as.
    for file in ["head", "nodes"] {
        let documents = documents(&format!("kubernetes/{file}.yaml"));
        let mut sets = documents.iter().filter(|it| it["kind"] == "StatefulSet");
        let pod = &sets.next().expect("a set")["spec"]["template"]["spec"];
        let context = &pod["securityContext"];
        let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
        assert_eq!(steps["USER"], user, "{file}");
    }
    // And the command for it that people are told names the image as the manifests do.
    let build = text.lines().find(|line| line.contains("docker build"));
    let build = build.expect("it says how it is built");
    for (name, tag) in images() {
        assert!(build.contains(&format!(" -t {name}:{tag} ")), "{build}");
    }
}

fn check_container(container: &Container, services: &[String]) {
    let args = container.args.clone().expect("arguments");
    let env = container.env.iter().flatten().map(|it| it.name.clone());
    let hosts = services
        .iter()
        .map(|it| format!("{}_SERVICE_HOST", it.replace('-', "_").to_uppercase()));
    let known: BTreeSet<String> = env.chain(hosts).collect();
    let sample = |name: &str| match name {
        "POD_NAME" => "wasmrun-node-0",
        "POD_IP" | "WASMRUN_HEAD_SERVICE_HOST" => "10.0.0.7",
        other => panic!("the manifests use {other}, of which this test knows nothing"),
    };
    let args = args.iter().map(|arg| {
        let mut arg = arg.clone();
        while let Some((before, rest)) = arg.split_once("$(") {
            let (name, after) = rest.split_once(')').expect("it ends");
            assert!(known.contains(name), "nothing sets {name}");
            arg = format!("{before}{}{after}", sample(name));
        }
        arg
    });
    // Each option and value is read before the help is shown.
    let args: Vec<String> = args.chain(["--help".to_owned()]).collect();
    assert!(Wasmrun::new(&args).ok().contains("--metrics"), "{args:?}");
    let wrong = Wasmrun::new(&args).args_before_last("--no-such-option");
    assert!(wrong.fails(2).contains("--no-such-option"));
    let ports: BTreeMap<String, i32> = container
        .ports
        .iter()
        .flatten()
        .map(|it| (it.name.clone().expect("a name"), it.container_port))
        .collect();
    let listens = |option: &str, port: &str| {
        let arg = args
            .iter()
            .find(|it| it.starts_with(option))
            .expect("it is given");
        assert!(arg.ends_with(&format!(":{}", ports[port])), "{arg}");
    };
    listens("--listen=", "quic");
    listens("--metrics=", "metrics");
    let probes = [
        &container.liveness_probe,
        &container.readiness_probe,
        &container.startup_probe,
    ];
    for probe in probes {
        let get = probe
            .as_ref()
            .and_then(|it| it.http_get.clone())
            .expect("a probe over HTTP");
        assert!(["/healthz", "/readyz"].contains(&&*get.path.expect("a path")));
        assert!(format!("{:?}", get.port).contains("metrics"));
    }
    let context = container
        .security_context
        .as_ref()
        .expect("it is restricted");
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
}

/// Prometheus' own tool.
pub(crate) fn promtool() -> Option<OsString> {
    let named = std::env::var_os("WASMRUN_PROMTOOL");
    if named.is_none() {
        let why =
            "no promtool is named in WASMRUN_PROMTOOL: `cargo xtask test` finds or unpacks one";
        skipped("WASMRUN_REQUIRE_PROMTOOL", why);
    }
    named
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    let alerts = text("prometheus/alerts.yaml");
    if let Some(promtool) = promtool() {
        let checked = Command::new(promtool)
            .args(["check", "rules", "--lint=all", "--lint-fatal"])
            .arg(deploy("prometheus/alerts.yaml"))
            .output()
            .expect("promtool starts");
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
    let mut head = Member::new("a");
    let args = ["--head", "--listen", "127.0.0.1:0", "--metrics=127.0.0.1:0"];
    let address = head.watched(&args, metrics::address);
    let (_, served) = metrics::get(address, "/metrics");
    let served: BTreeSet<&str> = served
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let docs = fs::read_to_string(deploy("../docs/operations.md")).expect("the page");
    let mut seen = 0;
    for text in [&alerts, &docs] {
        let words = text.split(|c| !is_name(c));
        let suffix = ["_bucket", "_sum", "_count"];
        // These say whose log is meant.
        let words = words.filter(|it| !["wasmrun_net", "wasmrun_node"].contains(it));
        for word in words.filter(|it| it.starts_with("wasmrun_")) {
            let family = suffix
                .iter()
                .find_map(|it| word.strip_suffix(it))
                .unwrap_or(word);
            assert!(served.contains(family), "there is no metric {word}");
            seen += 1;
        }
    }
    assert!(seen > 20);
    // Each alert has its place in the page.
    for name in alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(
            docs.contains(name),
            "docs/operations.md says nothing about {name}"
        );
    }
}

#[test]
fn a_token_may_come_in_the_environment() {
    let (head, token) = Member::head("a");
    let mut b = Member::new("b");
    b.start_with_env(&["--join"], ("WASMRUN_JOIN_TOKEN", &token));
    head.wait_for_incarnation("b", 1);
    b.stop();
    // What is wrong with one is said without it.
    let c = Member::new("c");
    let cut = &token[..token.len() - 1];
    let said = c.refused_with_env(&["--join"], ("WASMRUN_JOIN_TOKEN", cut));
    assert!(
        said.contains("WASMRUN_JOIN_TOKEN: ") && !said.contains(&cut[20..]),
        "{said}"
    );
    // Who has joined needs none, and does not mind one.
    b.start_with_env(&["--join"], ("WASMRUN_JOIN_TOKEN", &token));
    head.wait_for_incarnation("b", 2);
    let mut running = b.command(&["status"]).start();
    running.wait_for(Stream::Out, "cluster of");
}
