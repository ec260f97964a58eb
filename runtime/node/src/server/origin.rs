//! Where a client is, and what it may ask for from there.
//!
//! Owns the rules for clients of other machines. They may do all that has to do with work. Not what would make
//! more of them than clients: the node's files are read with its user's rights, its keys among them, a token
//! for nodes makes a node of whoever has it, and who says what tenants are due takes from others; and not what they
//! could not undo.

use wasmrun_model::wire::{CHUNK_BYTES, Grants, List, Refusal, RefusalKind, Request, What};
use wasmrun_net::ClientId;

use super::session::refusal;

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// At the socket, which only the node's own user can open.
    Here,
    /// Somewhere on the network, with this certificate.
    Network(ClientId),
}

impl Origin {
    pub(super) fn is_here(self) -> bool {
        self == Self::Here
    }

    /// Whether a client may ask for this from there.
    pub(super) fn check(self, request: &Request) -> Result<(), Refusal> {
        if self.is_here() {
            return Ok(());
        }
        let why = match request {
            Request::Dashboard => {
                "a link to a node's page is made on its own machine, through its socket: `wasmrun dashboard` there"
            }
            Request::Stop { .. } => {
                "a node is stopped on its own machine, where it can be started again: `wasmrun node stop` there; \
                 `wasmrun node drain NODE` lets it take no new work from anywhere"
            }
            Request::CreateToken { .. }
            | Request::RevokeToken(_)
            | Request::List(List {
                what: What::Tokens, ..
            }) => {
                "tokens let others in, so they are made, listed and revoked on the machine of a node: \
                 `wasmrun node token` there"
            }
            Request::RevokeClient(_)
            | Request::List(List {
                what: What::Clients,
                ..
            }) => {
                "who is a client of the cluster is listed and changed on the machine of a node, by whoever may use its \
                 socket: `wasmrun client` and `wasmrun node token` there"
            }
            Request::RemoveNode { .. } => {
                "a node is removed from the cluster on the machine of another, by whoever may use its socket: `wasmrun node \
                 remove` there; `wasmrun node drain NODE` lets it take no new work from anywhere"
            }
            Request::SetTenant(_) | Request::RemoveTenant(_) => {
                "what tenants are due is set on the machine of a node, by whoever may use its socket: `wasmrun tenant` \
                 there; `wasmrun tenant list` works from anywhere"
            }
            Request::Scheduling(choices) if !choices.is_empty() => {
                "how the cluster schedules is set on the machine of a node, by whoever may use its socket: `wasmrun \
                 scheduling set` there; `wasmrun scheduling` works from anywhere"
            }
            Request::SetResource(_) => {
                "what a node has is changed on the machine of a node, by whoever may use its socket: `wasmrun node \
                 resource` there"
            }
            request if grants(request).is_some_and(|it| !it.dirs.is_empty()) => {
                "--dir opens a directory of the node's machine, with the rights of the node's user, and \
                 only clients on that machine may have it: put what the task needs, and pass the objects"
            }
            Request::Chunk(bytes) if bytes.0.len() > CHUNK_BYTES => {
                "a client of another machine sends at most 256 KiB in a chunk"
            }
            _ => return Ok(()),
        };
        Err(refusal(RefusalKind::Usage, why))
    }
}

/// What a request would have a guest reach.
pub(super) fn grants(request: &Request) -> Option<&Grants> {
    match request {
        Request::Submit(submit)
        | Request::SubmitOnce { submit, .. }
        | Request::SubmitAll { submit, .. } => Some(&submit.grants),
        Request::Create(create) => Some(&create.grants),
        Request::Serve(serve) => Some(&serve.grants),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{Digest, DriverId, TaskId};
    use wasmrun_model::wire::{self, Bytes, Create, Dir, Entry, Input, Submit, Wishes};

    use super::*;

    const THERE: Origin = Origin::Network(ClientId::from_bytes([7; 16]));

    fn submit(grants: Grants) -> Box<Submit> {
        Box::new(Submit {
            module: Digest::from_bytes([9; 32]),
            entry: Entry::Program,
            name: String::new(),
            values: Vec::new(),
            args: Vec::new(),
            array_index: None,
            terms: wire::Terms::default(),
            limits: wire::Limits::default(),
            grants,
            input: Input::Empty,
            is_watched: false,
            is_detached: false,
            trace: None,
        })
    }

    /// All the ways to have something run with these grants.
    fn runs(grants: &Grants) -> [Request; 4] {
        let create = Create {
            module: Digest::from_bytes([9; 32]),
            class: "c".into(),
            values: Vec::new(),
            name: None,
            terms: wire::Terms::default(),
            limits: wire::Limits::default(),
            grants: grants.clone(),
            wishes: Wishes::default(),
            is_detached: false,
            trace: None,
        };
        [
            Request::Submit(submit(grants.clone())),
            Request::SubmitOnce {
                task: TaskId::from_bytes([1; 16]),
                submit: submit(grants.clone()),
                job: wire::Job {
                    id: DriverId::detached([1; 16]),
                    name: String::new(),
                    tasks: 0,
                },
                is_again: false,
            },
            Request::SubmitAll {
                submit: submit(grants.clone()),
                calls: vec![Vec::new()],
            },
            Request::Create(Box::new(create)),
        ]
    }

    fn list(what: What) -> Request {
        Request::List(List::of(what))
    }

    fn chunk(len: usize) -> Request {
        Request::Chunk(Bytes(vec![0; len]))
    }

    fn token(is_for_clients: bool) -> Request {
        Request::CreateToken {
            is_for_clients,
            is_reusable: false,
            lifetime_ms: 1,
            name: is_for_clients.then(|| "ci".into()),
        }
    }

    /// Refused from elsewhere, with these words, and nowhere else.
    #[track_caller]
    fn is_for_here(request: &Request, words: &str) {
        let refused = THERE.check(request).expect_err("not from there");
        assert_eq!(refused.kind, RefusalKind::Usage);
        assert!(refused.message.contains(words), "{}", refused.message);
        assert_eq!(Origin::Here.check(request), Ok(()));
    }

    #[track_caller]
    fn is_for_all(request: &Request) {
        for origin in [Origin::Here, THERE] {
            assert_eq!(origin.check(request), Ok(()), "{origin:?}");
        }
    }

    #[test]
    fn who_is_elsewhere_stops_no_node() {
        for is_now in [false, true] {
            is_for_here(&Request::Stop { is_now }, "wasmrun node stop");
        }
        let removal = Request::RemoveNode {
            node: "a".into(),
            is_forced: true,
        };
        is_for_here(&removal, "wasmrun node remove");
        // What can be undone from there may be done from there.
        is_for_all(&Request::Drain {
            node: "a".into(),
            is_draining: true,
        });
    }

    #[test]
    fn who_is_elsewhere_lets_nobody_in() {
        for is_for_clients in [false, true] {
            is_for_here(&token(is_for_clients), "wasmrun node token");
        }
        is_for_here(&Request::RevokeToken("ab".into()), "wasmrun node token");
        is_for_here(&list(What::Tokens), "wasmrun node token");
        is_for_here(&Request::RevokeClient("ab".into()), "wasmrun client");
        is_for_here(&list(What::Clients), "wasmrun client");
        is_for_all(&list(What::Tasks));
        is_for_all(&list(What::Nodes));
    }

    #[test]
    fn who_is_elsewhere_opens_no_directory() {
        for is_read_only in [false, true] {
            let dir = Dir {
                host: "/".into(),
                guest: "/".into(),
                is_read_only,
            };
            let grants = Grants {
                dirs: vec![dir],
                ..Grants::default()
            };
            for request in runs(&grants) {
                is_for_here(&request, "--dir");
            }
        }
    }

    #[test]
    fn what_runs_for_one_elsewhere_has_the_other_grants() {
        let grants = Grants {
            env: vec![("K".into(), "v".into())],
            net: wire::Net::Only(vec!["192.0.2.1:80".parse().expect("an address")]),
            ..Grants::default()
        };
        for request in [runs(&Grants::default()), runs(&grants)].concat() {
            is_for_all(&request);
        }
    }

    #[test]
    fn chunks_from_elsewhere_are_no_longer_than_those_that_are_sent_there() {
        for len in [0, 1, CHUNK_BYTES] {
            is_for_all(&chunk(len));
        }
        is_for_here(&chunk(CHUNK_BYTES + 1), "256 KiB");
        assert_eq!(CHUNK_BYTES, 256 << 10, "the refusal names it");
    }
}
