//! Where a client is, and what it may ask for from there.
//!
//! Owns the rules for clients of other machines. They may do all that has to do with work. Not what would make
//! more of them than clients: the node's files are read with its user's rights, its keys among them, and a token
//! for nodes makes a node of whoever has it; and not what they could not undo.

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
fn grants(request: &Request) -> Option<&Grants> {
    match request {
        Request::Submit(submit)
        | Request::SubmitOnce { submit, .. }
        | Request::SubmitAll { submit, .. } => Some(&submit.grants),
        Request::Create(create) => Some(&create.grants),
        _ => None,
    }
}
