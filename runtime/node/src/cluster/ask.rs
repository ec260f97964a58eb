//! Asking other nodes what clients want to know.
//!
//! Owns how long a node is waited for, and how many are asked at a time. Must not: know what is asked.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use wasmrun_model::id::NodeId;
use wasmrun_model::wire::Silent;
use wasmrun_net::CallError;

use super::Cluster;
use crate::peers::ask::{Answer, Answers, Asked};
use crate::peers::{Fabric, Request, Response};

/// How long a node is waited for. People wait, and those that answer do so in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many nodes are asked at a time.
const MOST_ASKED: usize = 64;

impl Cluster {
    /// Asks all other nodes that live, at once. It takes as long as the slowest of them, at most [`PATIENCE`] or
    /// little more.
    pub(crate) async fn ask_all(&self, asked: &Asked) -> Answers {
        let mut all = Answers::default();
        let members = self.members();
        let mut others = members
            .into_iter()
            .filter(|it| !it.is_own && it.state != "dead");
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < MOST_ASKED
                && let Some(other) = others.next()
            {
                if other.state == "unreachable" {
                    let why = "there is no connection to it".to_owned();
                    all.silent.push(Silent {
                        node: other.name,
                        why,
                    });
                    continue;
                }
                under_way.push(async move { (self.ask(other.id, asked).await, other) });
            }
            match under_way.next().await {
                Some((Ok(answer), other)) => all.answers.push((other.id, answer)),
                Some((Err(why), other)) => all.silent.push(Silent {
                    node: other.name,
                    why,
                }),
                None => break,
            }
        }
        all.silent.sort_by(|one, other| one.node.cmp(&other.node));
        all
    }

    /// Asks one node. Else why there is no answer, for people.
    pub(crate) async fn ask(&self, node: NodeId, asked: &Asked) -> Result<Answer, String> {
        let request = Request::Ask(Box::new(asked.clone()));
        match self.request(node, request, PATIENCE).await {
            Ok(Response::Answered(answer)) => match *answer {
                Answer::NotServed => Err("it answers no clients".to_owned()),
                answer => Ok(answer),
            },
            Ok(_) => Err("it has answered with something else".to_owned()),
            Err(CallError::NotUnderstood | CallError::TooNew(_)) => {
                Err("its wasmrun is too old to be asked".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
