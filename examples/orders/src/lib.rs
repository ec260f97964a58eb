//! Prices an order by rules: typed arguments and results of every kind.
//!
//! The types are in `wit/orders.wit`, and that file is all that a caller in any language needs to
//! know. `wasmrun` checks arguments against it before anything runs:
//!
//! ```text
//! wasmrun submit target/guests/orders.wasm --invoke 'price({
//!     id: "A-17", currency: eur, tier: member,
//!     items: [{sku: "mug", quantity: 3, unit-price: 1250, weight: some(400)}],
//!     care: {fragile}, delivery: parcel("DE"), coupon: none
//! }, [one-free(("mug", 3)), tax(1900)])'
//! ```
//!
//! An order that cannot be priced is an `err` of the function's result, not a trap. A trap would
//! be our own mistake, and be tried again.

#[allow(missing_docs, reason = "documented in wit/orders.wit")]
mod bindings {
    wit_bindgen::generate!({ world: "orders" });
}

mod price;

use bindings::exports::wasmrun::orders::pricing::{Guest, Invoice, Order, OrderError, Rule};

wasmrun_guest::manifest!(include_str!("../manifest.json"));

struct Orders;

impl Guest for Orders {
    fn price(order: Order, rules: Vec<Rule>) -> Result<Invoice, OrderError> {
        price::price(&order, &rules)
    }

    fn price_all(orders: Vec<Order>, rules: Vec<Rule>) -> Vec<Result<Invoice, OrderError>> {
        orders
            .iter()
            .map(|order| price::price(order, &rules))
            .collect()
    }
}

bindings::export!(Orders with_types_in bindings);
