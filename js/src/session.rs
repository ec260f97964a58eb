//! What TypeScript has of a session: see `lib/native.ts`.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use napi::bindgen_prelude::{ArrayBuffer, Uint8ArraySlice};
use napi::{Env, Error, Result};
use napi_derive::napi;
use serde_json::{Map, Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{List, What};
use wasmrun_client::{Submit, Writable, identity, rows};
use wasmrun_model::fairness::TenantName;

use crate::items::{Function, Item};
use crate::mail::{Bell, Mail};
use crate::options;
use crate::shared::Shared;

/// How long the node may take to cancel what a session leaves behind.
const END: Duration = Duration::from_secs(1);

/// Frames up to so many bytes are copied: cheaper than memory that somebody has to free.
const COPIED_BYTES: usize = 1 << 16;

/// The version of the package, of the program in it, and of what they speak.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[napi]
pub struct Session {
    shared: Arc<Shared>,
}

#[napi]
impl Session {
    #[napi(constructor)]
    pub fn new(bell: Bell) -> Self {
        Self {
            shared: Shared::new(bell),
        }
    }

    #[napi]
    pub fn connect(
        &self,
        id: f64,
        address: Option<String>,
        tenant: Option<String>,
        folder: Option<String>,
        job: String,
    ) -> Result<()> {
        let address = match address {
            Some(address) => address.parse(),
            None => wasmrun_client::default_address(),
        };
        let address = address.map_err(error)?;
        let tenant = match tenant {
            Some(tenant) => tenant.parse::<TenantName>().map_err(error)?,
            None => TenantName::default(),
        };
        let identity = match folder {
            Some(folder) => identity::load(Path::new(&folder)).map_err(error)?,
            None => None,
        };
        let shared = self.shared.clone();
        // Another thread: it may wait for the network.
        let connecting = thread::Builder::new().name("wasmrun-connect".to_owned());
        let connecting =
            connecting.spawn(
                move || match Client::connect_for(&address, tenant, identity, &job) {
                    Ok(client) => {
                        let json = json!({ "node": client.node() });
                        shared.begin(client);
                        shared.mail.json(id as u64, &json);
                    }
                    Err(error) => shared.mail.failed(id as u64, &error),
                },
            );
        connecting.map(drop).map_err(error)
    }

    #[napi]
    pub fn is_connected(&self) -> bool {
        let line = self.shared.line();
        line.is_ok_and(|line| line.client.is_connected())
    }

    /// What came: frames, and the buffers that they name.
    #[napi]
    pub fn take<'env>(&'env self, env: &'env Env) -> Result<Vec<ArrayBuffer<'env>>> {
        let Mail { frames, buffers } = self.shared.mail.take();
        let frames = match frames.len() {
            ..=COPIED_BYTES => ArrayBuffer::copy_from(env, frames)?,
            _ => ArrayBuffer::from_data(env, frames)?,
        };
        let mut all = vec![frames];
        for buffer in buffers {
            all.push(external_buffer(env, buffer)?);
        }
        Ok(all)
    }

    /// Does what the first bytes of a packet say.
    #[napi]
    pub fn send(&self, packet: &[u8], length: u32, buffers: Vec<Uint8ArraySlice>) -> Result<()> {
        let line = self.shared.line().map_err(error)?;
        let packet = packet.get(..length as usize).unwrap_or(packet);
        let sent = self.shared.carry_out(&line, packet, &buffers);
        sent.map_err(error)
    }

    #[napi]
    pub fn load(&self, id: f64, bytes: &[u8]) -> Result<()> {
        let line = self.shared.line().map_err(error)?;
        let (shared, bytes) = (self.shared.clone(), bytes.to_vec());
        let client = (*line.client).clone();
        line.client.handle().spawn(async move {
            let loaded = client.load(&bytes).await;
            shared.answer(id as u64, loaded, |module| shared.module(&module));
        });
        Ok(())
    }

    /// A function or class that asks for more; its number.
    #[napi]
    pub fn with_options(&self, item: f64, json: String) -> Result<f64> {
        let given: Map<String, Json> = serde_json::from_str(&json).map_err(error)?;
        let items = self.shared.items.lock();
        let item = items.get(item as u64).map_err(error)?.clone();
        drop(items);
        let item = match item {
            Item::Function(function) => {
                let mut submit = function.submit.wire().clone();
                options::of_task(&mut submit, &given).map_err(error)?;
                Item::Function(Arc::new(Function {
                    submit: Arc::new(Submit::of(submit)),
                    result: function.result.clone(),
                }))
            }
            Item::Class(create) => {
                let mut create = (*create).clone();
                options::of_actor(&mut create.wire, &given).map_err(error)?;
                Item::Class(Arc::new(create))
            }
            _ => return Err(error("it takes no options")),
        };
        Ok(self.shared.keep(item) as f64)
    }

    #[napi]
    pub fn find_actor(&self, id: f64, name: String) -> Result<()> {
        let line = self.shared.line().map_err(error)?;
        let (shared, id) = (self.shared.clone(), id as u64);
        let client = (*line.client).clone();
        line.client.handle().spawn(async move {
            let found = client.find_actor(&name).await;
            shared.answer(id, found, |actor| shared.living(id, actor));
        });
        Ok(())
    }

    /// Why something does not go on: by its id or name, or the number of an object or actor.
    #[napi]
    pub fn explain(&self, id: f64, name: String, item: f64) -> Result<()> {
        let line = self.shared.line().map_err(error)?;
        let item = match item as u64 {
            0 => None,
            item => Some(self.shared.items.lock().get(item).map_err(error)?.clone()),
        };
        let (shared, id) = (self.shared.clone(), id as u64);
        let client = (*line.client).clone();
        line.client.handle().spawn(async move {
            let name = match item {
                Some(Item::Object(object)) => match object.slot.future().await {
                    Ok(future) => future.id().task().to_string(),
                    Err(error) => return shared.mail.failed(id, &*error),
                },
                Some(Item::Actor(living)) => living.actor.id().to_string(),
                _ => name,
            };
            let why = client.explain(&name).await;
            shared.answer(id, why, Json::String);
        });
        Ok(())
    }

    /// The nodes of the cluster, as in the state API.
    #[napi]
    pub fn nodes(&self, id: f64) -> Result<()> {
        let line = self.shared.line().map_err(error)?;
        let shared = self.shared.clone();
        let client = (*line.client).clone();
        line.client.handle().spawn(async move {
            let listed = client.list(List::of(What::Members)).await;
            shared.answer(id as u64, listed, |listed| {
                rows::list(What::Members, &listed, &[])
            });
        });
        Ok(())
    }

    /// Ends the session, and with it all that was submitted and is not detached.
    #[napi]
    pub fn close(&self, id: f64) {
        let (shared, id) = (self.shared.clone(), id as u64);
        let Some(line) = self.shared.line.lock().take() else {
            return shared.mail.nothing(id);
        };
        // Another thread: it waits for the node.
        let closing = thread::Builder::new().name("wasmrun-close".to_owned());
        let closing = closing.spawn(move || {
            let cancelled = async { tokio::time::timeout(END, line.client.cancel_all()).await };
            // It ends in any case.
            drop(line.client.wait(cancelled));
            let items = std::mem::take(&mut *shared.items.lock());
            drop((items, line));
            shared.mail.nothing(id);
        });
        if closing.is_err() {
            self.shared.mail.nothing(id);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Tasks that run keep the shared part, and end with the connection.
        let line = self.shared.line.lock().take();
        drop(line);
    }
}

/// Memory that JavaScript may write to, and which is free when it is not looked at any more.
fn external_buffer(env: &Env, mut buffer: Writable) -> Result<ArrayBuffer<'_>> {
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the bytes are where they are until the buffer is dropped, which is when JavaScript has no use for them any more, and
    // nobody else has them.
    unsafe { ArrayBuffer::from_external(env, start, length, buffer, |_, buffer| drop(buffer)) }
}

fn error(error: impl ToString) -> Error {
    Error::from_reason(error.to_string())
}
