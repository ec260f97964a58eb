//! HTTP, without a socket: which servers guests may call, and how requests call functions.
//!
//! Owns the text of a grant ([`HttpHost`]) and which names and addresses it covers; routes ([`Route`], [`Routes`]), how a
//! request becomes arguments ([`arguments()`]) and a result an answer ([`response`]), and what is said of that to others
//! ([`openapi()`]). Must not: read requests or write answers, look names up or connect, run functions.
//!
//! # How a request calls a function
//!
//! A route is `METHOD /path=function`, such as `GET /orders/{id}=find`. The method is GET, POST, PUT, PATCH or DELETE; HEAD
//! goes where GET goes. Paths are compared by segment, decoded; `/orders` and `/orders/` are two. `{id}` takes one segment
//! that is not empty. Where several routes of a method match, a literal segment wins over `{…}`, the first segment first.
//!
//! Parameters that the path names come from it. The others come
//! - for GET and DELETE from the query, by name;
//! - for POST, PUT and PATCH from the body, which is JSON ([`json`](crate::value::json)): of exactly one parameter the body
//!   is the value, of more the body is an object of them by name.
//!
//! In a path and a query numbers, bools, chars, strings and cases of enums stand as they are, alone or in an option, and
//! values of other types as JSON. Options may be left out. Anything that is not a parameter is an error.
//!
//! The answer is 200 with the result as JSON, or 204 where there is none. An error of a `result` is `{"error": …}`, of
//! status 422, or of the status that its case names: `not-found` is 404.
//!
//! Invariants: texts and bytes come from outside, so reading them returns errors and never panics. No two [`Routes`] match
//! the same request equally well.

mod answer;
mod arguments;
#[cfg(test)]
mod arguments_tests;
mod fuzz;
mod hosts;
mod openapi;
mod percent;
mod route;
mod routes;

pub use answer::{problem, response};
pub use arguments::{BadRequest, Place, arguments};
#[doc(hidden)]
pub use fuzz::fuzz;
pub use hosts::{HttpHost, ParseHttpHostError, is_public};
pub use openapi::openapi;
pub use route::{Method, ParseRouteError, Route};
pub use routes::{Lookup, Routes, RoutesError};
