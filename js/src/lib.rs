//! The compiled part of the npm package `wasmrun`.
//!
//! Owns a session with a node ([`session`]) and what goes over to JavaScript and back: many commands in one packet ([`packet`]), and
//! what came of many in one answer ([`mail`]). Must not: know values of JavaScript, which `lib/codec.ts` makes of bytes; names,
//! promises and the classes of errors are TypeScript's (`lib/*.ts`).

// Nothing is exported to a test of it.
#![cfg_attr(test, allow(dead_code))]
#![allow(
    missing_docs,
    reason = "what TypeScript sees is documented in `lib/native.ts`"
)]

mod failure;
mod items;
mod mail;
mod options;
mod packet;
mod session;
mod shared;
