//! What a module's own WIT says of its functions, which the node does not need.

use std::collections::BTreeMap;

use wit_component::DecodedWasm;
use wit_parser::WorldItem;

/// The documentation of functions by their full names. Empty for what says nothing, as core modules.
pub(crate) fn of(module: &[u8]) -> BTreeMap<String, String> {
    let Ok(DecodedWasm::Component(resolve, world)) = wit_component::decode(module) else {
        return BTreeMap::new();
    };
    let mut all = BTreeMap::new();
    for (key, item) in &resolve.worlds[world].exports {
        match item {
            WorldItem::Function(function) => {
                let docs = function.docs.contents.clone();
                all.extend(docs.map(|docs| (function.name.clone(), docs)));
            }
            WorldItem::Interface { id, .. } => {
                let interface = resolve.name_world_key(key);
                for function in resolve.interfaces[*id].functions.values() {
                    let docs = function.docs.contents.clone();
                    all.extend(docs.map(|docs| (format!("{interface}#{}", function.name), docs)));
                }
            }
            WorldItem::Type { .. } => {}
        }
    }
    all
}
