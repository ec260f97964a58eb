//! The numbers of a node's services.

use super::text::{Family, Kind, Text};
use crate::serve::ServiceStats;
use crate::server::services::Services;

/// What a request's status begins with.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) fn add(text: &mut Text, services: &Services) {
    let all = services.stats();
    if all.is_empty() {
        return;
    }
    let mut family = text.family(
        "wasmrun_service_requests_total",
        Kind::Counter,
        "Requests of services that have ended, by how their status begins.",
    );
    for (tenant, name, stats) in &all {
        for (class, count) in CLASSES.iter().zip(stats.by_class) {
            let labels: [(&str, &dyn std::fmt::Display); 3] =
                [("service", name), ("tenant", tenant), ("status", class)];
            family.add(&labels, count);
        }
    }
    let each = |family: &mut Family<'_>, of: fn(&ServiceStats) -> u64| {
        for (tenant, name, stats) in &all {
            family.add(&[("service", name), ("tenant", tenant)], of(stats));
        }
    };
    let mut family = text.family(
        "wasmrun_service_refused_total",
        Kind::Counter,
        "Requests of services that were refused because too many waited, or no node could take them.",
    );
    each(&mut family, |it| it.refused);
    let mut family = text.family(
        "wasmrun_service_sent_bytes_total",
        Kind::Counter,
        "Bytes of bodies that services have sent.",
    );
    each(&mut family, |it| it.bytes);
    let mut family = text.family(
        "wasmrun_service_running",
        Kind::Gauge,
        "Requests of services that are under way.",
    );
    each(&mut family, |it| it.running as u64);
    let mut family = text.family(
        "wasmrun_service_waiting",
        Kind::Gauge,
        "Requests of services that wait for their turn.",
    );
    each(&mut family, |it| it.waiting as u64);
    let mut family = text.family(
        "wasmrun_service_connections",
        Kind::Gauge,
        "Clients of services that are connected.",
    );
    each(&mut family, |it| it.connections);
    let mut family = text.family(
        "wasmrun_service_request_duration_seconds",
        Kind::Histogram,
        "How long requests of services took, from their head to the end of the response.",
    );
    for (tenant, name, stats) in &all {
        let seconds = |us: u64| us as f64 / 1e6;
        let bounds = ServiceStats::BOUNDS_US.map(|us| seconds(us).to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip(&stats.took) {
            let labels: [(&str, &dyn std::fmt::Display); 3] =
                [("service", name), ("tenant", tenant), ("le", &bound)];
            family.add_part("_bucket", &labels, count);
        }
        let labels: [(&str, &dyn std::fmt::Display); 2] = [("service", name), ("tenant", tenant)];
        family.add_part("_sum", &labels, seconds(stats.took_us));
        family.add_part("_count", &labels, stats.requests());
    }
}
