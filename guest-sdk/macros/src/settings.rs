//! What stands in the attributes: `#[task(…)]`, `#[actor(…)]` and `#[module(…)]`.
//!
//! Owns their grammar and checks every value where it stands. Must not decide what a default is: what
//! is not said is not in the manifest.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, Lit, LitStr, Token, parenthesized};

use crate::{amounts, names};

/// Amounts by resource, as the manifest has them.
pub type Amounts = BTreeMap<String, String>;

/// What a task declares.
#[derive(Debug, Default)]
pub struct TaskSettings {
    pub resources: Amounts,
    pub alternatives: Vec<Amounts>,
    pub retries: Option<u32>,
    pub retry_on_error: bool,
    pub time_limit: Option<String>,
}

/// What an actor class declares.
#[derive(Debug, Default)]
pub struct ActorSettings {
    pub resources: Amounts,
    pub restarts: Option<u32>,
    pub call_retries: Option<u32>,
    pub deterministic: bool,
}

/// What the module declares.
#[derive(Debug, Default)]
pub struct ModuleSettings {
    pub package: Option<LitStr>,
    pub interface: Option<LitStr>,
    /// For all its tasks.
    pub tasks: TaskSettings,
    pub dirs: Vec<String>,
    pub net: Vec<String>,
    pub http: Vec<String>,
    pub env: Vec<String>,
    pub secrets: Vec<String>,
}

impl Parse for TaskSettings {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut settings = Self::default();
        each_key(
            input,
            |key, input| settings.take(key, input),
            || {
                format!(
                    "a task takes {TASK_KEYS}; priority, labels and strategy are options of a call"
                )
            },
        )?;
        Ok(settings)
    }
}

const TASK_KEYS: &str =
    "cpus, gpus, memory, resources(…), alternative(…), retries, retry_on_error and time_limit";

impl TaskSettings {
    /// Takes the value of a key. False if a task has no such key.
    fn take(&mut self, key: &Ident, input: ParseStream) -> syn::Result<bool> {
        match key.to_string().as_str() {
            "alternative" => self.alternatives.push(amounts_in_parentheses(input)?),
            "retries" => self.retries = Some(count(input)?),
            "retry_on_error" => self.retry_on_error = true,
            "time_limit" => self.time_limit = Some(duration(input)?),
            _ => return take_amount(key, input, &mut self.resources),
        }
        Ok(true)
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
            && self.alternatives.is_empty()
            && self.retries.is_none()
            && !self.retry_on_error
            && self.time_limit.is_none()
    }
}

impl Parse for ActorSettings {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut settings = Self::default();
        let take = |key: &Ident, input: ParseStream| {
            match key.to_string().as_str() {
                "restarts" => settings.restarts = Some(count(input)?),
                "call_retries" => settings.call_retries = Some(count(input)?),
                "deterministic" => settings.deterministic = true,
                _ => return take_amount(key, input, &mut settings.resources),
            }
            Ok(true)
        };
        each_key(input, take, || {
            "an actor takes cpus, gpus, memory, resources(…), restarts, call_retries and deterministic; its \
             name, labels and strategy are options of `create`"
                .to_owned()
        })?;
        Ok(settings)
    }
}

impl ActorSettings {
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
            && self.restarts.is_none()
            && self.call_retries.is_none()
            && !self.deterministic
    }
}

impl Parse for ModuleSettings {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut settings = Self::default();
        let take = |key: &Ident, input: ParseStream| {
            match key.to_string().as_str() {
                "package" => settings.package = Some(text(input)?),
                "interface" => settings.interface = Some(text(input)?),
                "dirs" => settings.dirs = texts(input)?,
                "net" => settings.net = texts(input)?,
                "http" => settings.http = texts(input)?,
                "env" => settings.env = texts(input)?,
                "secrets" => settings.secrets = texts(input)?,
                _ => return settings.tasks.take(key, input),
            }
            Ok(true)
        };
        each_key(input, take, || {
            format!(
                "a module takes package, interface, types(…), dirs(…), net(…), http(…), env(…), secrets(…), and for \
                 all its tasks {TASK_KEYS}"
            )
        })?;
        Ok(settings)
    }
}

/// Reads `key…, key…` to the end. `take` takes what follows a key and says whether it knows the key.
fn each_key(
    input: ParseStream,
    mut take: impl FnMut(&Ident, ParseStream) -> syn::Result<bool>,
    keys: impl Fn() -> String,
) -> syn::Result<()> {
    let mut seen: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        let key = input.call(Ident::parse_any)?;
        if key != "alternative" && seen.contains(&key) {
            let message = format!("`{key}` is here twice: keep one");
            return Err(syn::Error::new(key.span(), message));
        }
        if !take(&key, input)? {
            let message = format!("there is no `{key}` here: {}", keys());
            return Err(syn::Error::new(key.span(), message));
        }
        seen.push(key);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// Takes the value of a key about amounts. False if it is about something else.
fn take_amount(key: &Ident, input: ParseStream, amounts: &mut Amounts) -> syn::Result<bool> {
    let resource = match key.to_string().as_str() {
        "cpus" => "CPU",
        "gpus" => "GPU",
        "memory" => "memory",
        "resources" => {
            amounts.append(&mut named_amounts(input)?);
            return Ok(true);
        }
        _ => return Ok(false),
    };
    input.parse::<Token![=]>()?;
    amounts.insert(resource.to_owned(), amount(resource, input)?);
    Ok(true)
}

/// `(cpus = "4", resources(FPGA = "1"))`.
fn amounts_in_parentheses(input: ParseStream) -> syn::Result<Amounts> {
    let content;
    parenthesized!(content in input);
    let mut amounts = Amounts::new();
    each_key(
        &content,
        |key, input| take_amount(key, input, &mut amounts),
        || "an alternative takes cpus, gpus, memory and resources(…)".to_owned(),
    )?;
    Ok(amounts)
}

/// `(FPGA = "1", "odd-name" = "2")`.
fn named_amounts(input: ParseStream) -> syn::Result<Amounts> {
    let content;
    parenthesized!(content in input);
    let mut amounts = Amounts::new();
    while !content.is_empty() {
        let (name, span) = if content.peek(LitStr) {
            let name: LitStr = content.parse()?;
            (name.value(), name.span())
        } else {
            let name = content.call(Ident::parse_any)?;
            (name.to_string(), name.span())
        };
        amounts::check_resource(&name).map_err(|why| syn::Error::new(span, why))?;
        content.parse::<Token![=]>()?;
        let amount = amount(&name, &content)?;
        amounts.insert(name, amount);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(amounts)
}

/// A literal: text, or a number as it is written.
fn amount(resource: &str, input: ParseStream) -> syn::Result<String> {
    let literal: Lit = input.parse()?;
    let text = match &literal {
        Lit::Str(text) => text.value(),
        Lit::Int(number) if number.suffix().is_empty() => number.base10_digits().to_owned(),
        Lit::Float(number) if number.suffix().is_empty() => number.base10_digits().to_owned(),
        other => {
            let message = "an amount is a text or a number: \"0.5\", \"64MiB\" or 2";
            return Err(syn::Error::new(other.span(), message));
        }
    };
    amounts::check(resource, &text).map_err(|why| syn::Error::new(literal.span(), why))?;
    Ok(text)
}

fn duration(input: ParseStream) -> syn::Result<String> {
    let text = text(input)?;
    amounts::check_duration(&text.value()).map_err(|why| syn::Error::new(text.span(), why))?;
    Ok(text.value())
}

fn text(input: ParseStream) -> syn::Result<LitStr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn count(input: ParseStream) -> syn::Result<u32> {
    input.parse::<Token![=]>()?;
    let literal: Lit = input.parse()?;
    let number = match &literal {
        Lit::Int(number) => number.base10_parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| {
        let message = "this is a count: write a whole number such as 3";
        syn::Error::new(literal.span(), message)
    })
}

fn texts(input: ParseStream) -> syn::Result<Vec<String>> {
    let content;
    parenthesized!(content in input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
    Ok(texts.iter().map(LitStr::value).collect())
}

/// The package of a module: what its attribute says, or the crate's name twice.
pub fn package(settings: &ModuleSettings, crate_name: &str) -> syn::Result<String> {
    let (text, span) = match &settings.package {
        Some(text) => (text.value(), text.span()),
        None => {
            let name = crate_name.replace('_', "-").to_lowercase();
            (format!("{name}:{name}"), Span::call_site())
        }
    };
    let advice =
        "write `#[module(package = \"my:app\")]`, with words of lower-case letters and digits";
    let (namespace, name) = text
        .split_once(':')
        .ok_or_else(|| syn::Error::new(span, format!("`{text}` is no package: {advice}")))?;
    for part in [namespace, name] {
        let check = names::check(part).and_then(|()| match names::is_keyword(part) {
            true => Err(format!("`{part}` is a keyword of Rust")),
            false => Ok(()),
        });
        check.map_err(|why| {
            syn::Error::new(span, format!("`{text}` is no package: {why}; {advice}"))
        })?;
    }
    Ok(text)
}
