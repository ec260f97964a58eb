//! Requests about secrets: set, removed, listed by name; and whether those are there that submitted work is to have.
//!
//! In a cluster they are in the control store (`cluster/secrets.rs`). A node that is alone has them as long as it runs. Must not:
//! send a value to anybody, or log one.

use wasmrun_model::secret::{self, MAX_BYTES, SecretName};
use wasmrun_model::wire::{
    Bytes, Grants, MAX_FRAME_BYTES, Refusal, RefusalKind, Request, Response, Terms,
};

use super::session::{Session, refusal};
use crate::cluster::now_s;
use crate::guests::secrets::{SecretError, StoredSecret};

/// How many bytes the rows of one answer may have, about: they are one frame.
const MOST_BYTES: usize = MAX_FRAME_BYTES / 2;

impl Session {
    pub(super) async fn set_secret(
        &self,
        name: SecretName,
        value: Bytes,
    ) -> Result<Response, Refusal> {
        let bytes = value.0.len();
        if bytes == 0 {
            let why = "a secret has 1 byte to 64 KiB, and this value is empty: write it to standard input, or to the file of \
                       --from-file";
            return Err(refusal(RefusalKind::Usage, why));
        }
        if bytes > MAX_BYTES {
            let why = format_args!(
                "a secret has 1 byte to 64 KiB, and this value has {bytes} bytes: put what is larger into an object, encrypted, \
                 and its key into the secret"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        let (key, vault) = ((self.tenant.clone(), name), &self.inner.shared.secrets);
        vault.has_room(&key).map_err(refused)?;
        match self.inner.cluster() {
            Some(cluster) => {
                let set = cluster.set_secret(&key.0, &key.1, &value.0, &self.by);
                set.await.map_err(refused)?;
            }
            None => {
                let own = vault.own_key();
                let named = (&key.0, &key.1);
                let stored = StoredSecret::seal(own, named, &value.0, (now_s(), &self.by));
                vault.put(key.clone(), stored);
            }
        }
        tracing::info!(tenant = %key.0, name = %key.1, by = self.by, "a secret was set");
        Ok(Response::Done)
    }

    pub(super) async fn remove_secret(&self, name: SecretName) -> Result<Response, Refusal> {
        let key = (self.tenant.clone(), name);
        match self.inner.cluster() {
            Some(cluster) => {
                let removed = cluster.remove_secret(&key.0, &key.1);
                removed.await.map_err(not_removed)?;
            }
            None if self.inner.shared.secrets.remove(&key) => {}
            None => {
                let (tenant, name) = key;
                return Err(not_removed(SecretError::Missing { tenant, name }));
            }
        }
        tracing::info!(tenant = %key.0, name = %key.1, by = self.by, "a secret was removed");
        Ok(Response::Done)
    }

    /// Replaces the key of all secrets.
    pub(super) async fn rotate_secrets(&self) -> Result<Response, Refusal> {
        let Some(cluster) = self.inner.cluster() else {
            let why = "a node that is in no cluster has secrets and their key until it stops: start it again, and set them again";
            return Err(refusal(RefusalKind::Usage, why));
        };
        let done = cluster.rotate_secrets().await.map_err(refused)?;
        tracing::info!(
            by = self.by,
            secrets = done.secrets,
            "the key of secrets was replaced"
        );
        let mut told = format!(
            "{} secrets and private keys of services are sealed with another key",
            done.secrets
        );
        if done.unreadable > 0 {
            told += &format!(
                "; {} could not be opened and stay as they are: set them again with `wasmrun secret set`",
                done.unreadable
            );
        }
        Ok(Response::Text(told))
    }

    /// The secrets that work of the session's tenant may use.
    pub(super) fn secrets(&self) -> Response {
        let has = &self.caller.access.tenants;
        let mut rows = self.inner.shared.secrets.rows(&self.tenant, has);
        let all = rows.len();
        let mut bytes = 0;
        let fit = rows.iter().take_while(|row| {
            // A number has ten bytes at most, a length two.
            let names = row.name.as_str().len() + row.tenant.as_str().len();
            bytes += 32 + names + row.by.len();
            bytes <= MOST_BYTES
        });
        let fit = fit.count();
        rows.truncate(fit);
        let left = all - rows.len();
        Response::Secrets(rows, u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Refuses work that is to have a secret which is not there. Whether it can be read shows when an attempt begins.
    pub(super) async fn has_secrets(&self, request: &Request) -> Result<(), Refusal> {
        let Some((grants, terms)) = wanted(request) else {
            return Ok(());
        };
        let checked = secret::check(&grants.secrets);
        checked.map_err(|error| refusal(RefusalKind::Usage, error))?;
        let tenant = self.tenant(terms);
        for it in &grants.secrets {
            match self.inner.shared.secrets.find(&tenant, &it.name).await {
                // An attempt may find the store there.
                Ok(_) | Err(SecretError::Store(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(())
    }
}

/// What work may reach that a request brings, and on which terms.
fn wanted(request: &Request) -> Option<(&Grants, &Terms)> {
    let terms = match request {
        // It may run already.
        Request::SubmitOnce { is_again: true, .. } => return None,
        Request::Submit(submit)
        | Request::SubmitOnce { submit, .. }
        | Request::SubmitAll { submit, .. } => &submit.terms,
        Request::Create(create) => &create.terms,
        Request::Serve(serve) => &serve.terms,
        _ => return None,
    };
    Some((request.grants()?, terms))
}

/// As [`refused`], of what is to be removed: nobody wants to set it then.
fn not_removed(error: SecretError) -> Refusal {
    match error {
        SecretError::Missing { tenant, name } => {
            let why = format_args!(
                "there is no secret {name} for tenant '{tenant}': `wasmrun secret list --tenant {tenant}` shows those that there \
                 are, and whose"
            );
            refusal(RefusalKind::NotFound, why)
        }
        error => refused(error),
    }
}

fn refused(error: SecretError) -> Refusal {
    let kind = match &error {
        SecretError::Missing { .. } => RefusalKind::NotFound,
        SecretError::NotText { .. } | SecretError::NotHead(_) => RefusalKind::Usage,
        SecretError::Sealed { .. }
        | SecretError::TooMany(_)
        | SecretError::Store(_)
        | SecretError::Record(_)
        | SecretError::Key(_) => RefusalKind::Full,
    };
    refusal(kind, error)
}
