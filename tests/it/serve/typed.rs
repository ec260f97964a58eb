//! Functions that requests call by routes.

use serde_json::{Value as Json, json};
use wasmrun_tests::{assert_says, guest};

use super::{Answer, Service, serve};
use crate::node::Node;

/// A request with a body of JSON.
#[track_caller]
pub(super) fn send(service: &Service, line: &str, body: &str) -> Answer {
    let mut client = service.open();
    let headers = format!(
        "Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    client.begin(line, &headers);
    client.send(body);
    client.answer()
}

fn order() -> Json {
    json!({
        "order": {
            "id": "A-17", "currency": "eur", "tier": "member",
            "items": [{"sku": "mug", "quantity": 3, "unit-price": 1250, "weight": 400}],
            "care": ["fragile"], "delivery": "pickup", "coupon": null
        },
        "rules": [{"tax": 1900}]
    })
}

#[test]
fn functions_answer_by_routes() {
    let route = ["--name", "shop", "--route", "POST /price=price"];
    let service = Service::start(serve("orders", &route));
    let price = |order: &Json| send(&service, "POST /price", &order.to_string());
    let invoice = price(&order()).json(200, "application/json");
    assert_eq!(invoice["order-id"], "A-17", "{invoice}");
    assert_eq!(invoice["subtotal"], 3750, "{invoice}");
    // What the function refuses.
    let mut elsewhere = order();
    elsewhere["order"]["delivery"] = json!({"parcel": "XX"});
    let refused = price(&elsewhere).json(422, "application/json");
    assert!(refused["error"]["cannot-deliver"].is_string(), "{refused}");
    // What does not get to it.
    let mut wrong = order();
    wrong["order"]["currency"] = "yen".into();
    let problem = price(&wrong).problem(400);
    assert_eq!(
        problem["errors"][0]["pointer"], "/order/currency",
        "{problem}"
    );
    let problem = price(&json!({"rules": []})).problem(400);
    assert_eq!(problem["errors"][0]["pointer"], "/order", "{problem}");
    send(&service, "POST /price", "{").problem(400);
    send(&service, "POST /price", r#"{"rules": [], "rules": []}"#).problem(400);
    service.get("/prices").problem(404);
    let method = service.get("/price");
    method.problem(405);
    assert_eq!(method.header("allow"), Some("POST"), "{method:?}");
    let openapi = service.get("/openapi.json").json(200, "application/json");
    assert_eq!(service.ask("HEAD /openapi.json").status, 200);
    let version = openapi["openapi"].as_str().expect("it has one");
    assert!(version.starts_with("3.1"), "{openapi}");
    assert_eq!(openapi["info"]["title"], "shop", "{openapi}");
    assert!(openapi["paths"]["/price"]["post"].is_object(), "{openapi}");
}

#[test]
fn parameters_come_from_paths_and_queries() {
    let routes = [
        "GET /numbers/{v}=echo-u32",
        "GET /texts=echo-string",
        "POST /texts=echo-string",
        "GET /option=echo-option",
        "POST /nothing=noop",
        "POST /trap=trap",
        "POST /fail=fail",
        "POST /spin=spin",
    ];
    let mut options = vec!["--time-limit", "1s"];
    options.extend(routes.iter().flat_map(|route| ["--route", *route]));
    let service = Service::start(serve("fixture", &options));
    let json = |line: &str| service.ask(line).json(200, "application/json");
    assert_eq!(json("GET /numbers/7"), 7);
    assert_eq!(json("GET /texts?v=a+b%2Bc"), "a b+c");
    assert_eq!(json("GET /option"), Json::Null);
    let problem = service.get("/numbers/x").problem(400);
    assert_eq!(problem["errors"][0]["parameter"], "v", "{problem}");
    let said = send(&service, "POST /texts", "\"said\"").json(200, "application/json");
    assert_eq!(said, "said");
    let nothing = service.ask("POST /nothing");
    assert_eq!((nothing.status, &*nothing.body), (204, ""));
    let refused = send(&service, "POST /fail", "\"no\"").json(422, "application/json");
    assert_eq!(refused, json!({"error": "no"}));
    let trap = service.ask("POST /trap").problem(500);
    assert!(trap["task"].is_string(), "{trap}");
    service.ask("POST /spin").problem(504);
    assert_eq!(json("GET /numbers/8"), 8);
}

#[test]
fn a_policy_answers_while_it_is_trained() {
    let node = Node::start();
    let module = guest("reinforce");
    let create = node.wasmrun(["actor", "create"]).arg(&module);
    create.args(["policy-server", "--name", "policy"]).ok();
    let serve = node.wasmrun(["serve", "--listen", "127.0.0.1:0"]);
    let route = ["--route", "GET /act=actor:policy.act"];
    let service = Service::start(serve.arg(&module).args(route));
    let generation = || {
        let action = service.get("/act?position=0&speed=0&angle=0.05&spin=0");
        let action = action.json(200, "application/json");
        assert!(action["right"].is_boolean(), "{action}");
        action["generation"].as_u64().expect("a number")
    };
    assert_eq!(generation(), 0);
    let train = node.wasmrun(["submit"]).arg(&module);
    let mut train = train.args(["--invoke", "train(6, 4, 100)"]).start();
    let mut seen = vec![0];
    while train.is_running() {
        seen.push(generation());
    }
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    // The first, the last, and some while it went on.
    assert!(seen.len() > 3, "{seen:?}");
    let problem = service.get("/act?position=x&speed=0&angle=0&spin=0");
    let problem = problem.problem(400);
    assert_eq!(problem["errors"][0]["parameter"], "position", "{problem}");
    let ended = train.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let updates = format!("updates: {},", generation());
    assert_says(&ended.stdout_text(), &[&updates]);
}

#[test]
fn pages_of_other_sites_send_no_body() {
    let route = ["--route", "POST /texts=echo-string"];
    let service = Service::start(serve("fixture", &route));
    // What a browser sends without asking first.
    for kind in ["Content-Type: text/plain\r\n", ""] {
        let mut client = service.open();
        let head = "POST /texts HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        client.send(&format!("{head}{kind}Content-Length: 3\r\n\r\n\"a\""));
        let problem = client.answer().problem(415);
        assert_says(&problem["detail"].to_string(), &["application/json"]);
    }
    let empty = service.ask("POST /texts").problem(400);
    assert_eq!(empty["errors"][0]["pointer"], "", "{empty}");
}

#[test]
fn a_body_without_end_is_too_large() {
    let options = ["--max-arguments", "1KiB", "--concurrency", "1"];
    let route = ["--route", "POST /texts=echo-string"];
    let service = Service::start(serve("fixture", &[options.as_slice(), &route].concat()));
    let mut endless = service.open();
    let headers =
        "Connection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    endless.begin("POST /texts", headers);
    endless.piece(&"\"".repeat(2 << 10));
    endless.answer().problem(413);
    let answer = send(&service, "POST /texts", "\"a\"");
    assert_eq!(answer.json(200, "application/json"), "a");
}

#[test]
fn a_body_that_takes_its_time_keeps_nobody_from_being_served() {
    let options = ["--time-limit", "1s", "--concurrency", "1"];
    let route = ["--route", "POST /texts=echo-string"];
    let service = Service::start(serve("fixture", &[options.as_slice(), &route].concat()));
    let mut slow = service.open();
    let headers = "Connection: close\r\nContent-Type: application/json\r\nContent-Length: 9\r\n";
    slow.begin("POST /texts", headers);
    slow.send("\"");
    slow.answer().problem(408);
    let answer = send(&service, "POST /texts", "\"a\"");
    assert_eq!(answer.json(200, "application/json"), "a");
}
