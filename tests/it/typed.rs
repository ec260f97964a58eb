//! A driver in Rust with the types of its modules: code that `wasmrun-bindgen` has made as these tests were built
//! (`build.rs`), of the WIT of guests. And the command that makes such code.

use std::fs;
use std::path::PathBuf;

use wasmrun_client::blocking::Client;
use wasmrun_client::typed::{self, Amount, Object};
use wasmrun_client::{Error, GetError};
use wasmrun_model::failure::TaskError;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

mod fixture {
    include!(concat!(env!("OUT_DIR"), "/fixture.rs"));
}

mod graph {
    include!(concat!(env!("OUT_DIR"), "/graph.rs"));
}

use self::fixture::Fixture;
use self::fixture::types::{Person, Point, Rights, Role, Shape};
use self::graph::Graph;
use self::graph::tests::Counter;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A node, and a session with it.
fn start() -> (Node, Client) {
    let node = Node::start();
    let address = format!("unix:{}", node.socket().display());
    let client = Client::connect(&address.parse().unwrap(), Default::default()).unwrap();
    (node, client)
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(guest(name)).unwrap()
}

#[test]
fn values_of_every_kind_come_back_as_they_were() -> Outcome {
    let (_node, client) = start();
    let person = Person {
        full_name: "Ann".into(),
        age: 40,
        home: Some(Point { x: 1.5, y: -2.0 }),
        tags: vec!["é".into()],
        role: Role::SiteAdmin,
        rights: Rights {
            read: true,
            run_jobs: true,
            ..Rights::default()
        },
    };
    let shapes = vec![
        Shape::Empty,
        Shape::Circle(0.5),
        Shape::Named(("p".into(), Point { x: 0.0, y: 1.0 })),
    ];
    let nested = vec![("some".to_owned(), Some(shapes)), ("none".into(), None)];
    client.wait(async {
        let it = Fixture::load(&client, &bytes("fixture")).await?;
        macro_rules! same {
            ($($function:ident: $value:expr),* $(,)?) => {$(
                let value = $value;
                assert_eq!(it.$function(&value).remote().await?.get().await?, value);
            )*};
        }
        same!(
            echo_bool: true,
            echo_s8: -8,
            echo_s64: i64::MIN,
            echo_u64: u64::MAX,
            echo_f32: 0.25,
            echo_char: 'é',
            echo_string: "text".to_owned(),
            echo_bytes: vec![0, 255],
            echo_list_s32: vec![i32::MIN, 7],
            echo_list_f64: vec![1.5, f64::INFINITY],
            echo_list_string: vec!["a".to_owned()],
            echo_list_result: vec![Ok(1), Err("no".to_owned())],
            echo_matrix: vec![vec![1, 300], vec![]],
            echo_tuple: (1, "one".to_owned(), true),
            echo_option_option: Some(None),
            echo_result_empty: Ok(()),
            echo_result: Err("returned".to_owned()),
            echo_person: person,
            echo_enum: Role::Member,
            echo_nested: nested,
        );
        // Texts and arrays stand for what they become.
        let joined = it.join("ab", 2, None).remote().await?.get().await?;
        assert_eq!(joined, "abab");
        it.noop().remote().await?.get().await?;
        let list = it.echo_list_f64([0.5]).remote().await?.get().await?;
        assert_eq!(list, [0.5]);
        // A name that two interfaces have.
        assert_ne!(
            it.a_who().remote().await?.get().await?,
            it.b_who().remote().await?.get().await?
        );
        let info = it.context_info().cpus("0.5".parse::<Amount>()?);
        let info = info.remote().await?.get().await?;
        let cpus = info.resources.iter().find(|held| held.name == "CPU");
        assert_eq!(cpus.map(|held| held.amount), Some(5000));
        Outcome::Ok(())
    })
}

#[test]
fn futures_are_arguments_and_errors_are_values() -> Outcome {
    let (_node, client) = start();
    client.wait(async {
        let it = Graph::load(&client, &bytes("graph")).await?;
        let four = it.add(1, 3).remote().await?;
        let eight = it.double_even(&four).remote().await?;
        assert_eq!(eight.get().await?, Ok(8));
        // Where a value is wanted, the future of a result stands for its ok case.
        let nine = it.add(&eight, 1).remote().await?;
        assert_eq!(nine.get().await?, 9);
        let odd = it.double_even(&nine).remote().await?;
        assert_eq!(odd.get().await?, Err("9 is odd".to_owned()));
        // Other failures are no values: of what needs it, and of what crashes.
        let failed = it.add(&odd, 1).remote().await?.get().await;
        assert!(matches!(
            failed,
            Err(GetError::Failed {
                error: TaskError::Dependency { .. },
                ..
            })
        ));
        let crashed = it.crash().remote().await?.get().await;
        assert!(matches!(
            crashed,
            Err(GetError::Failed {
                error: TaskError::Trap { .. },
                ..
            })
        ));

        // A list of numbers goes to where it is read, and a handle is passed on as it is.
        let numbers = it.range(0, 10_000).remote().await?;
        let sum = it.sum(&numbers).remote().await?;
        assert_eq!(sum.get().await?, 49_995_000);
        let passed: Object = it.pass_on(&numbers).remote().await?.get().await?;
        assert_eq!(passed, Object::from(&numbers));
        drop(numbers);
        let again = it.pass_on(passed).remote().await?.get().await?;
        let numbers = again.typed::<Vec<u32>>();
        assert_eq!(numbers.get().await?.len(), 10_000);
        // That it is of another type is found out.
        let wrong = again.typed::<Vec<f64>>().get().await;
        assert!(matches!(
            wrong,
            Err(GetError::Request(Error::OtherTypes(_)))
        ));
        Outcome::Ok(())
    })
}

#[test]
fn classes_are_types() -> Outcome {
    let (_node, client) = start();
    client.wait(async {
        let it = Graph::load(&client, &bytes("graph")).await?;
        let total = Counter::create(&it, 40).named("total").await?;
        let one = it.add(0, 1).remote().await?;
        total.add(&one).await?;
        it.count_for(total.actor(), 1).remote().await?.get().await?;
        assert_eq!(total.add(0).await?.get().await?, 42);
        // By its name, and within a value.
        let found: Counter = typed::actor(client.find_actor("total").await?)?;
        let other = Counter::create(&it, 1).await?;
        let relayed = found.relay(other.actor(), None).await?.get().await?;
        assert!(relayed.is_ok(), "{relayed:?}");
        let third = Counter::create(&it, 1).await?;
        let handle = Some(typed::ActorHandle::from(third.actor()));
        let relayed = found.relay(other.actor(), handle).await?.get().await?;
        assert!(relayed.is_ok(), "{relayed:?}");
        assert_eq!(third.add(0).await?.get().await?, 2);
        Outcome::Ok(())
    })
}

#[test]
fn another_module_is_refused() {
    let (_node, client) = start();
    let loaded = client.wait(Graph::load(&client, &bytes("fixture")));
    let text = loaded.unwrap_err().to_string();
    let name = "wasmrun:graph/tests@0.1.0#add is not what the module exports";
    assert_says(&text, &[name, "wasmrun stubs MODULE --lang rust"]);
}

#[test]
fn the_command_writes_the_code_of_a_module() {
    let dir = scratch();
    let out = dir.path().join("orders.rs");
    let stubs = |module: PathBuf| {
        Wasmrun::new(["stubs", "--lang", "rust", "--out"])
            .arg(&out)
            .arg(module)
    };
    stubs(guest("orders")).ok();
    let code = fs::read_to_string(&out).unwrap();
    assert_says(
        &code,
        &[
            "pub struct Orders(typed::Module);",
            "    pub fn price(\n",
            ") -> typed::Call<Result<pricing::Invoice, pricing::OrderError>> {",
            "        pub only_for: Option<Tier>,\n",
        ],
    );
    let printed = Wasmrun::new(["stubs", "--lang", "rust", "--out", "-"])
        .arg(guest("orders"))
        .dir(dir.path());
    assert_eq!(printed.ok(), code);
    assert!(!dir.path().join("-").exists());
    let wrong = dir.path().join("wrong.wasm");
    fs::write(&wrong, "no module").unwrap();
    stubs(wrong).fails_saying(2, &["wrong.wasm has no types to make code of"]);
}
