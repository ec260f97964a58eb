//! Who a client is, and whether it may ask for something.
//!
//! Owns the check of each request: the role and the place that it [needs](Request::needs), and the tenants that it names.
//! Must not: know how things are looked up. Whose they are is checked there, by [`Asker`](super::views::Asker).
//!
//! Invariant: a refusal says the same of a tenant that is not there as of one that is another's.

use wasmrun_model::access::{Access, Role};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::wire::{CHUNK_BYTES, Needs, Place, Refusal, RefusalKind, Request, WhoAmI};
use wasmrun_net::ClientId;

use super::session::refusal;

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// At the socket, as the user that the node runs as.
    Own,
    /// At the socket, as another user.
    User,
    /// Somewhere on the network, with this certificate.
    Network(ClientId),
}

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) origin: Origin,
    pub(super) access: Access,
    /// When its certificate ends, in seconds since 1970 by the clock that it was checked by; 0 if it has none.
    pub(super) until_s: u64,
    /// Where it is, for people.
    pub(super) from: String,
}

impl Caller {
    /// Whether it is the user that the node runs as. With others no memory is shared.
    pub(super) fn is_own(&self) -> bool {
        self.origin == Origin::Own
    }

    /// The tenant of a session that names this one.
    pub(super) fn tenant(&self, named: TenantName) -> TenantName {
        match named == TenantName::default() {
            true => self.access.tenants.usual(),
            false => named,
        }
    }

    /// Who it is, for itself.
    pub(super) fn who_am_i(&self, tenant: &TenantName, node: String) -> WhoAmI {
        WhoAmI {
            access: self.access.clone(),
            tenant: tenant.clone(),
            node,
            from: self.from.clone(),
        }
    }

    /// Who and where it is for the audit, in which it stays the same one, whatever it is called.
    pub(super) fn for_the_audit(&self, by: &str) -> (String, String) {
        let name = &self.access.name;
        match self.origin {
            Origin::Network(_) if name.is_empty() => (by.to_owned(), self.from.clone()),
            Origin::Network(_) => (name.clone(), format!("{}, {by}", self.from)),
            Origin::Own | Origin::User => {
                let process = by.split_once(", ").map_or("a process", |it| it.1);
                (name.clone(), format!("socket, {process}"))
            }
        }
    }

    /// Whether it may ask for this in a session of this tenant.
    pub(super) fn check(&self, tenant: &TenantName, request: &Request) -> Result<(), Refusal> {
        let Needs { role, place } = request.needs();
        if !self.access.may(role) {
            return Err(self.lacks(role));
        }
        if let Some(why) = self.is_too_far(place, request) {
            return Err(refusal(RefusalKind::Usage, why));
        }
        if !matches!(request, Request::WhoAmI) {
            self.has(tenant)?;
        }
        // Who names none says `default`: that is the session's then.
        if let Some(tenant) = request.tenant().filter(|it| **it != TenantName::default()) {
            self.has(tenant)?;
        }
        if let Request::List(list) = request
            && let Some(Ok(tenant)) = list.tenant().map(str::parse::<TenantName>)
        {
            self.has(&tenant)?;
        }
        Ok(())
    }

    /// Refuses what it asks for after its certificate has ended, but to end or give back what it has, and to send what it has
    /// announced. What it does not have, but could name, is not its own any more.
    pub(super) fn check_time(&self, now_s: u64, request: &Request) -> Result<(), Refusal> {
        let is_of_before = matches!(
            request,
            Request::Release(_)
                | Request::ReleaseActor(_)
                | Request::Unpin(_)
                | Request::CancelMine
                | Request::CancelObject(_)
                | Request::KillActor(_)
                // The rest of what was announced.
                | Request::Chunk(_)
                | Request::Staged { .. }
        );
        if self.until_s == 0 || now_s < self.until_s || is_of_before {
            return Ok(());
        }
        let why = format_args!(
            "the certificate of {} has ended, with which this session was opened: get another one, with `wasmrun login --oidc \
             HOST:PORT` or a token, and connect again; what the session has started goes on until it is closed",
            self.named()
        );
        Err(refusal(RefusalKind::Usage, why))
    }

    /// Refuses a tenant that it does not have.
    fn has(&self, tenant: &TenantName) -> Result<(), Refusal> {
        if self.access.covers(tenant) {
            return Ok(());
        }
        let why = format_args!(
            "there is no tenant '{tenant}' for {}: name one of its tenants with --tenant",
            self.named()
        );
        Err(refusal(RefusalKind::Tenant, why))
    }

    fn lacks(&self, role: Role) -> Refusal {
        let how = match self.origin {
            Origin::Network(_) => format!(
                "for another one log in with a token that an operator makes: `wasmrun node token create --client --role {role}`"
            ),
            Origin::Own | Origin::User => {
                "the file of `wasmrun node start --users` gives users their roles".to_owned()
            }
        };
        let why = format_args!(
            "this needs the role {role}, and here is {}; {how}",
            self.named()
        );
        refusal(RefusalKind::Usage, why)
    }

    /// Itself, for people.
    fn named(&self) -> String {
        let Access {
            name,
            role,
            tenants,
        } = &self.access;
        match name.is_empty() {
            true => format!("{role} of {tenants}"),
            false => format!("{name}, {role} of {tenants}"),
        }
    }

    /// Why it may not ask for this from where it is.
    fn is_too_far(&self, place: Place, request: &Request) -> Option<&'static str> {
        let is_near = match self.origin {
            Origin::Own => return None,
            Origin::User => place <= Place::Machine,
            Origin::Network(_) => place <= Place::Anywhere,
        };
        match request {
            Request::Chunk(bytes) if bytes.0.len() > CHUNK_BYTES => {
                Some("a client of another machine or user sends at most 256 KiB in a chunk")
            }
            _ if is_near => None,
            Request::Dashboard => Some(
                "a link to a node's page is made on its own machine, through its socket: `wasmrun dashboard` there",
            ),
            Request::Stop { .. } => Some(
                "a node is stopped on its own machine, where it can be started again: `wasmrun node stop` there; \
                 `wasmrun node drain NODE` lets it take no new work from anywhere",
            ),
            _ => Some(
                "--dir opens a directory of the node's machine, with the rights of the user that the node runs as, and only \
                 that user may have it, on that machine: put what the task needs, and pass the objects",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::wire::{Bytes, Grants, List, What, examples};

    use super::*;

    const THERE: Origin = Origin::Network(ClientId::from_bytes([7; 16]));

    fn caller(origin: Origin, role: Role, tenants: &str) -> Caller {
        Caller {
            origin,
            access: Access {
                name: "ann".into(),
                role,
                tenants: tenants.parse().expect("tenants"),
            },
            until_s: 0,
            from: "here".into(),
        }
    }

    /// What is allowed, written once more and in another way: by the name of each request, as it is printed.
    fn is_allowed(role: Role, origin: Origin, request: &Request) -> bool {
        let text = format!("{request:?}");
        let name: String = text.chars().take_while(|it| it.is_alphanumeric()).collect();
        let has_dir = text.contains("Dir {");
        match (role, name.as_str()) {
            (_, "Stop" | "Dashboard") => {
                role == Role::Operator && !matches!(origin, Origin::Network(_))
            }
            (
                Role::Operator,
                "CreateToken" | "CreateClientToken" | "RevokeToken" | "RevokeClient" | "Drain"
                | "RemoveNode" | "ChangeTenant" | "RemoveTenant" | "SetResource" | "SchedulerState"
                | "RotateSecrets",
            ) => true,
            (
                _,
                "CreateToken" | "CreateClientToken" | "RevokeToken" | "RevokeClient" | "Drain"
                | "RemoveNode" | "ChangeTenant" | "RemoveTenant" | "SetResource" | "SchedulerState"
                | "RotateSecrets",
            ) => false,
            (_, "Scheduling") => role == Role::Operator || text == "Scheduling([])",
            (_, "List") => {
                let of_operators = ["Tokens", "Access", "Audit"];
                let mut of_operators = of_operators.iter().map(|it| format!("what: {it},"));
                role == Role::Operator || !of_operators.any(|it| text.contains(&it))
            }
            (
                _,
                "Get" | "GetAll" | "Wait" | "FindObject" | "Release" | "ReleaseActor" | "Unpin"
                | "Describe" | "Explain" | "Logs" | "RanAt" | "GroupReady" | "Status" | "WhoAmI"
                | "Secrets",
            ) => true,
            (Role::Viewer, _) => false,
            (_, _) => !has_dir || origin == Origin::Own,
        }
    }

    #[test]
    fn each_role_may_at_each_place_what_the_table_says_and_nothing_else() {
        let tenant = TenantName::default();
        for role in Role::ALL {
            for origin in [Origin::Own, Origin::User, THERE] {
                let caller = caller(origin, role, "*");
                for request in examples::requests() {
                    let is_allowed = is_allowed(role, origin, &request);
                    let checked = caller.check(&tenant, &request);
                    assert_eq!(
                        checked.is_ok(),
                        is_allowed,
                        "{caller:?} {request:?} {checked:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_tenant_that_is_not_ones_own_is_refused_wherever_it_is_named() {
        let (own, other): (TenantName, TenantName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let caller = caller(THERE, Role::Submitter, "a,c");
        let named = |tenant: &TenantName| {
            let mut all = examples::runs(Some(tenant), &Grants::default());
            let filtered = |what, field| Request::List(List::of(what).with(field, tenant));
            all.push(filtered(What::Tasks, "tenant"));
            all.push(filtered(What::Due, "name"));
            all
        };
        for request in named(&own) {
            assert_eq!(caller.check(&own, &request), Ok(()), "{request:?}");
        }
        for request in named(&other) {
            let refused = caller.check(&own, &request).expect_err("it is another's");
            assert_eq!(refused.kind, RefusalKind::Tenant);
            assert!(
                refused.message.contains("no tenant 'b' for ann"),
                "{refused}"
            );
        }
        // Of a session that names it, everything is refused but to be told who one is.
        for request in examples::requests() {
            let is_refused = caller.check(&other, &request).is_err();
            assert_eq!(is_refused, request != Request::WhoAmI, "{request:?}");
        }
    }

    #[test]
    fn after_its_certificate_has_ended_a_client_may_only_end_what_it_has() {
        let mut caller = caller(THERE, Role::Operator, "*");
        for request in examples::requests() {
            assert_eq!(caller.check_time(u64::MAX, &request), Ok(()), "it has none");
        }
        caller.until_s = 100;
        for request in examples::requests() {
            assert_eq!(caller.check_time(99, &request), Ok(()));
            let text = format!("{request:?}");
            let name: String = text.chars().take_while(|it| it.is_alphanumeric()).collect();
            let is_of_before = [
                "Release",
                "ReleaseActor",
                "Unpin",
                "CancelMine",
                "CancelObject",
                "KillActor",
                "Chunk",
                "Staged",
            ];
            let checked = caller.check_time(100, &request);
            assert_eq!(
                checked.is_ok(),
                is_of_before.contains(&name.as_str()),
                "{text}"
            );
            if let Err(why) = checked {
                assert!(why.message.contains("wasmrun login"), "{why}");
            }
        }
    }

    #[test]
    fn a_session_without_a_tenant_is_for_the_first_one_has() {
        let tenant = |tenants, named: &str| {
            let caller = caller(THERE, Role::Viewer, tenants);
            caller.tenant(named.parse().unwrap()).to_string()
        };
        assert_eq!(tenant("b,a", "default"), "a");
        assert_eq!(tenant("b,default", "default"), "default");
        assert_eq!(tenant("*", "default"), "default");
        assert_eq!(tenant("b,a", "b"), "b");
        assert_eq!(tenant("b,a", "x"), "x");
    }

    #[test]
    fn refusals_say_what_is_needed_and_how_to_get_it() {
        let tenant = TenantName::default();
        let said = |origin, role, request: Request| {
            let refused = caller(origin, role, "*").check(&tenant, &request);
            refused.expect_err("it is refused").message
        };
        let removal = || Request::RemoveNode {
            node: "a".into(),
            is_forced: true,
        };
        let said_there = said(THERE, Role::Submitter, removal());
        assert!(said_there.contains("the role operator"), "{said_there}");
        assert!(said_there.contains("--role operator"), "{said_there}");
        let said_here = said(Origin::User, Role::Submitter, removal());
        assert!(said_here.contains("--users"), "{said_here}");
        let stop = said(THERE, Role::Operator, Request::Stop { is_now: true });
        assert!(stop.contains("wasmrun node stop"), "{stop}");
        let link = said(THERE, Role::Operator, Request::Dashboard);
        assert!(link.contains("wasmrun dashboard"), "{link}");
    }

    #[test]
    fn chunks_of_others_are_no_longer_than_those_that_are_sent_to_them() {
        let tenant = TenantName::default();
        let chunk = |len: usize| Request::Chunk(Bytes(vec![0; len]));
        for origin in [Origin::User, THERE] {
            let caller = caller(origin, Role::Submitter, "*");
            assert_eq!(caller.check(&tenant, &chunk(CHUNK_BYTES)), Ok(()));
            let refused = caller.check(&tenant, &chunk(CHUNK_BYTES + 1));
            assert!(refused.expect_err("it is long").message.contains("256 KiB"));
        }
        let own = caller(Origin::Own, Role::Operator, "*");
        assert_eq!(own.check(&tenant, &chunk(CHUNK_BYTES + 1)), Ok(()));
        assert_eq!(CHUNK_BYTES, 256 << 10, "the refusal names it");
    }
}
