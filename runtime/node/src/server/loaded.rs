//! Modules that are loaded.
//!
//! Owns which of them are let go of: those that were used longest ago, once there are too many. Must not: load any.

use std::collections::HashMap;

use wasmrun_engine::Module;
use wasmrun_model::id::Digest;

/// So many modules, and no more.
pub(super) struct LoadedModules {
    /// Each with when it was used last.
    modules: HashMap<Digest, (Module, u64)>,
    uses: u64,
    most: usize,
}

impl LoadedModules {
    pub(super) fn new(most: usize) -> Self {
        Self {
            modules: HashMap::new(),
            uses: 0,
            most,
        }
    }

    /// One that is used now.
    pub(super) fn get(&mut self, digest: &Digest) -> Option<Module> {
        let (module, used) = self.modules.get_mut(digest)?;
        self.uses += 1;
        *used = self.uses;
        Some(module.clone())
    }

    /// One more, in place of the one that was used longest ago if there are too many.
    pub(super) fn add(&mut self, module: Module) {
        self.uses += 1;
        self.modules.insert(module.digest(), (module, self.uses));
        if self.modules.len() > self.most {
            let by_use = self.modules.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = by_use.map(|(digest, _)| *digest) {
                self.modules.remove(&oldest);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.values().map(|(module, _)| module)
    }
}
