//! The numbers of a node's services.

use wasmrun_model::fairness::TenantName;

use super::text::Text;
use crate::serve::ServiceStats;

/// What a request's status begins with.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What each service has one of.
type Number = (&'static str, &'static str, fn(&ServiceStats) -> u64);

const NUMBERS: &[Number] = &[
    (
        "wasmrun_service_refused_total",
        "Requests of services that were refused because too many waited, or no node could take them.",
        |it| it.refused,
    ),
    (
        "wasmrun_service_passed_on_total",
        "Requests that came to this node and that another one has answered, where they count.",
        |it| it.passed_on,
    ),
    (
        "wasmrun_service_sent_bytes_total",
        "Bytes of bodies that services have sent.",
        |it| it.bytes,
    ),
    (
        "wasmrun_service_running",
        "Requests of services that are under way.",
        |it| it.running as u64,
    ),
    (
        "wasmrun_service_waiting",
        "Requests of services that wait for their turn.",
        |it| it.waiting as u64,
    ),
    (
        "wasmrun_service_connections",
        "Clients of services that are connected.",
        |it| it.connections,
    ),
];

/// Adds those of all services, each with its tenant and its name.
pub(super) fn add(text: &mut Text, all: &[(TenantName, String, ServiceStats)]) {
    let mut family = text.family(
        "wasmrun_service_requests_total",
        "Requests of services that have ended, by route and by how their status begins.",
    );
    for (tenant, name, stats) in all {
        for (route, counts) in &stats.by_route {
            for (class, count) in CLASSES.iter().zip(counts) {
                let labels: [(&str, &dyn std::fmt::Display); 4] = [
                    ("service", name),
                    ("tenant", tenant),
                    ("route", route),
                    ("status", class),
                ];
                family.add(&labels, count);
            }
        }
    }
    for (name, help, of) in NUMBERS {
        let mut family = text.family(name, help);
        for (tenant, name, stats) in all {
            family.add(&[("service", name), ("tenant", tenant)], of(stats));
        }
    }
    let mut family = text.histogram(
        "wasmrun_service_request_duration_seconds",
        "How long requests of services took, from their head to the end of the response.",
    );
    for (tenant, name, stats) in all {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let stats = ServiceStats {
            by_route: vec![
                ("*".into(), [0, 0, 0, 1, 0]),
                ("GET /{id}".into(), [0, 2, 0, 0, 3]),
            ],
            ..ServiceStats::default()
        };
        let mut text = Text::default();
        add(&mut text, &[(TenantName::default(), "shop".into(), stats)]);
        let text = text.into_string();
        let requests = r#"wasmrun_service_requests_total{service="shop",tenant="default","#;
        for line in [
            format!(r#"{requests}route="*",status="4xx"}} 1"#),
            format!(r#"{requests}route="GET /{{id}}",status="2xx"}} 2"#),
            format!(r#"{requests}route="GET /{{id}}",status="5xx"}} 3"#),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        let count =
            r#"wasmrun_service_request_duration_seconds_count{service="shop",tenant="default"} 6"#;
        assert!(text.lines().any(|it| it == count), "{text}");
    }

    #[test]
    fn a_node_without_services_says_what_it_would_count() {
        let mut text = Text::default();
        add(&mut text, &[]);
        let text = text.into_string();
        assert!(
            text.contains("# TYPE wasmrun_service_requests_total counter\n"),
            "{text}"
        );
    }
}
