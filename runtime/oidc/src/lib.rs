//! How people log in by OpenID Connect.
//!
//! Owns both sides: the device authorization grant (RFC 8628), which the command runs, and the check of the ID token, with the
//! rules that say who may do what, which the head runs. Must not: know certificates, nodes or sessions; print.
//!
//! ```text
//!   head:     Settings ─▶ People ─ offer ─▶ (net) ─▶ Offer
//!   command:  Offer ─▶ Device: begin, id_token ─▶ (net) ─▶ People::access ─▶ Access
//! ```
//!
//! Invariants: a provider is asked over https, or over http at a loopback address; each request has a limit of time and of
//! bytes; redirections are not followed. Text of a provider that is shown has no control characters.

mod ask;
mod device;
mod people;
mod provider;
mod rules;
mod token;

pub use device::{Device, Offer};
pub use people::{People, PersonError};
pub use provider::ProviderError;
pub use rules::{Settings, SettingsError};
pub use token::TokenError;

/// Text of others, fit for a terminal and not too long.
fn shown(text: &str) -> String {
    let fit = text.chars().filter(|it| !it.is_control());
    fit.take(200).collect()
}
