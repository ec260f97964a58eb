//! Threads that file calls and name look-ups of guests may block.
//!
//! wasmtime hands such calls to the tokio runtime in whose context a guest is polled, and nothing ends one that the system
//! does not answer. So guests that can make them are polled in a runtime of their tenant's, which has a share of threads. Must
//! not: decide what is granted.
//!
//! Invariants: a tenant blocks no more than [`MOST_OF_TENANT`] threads, and those of others go on. The first
//! [`MOST_TENANTS`] have runtimes of their own, which last as long as the process, as threads that are stuck do; all others share
//! that of their node.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};
use wasmrun_model::fairness::TenantName;

use crate::state::{Grants, NetGrant};

/// How many threads a tenant may block: a quarter of those that guests without a share have together.
const MOST_OF_TENANT: usize = 1024;
/// How many tenants have a share.
const MOST_TENANTS: usize = 8;

static SHARES: LazyLock<Shares> = LazyLock::new(|| Shares::new(MOST_OF_TENANT, MOST_TENANTS));

/// The runtime for a guest of a tenant. `None`: that of who polls it.
pub(crate) fn share(grants: &Grants, tenant: &TenantName) -> Option<Handle> {
    let may_block = !grants.dirs.is_empty() || matches!(grants.net, NetGrant::All);
    may_block.then(|| SHARES.of(tenant)).flatten()
}

/// Polls a guest in this runtime.
pub(crate) async fn within_share<T>(
    share: Option<Handle>,
    mut running: Pin<&mut impl Future<Output = T>>,
) -> T {
    let Some(share) = share else {
        return running.await;
    };
    std::future::poll_fn(|cx| {
        let _context = share.enter();
        running.as_mut().poll(cx)
    })
    .await
}

struct Shares {
    most_of_tenant: usize,
    most_tenants: usize,
    by_tenant: Mutex<BTreeMap<TenantName, Handle>>,
}

impl Shares {
    fn new(most_of_tenant: usize, most_tenants: usize) -> Self {
        Self {
            most_of_tenant,
            most_tenants,
            by_tenant: Mutex::default(),
        }
    }

    fn of(&self, tenant: &TenantName) -> Option<Handle> {
        let by_tenant = self.by_tenant.lock();
        let mut by_tenant = by_tenant.unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = by_tenant.get(tenant) {
            return Some(share.clone());
        }
        if by_tenant.len() == self.most_tenants {
            return None;
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(self.most_of_tenant)
            .thread_name("wasmrun-tenant-io")
            .enable_all()
            .build()
            .ok()?;
        let share = runtime.handle().clone();
        // It ends with the process: dropping it waits for threads that may be stuck.
        std::mem::forget(runtime);
        by_tenant.insert(tenant.clone(), share.clone());
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use tokio::task::spawn_blocking;

    use super::*;

    #[tokio::test]
    async fn a_tenant_that_blocks_its_threads_keeps_others_from_none() {
        let shares = Shares::new(2, 2);
        let tenants = ["red", "blue", "green"].map(|it| it.parse::<TenantName>().unwrap());
        let [red, blue, green] = tenants.each_ref().map(|it| shares.of(it));
        assert!(green.is_none(), "there are two shares");
        let mut now = Context::from_waker(Waker::noop());
        let stuck = [(); 2].map(|()| {
            let (end, ended) = mpsc::channel::<()>();
            let opening = pin!(async { drop(spawn_blocking(move || ended.recv())) });
            let mut opening = pin!(within_share(red.clone(), opening));
            assert!(opening.as_mut().poll(&mut now).is_ready());
            end
        });
        let third = pin!(spawn_within(|| 3));
        let mut third = pin!(within_share(red, third));
        assert!(third.as_mut().poll(&mut now).is_pending());
        for share in [blue, green] {
            let other = pin!(spawn_within(|| 7));
            assert_eq!(within_share(share, other).await, 7);
        }
        assert!(third.as_mut().poll(&mut now).is_pending());
        drop(stuck);
        assert_eq!(third.await, 3);
    }

    async fn spawn_within(act: impl FnOnce() -> u32 + Send + 'static) -> u32 {
        spawn_blocking(act).await.unwrap()
    }

    #[test]
    fn a_share_is_for_those_who_may_block() {
        let tenant = TenantName::default();
        assert!(share(&Grants::default(), &tenant).is_none());
        let net = NetGrant::All;
        let grants = Grants {
            net,
            ..Grants::default()
        };
        assert!(share(&grants, &tenant).is_some());
    }
}
