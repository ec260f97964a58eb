//! The suite on an embedded store in a folder.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use wasmrun_control::{ControlStore, Embedded, EmbeddedConfig};

use crate::Harness;

pub struct InFolder {
    folder: TempDir,
    store: Arc<Embedded>,
}

impl InFolder {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder).await;
        Self { folder, store }
    }

    pub fn embedded(&self) -> Arc<Embedded> {
        Arc::clone(&self.store)
    }
}

async fn open(folder: &TempDir) -> Arc<Embedded> {
    let config = EmbeddedConfig::default();
    Embedded::open(folder.path(), config).await.unwrap()
}

#[async_trait]
impl Harness for InFolder {
    fn store(&self) -> Arc<dyn ControlStore> {
        self.embedded()
    }

    async fn restart(&mut self) {
        self.store.close().await;
        self.store = open(&self.folder).await;
    }
}

async fn make(_: &str) -> Option<InFolder> {
    Some(InFolder::new().await)
}

crate::conform!(make);
