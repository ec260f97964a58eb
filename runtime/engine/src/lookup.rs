//! Names that guests' requests are for, looked up.
//!
//! A look-up blocks one of the threads on which guests may block until the system has an answer, and nothing ends it before.
//! So its turn lasts until that, though who asked may be gone. Must not: decide which names or addresses are granted.
//!
//! Invariants: no tenant has more than [`MOST_OF_TENANT`] under way, and all together have no more than [`MOST`], so that
//! threads are left for file calls.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;
use wasmrun_model::fairness::TenantName;

/// How many look-ups may be under way; others wait. Fewer than the threads that guests may block.
const MOST: usize = 1024;
/// The same of one tenant.
const MOST_OF_TENANT: usize = 32;

/// Whose turn it is: the threads are the process's.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns::new(MOST, MOST_OF_TENANT));

/// The addresses of a name, once the tenant has its turn.
pub(crate) async fn look_up(
    name: &str,
    port: u16,
    tenant: &TenantName,
) -> io::Result<Vec<SocketAddr>> {
    let name = name.to_owned();
    let found =
        move || -> io::Result<Vec<SocketAddr>> { Ok((name, port).to_socket_addrs()?.collect()) };
    TURNS.run(tenant, found).await?
}

struct Turns {
    all: Arc<Semaphore>,
    most_of_tenant: usize,
    /// Of the tenants that look up or wait.
    by_tenant: Mutex<BTreeMap<TenantName, Weak<Semaphore>>>,
}

impl Turns {
    fn new(most: usize, most_of_tenant: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            most_of_tenant,
            by_tenant: Mutex::default(),
        }
    }

    fn of(&self, tenant: &TenantName) -> Arc<Semaphore> {
        let by_tenant = self.by_tenant.lock();
        let mut by_tenant = by_tenant.unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = by_tenant.get(tenant).and_then(Weak::upgrade) {
            return turns;
        }
        by_tenant.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.most_of_tenant));
        by_tenant.insert(tenant.clone(), Arc::downgrade(&turns));
        turns
    }

    /// Blocks a thread with this, once the tenant has its turn. Who waits for its own tenant's takes none of the others'.
    async fn run<T: Send + 'static>(
        &self,
        tenant: &TenantName,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let own = self.of(tenant).acquire_owned().await;
        let own = own.map_err(io::Error::other)?;
        let of_all = self.all.clone().acquire_owned().await;
        let of_all = of_all.map_err(io::Error::other)?;
        let acting = tokio::task::spawn_blocking(move || {
            let _turn = (own, of_all);
            act()
        });
        acting.await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_tenant_that_waits_for_names_keeps_others_from_none() {
        let turns = Turns::new(3, 2);
        let [red, blue] = ["red", "blue"].map(|it| it.parse::<TenantName>().unwrap());
        let mut now = Context::from_waker(Waker::noop());
        // Two without an answer, whose callers are gone.
        let stuck = [(); 2].map(|()| {
            let (end, ended) = mpsc::channel::<()>();
            let mut asking = pin!(turns.run(&red, move || ended.recv()));
            assert!(asking.as_mut().poll(&mut now).is_pending());
            end
        });
        let mut third = pin!(turns.run(&red, || ()));
        assert!(third.as_mut().poll(&mut now).is_pending());
        assert_eq!(turns.run(&blue, || 7).await.unwrap(), 7);
        assert!(third.as_mut().poll(&mut now).is_pending());
        drop(stuck);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn addresses_of_names_are_found() {
        let tenant = TenantName::default();
        let found = look_up("localhost", 80, &tenant);
        let found = found.await.unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|it| it.ip().is_loopback()), "{found:?}");
    }
}
