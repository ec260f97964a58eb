//! `wasmrun annotate`: writes a manifest into anybody's module.

use anyhow::Context;
use wasmrun_engine::{Module, section};
use wasmrun_model::manifest::{ANY, MAX_BYTES, Manifest, PROGRAM, TimeLimit};
use wasmrun_model::resource::{Request, ResourceSet};
use wasmrun_model::units;

use crate::args::Annotate;
use crate::fail::{CommandResult, Failure};
use crate::local;
use crate::outfile;
use crate::printer::Printer;

pub fn annotate(annotate: &Annotate, printer: &Printer) -> CommandResult {
    outfile::check(&annotate.out)?;
    let bytes = local::read_module(&annotate.module, &annotate.node)?;
    let manifest = match &annotate.manifest {
        Some(path) => {
            let shown = path.display();
            let most = MAX_BYTES as u64;
            let json = local::read_file(path, most, "a smaller manifest")
                .with_context(|| format!("cannot read {shown}"))?;
            Manifest::parse(&json).with_context(|| format!("{shown} is not a manifest"))?
        }
        None => {
            let node = local::start(&annotate.node, printer)?;
            let module = local::load_bytes(node.engine(), &annotate.module, &bytes, printer)?;
            amended(annotate, &module)?
        }
    };
    let written = section::write(&bytes, manifest.to_json().as_bytes())
        .with_context(|| format!("cannot read the sections of {}", annotate.module.display()))?;
    let out = &annotate.out;
    outfile::replace(out, &written).with_context(|| format!("cannot write {}", out.display()))?;
    printer.note(format_args!("{}: {}", out.display(), manifest.to_json()));
    Ok(())
}

/// The module's manifest with what was asked for on the command line put in.
fn amended(annotate: &Annotate, module: &Module) -> Result<Manifest, Failure> {
    let mut manifest = module.manifest().clone();
    let known = match &annotate.function[..] {
        ANY => ANY.to_owned(),
        PROGRAM if module.program().is_some() => PROGRAM.to_owned(),
        name => module.function(module.find(name)?).full_name(),
    };
    let asked = annotate.request.asked()?;
    let mut amounts = ResourceSet::new();
    asked.apply_to(&mut amounts);
    Request::new(amounts)?;
    if asked.is_empty()
        && annotate.time_limit.is_none()
        && annotate.retries.is_none()
        && annotate.retry_on_error.is_none()
    {
        return Err(Failure::usage(
            "there is nothing to write: give --cpus, --gpus, --memory, --resource, --time-limit, \
             --retries, --retry-on-error or --manifest",
        ));
    }
    let settings = manifest.functions.entry(known).or_default();
    settings.resources.0.extend(asked.0);
    if let Some(limit) = annotate.time_limit {
        let ms = units::ms(limit);
        settings.time_limit = Some(TimeLimit { ms });
    }
    settings.retries = annotate.retries.or(settings.retries);
    settings.retry_on_error = annotate.retry_on_error.or(settings.retry_on_error);
    Ok(manifest)
}
