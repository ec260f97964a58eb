//! How many bytes of arguments wait on a node's own account.
//!
//! Owns the shares of tenants. Must not: know the arguments, or wait.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use wasmrun_model::fairness::TenantName;

/// The bytes of arguments that guests gave to tasks which have not ended: they are on the node's own
/// account, not on a guest's.
///
/// A tenant may have as many as nobody has yet: one alone gets half of all, two a third each. So there is
/// always room for the next (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998).
#[derive(Debug)]
pub(crate) struct WaitingBytes {
    used: Mutex<UsedBytes>,
    limit: u64,
}

#[derive(Debug, Default)]
struct UsedBytes {
    total: u64,
    /// Of those that have any.
    by_tenant: HashMap<TenantName, u64>,
}

/// A part of [`WaitingBytes`].
pub(super) struct Charge {
    account: Arc<WaitingBytes>,
    tenant: TenantName,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.account.used.lock();
        used.total -= self.bytes;
        if let Some(of_tenant) = used.by_tenant.get_mut(&self.tenant) {
            *of_tenant -= self.bytes;
            if *of_tenant == 0 {
                used.by_tenant.remove(&self.tenant);
            }
        }
    }
}

/// Too many bytes wait.
#[derive(Debug, thiserror::Error)]
#[error(
    "arguments of the tenant's tasks that have not ended take {used} bytes of this node, and {left} are left for \
     all: start fewer tasks at a time, or put large values and pass the objects"
)]
pub(crate) struct TooManyBytes {
    pub(super) used: u64,
    pub(super) left: u64,
}

impl WaitingBytes {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let used = Mutex::default();
        Arc::new(Self { used, limit })
    }

    pub(super) fn charge(
        self: &Arc<Self>,
        tenant: &TenantName,
        bytes: u64,
    ) -> Result<Charge, TooManyBytes> {
        let mut all = self.used.lock();
        let used = all.by_tenant.get(tenant).copied().unwrap_or_default();
        let left = self.limit.saturating_sub(all.total);
        if used.saturating_add(bytes.saturating_mul(2)) > left {
            return Err(TooManyBytes { used, left });
        }
        all.total += bytes;
        *all.by_tenant.entry(tenant.clone()).or_default() += bytes;
        Ok(Charge {
            account: self.clone(),
            tenant: tenant.clone(),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_fills_the_node_with_arguments_leaves_room_for_others() {
        let account = WaitingBytes::new(1 << 20);
        let [red, blue] = ["red", "blue"].map(|name| name.parse::<TenantName>().unwrap());
        let of_red: Vec<Charge> = std::iter::from_fn(|| account.charge(&red, 4096).ok()).collect();
        assert_eq!(of_red.len(), 128, "half of all");
        let of_blue: Vec<Charge> =
            std::iter::from_fn(|| account.charge(&blue, 4096).ok()).collect();
        assert_eq!(of_blue.len(), 64, "half of the rest");
        let refused = account.charge(&red, 4096).map(drop).unwrap_err();
        assert!(
            refused.to_string().contains("take 524288 bytes"),
            "{refused}"
        );
        drop((of_red, of_blue));
        let used = account.used.lock();
        assert!(used.total == 0 && used.by_tenant.is_empty());
    }
}
