//! One amount of a list such as `cpus=2,memory=4GiB`.

use wasmrun_model::resource::{Amount, ResourceName};

/// Reads `NAME=AMOUNT`, where `cpus` and `gpus` are names too. `form` says how it is written.
pub fn named(part: &str, form: &str) -> Result<(ResourceName, Amount), String> {
    let (name, value) = part
        .split_once('=')
        .ok_or_else(|| format!("'{part}' must be {form}"))?;
    let name = resource(name.trim())?;
    let amount = of(&name, value.trim())?;
    Ok((name, amount))
}

/// Reads how much of a resource.
pub fn of(name: &ResourceName, text: &str) -> Result<Amount, String> {
    match name.is_memory() {
        true => super::memory(text),
        false => text.parse().map_err(|error| format!("{error}")),
    }
}

/// Reads the name of a resource, where `cpus` and `gpus` are names too.
pub fn resource(name: &str) -> Result<ResourceName, String> {
    match name {
        "cpus" => Ok(ResourceName::CPU),
        "gpus" => Ok(ResourceName::GPU),
        other => other.parse().map_err(|error| format!("{error}")),
    }
}
