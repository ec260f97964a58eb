//! Services, and one of them: by the id of the job that its requests are tasks of.

use maud::{Markup, html};
use wasmrun_client::wire::{List, ServiceRow, What};

use super::parts::{self, Column};
use super::{Fragment, units};
use crate::data::{AskError, Source};

pub async fn list(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ServiceRow>(List::of(What::Services)).await?;
    let body = html! {
        (parts::silent(&page.silent))
        @if page.rows.is_empty() {
            (parts::empty("There are no services. This starts one:", "wasmrun serve module.wasm --detach"))
        } @else {
            (listed(&page.rows))
        }
    };
    Ok(Fragment::new("Services", body))
}

fn listed(services: &[ServiceRow]) -> Markup {
    let columns: &[Column<ServiceRow>] = &[
        ("service", |it| {
            html! { a href={ "/services/" (it.job.to_string()) } { (it.name) } }
        }),
        ("URL", |it| parts::text(&it.url)),
        ("node", |it| parts::text(&it.node)),
        ("tenant", |it| parts::text(&it.tenant)),
        ("state", |it| parts::text(&it.state)),
        ("at all nodes", |it| parts::text(it.all_requests)),
        ("requests", |it| parts::text(it.requests)),
        ("failed", |it| parts::text(it.failed)),
        ("refused", |it| parts::text(it.refused)),
        ("running", |it| parts::text(it.running)),
        ("waiting", |it| parts::text(it.waiting)),
        ("connections", |it| parts::text(it.connections)),
        ("mean time", |it| parts::text(units::took(it.mean_us))),
        ("age", |it| parts::text(units::age(it.age_ms))),
    ];
    parts::table("Services", services, |it| it.job, columns)
}

pub async fn one(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ServiceRow>(List::of(What::Services)).await?;
    let row = page.rows.iter().find(|it| it.job.to_string() == id);
    let row = row.ok_or(AskError::Missing("service"))?;
    Ok(Fragment::new(format!("Service {}", row.name), shown(row)))
}

fn shown(row: &ServiceRow) -> Markup {
    let tasks = format!("/tasks?job={}", row.job);
    parts::facts(vec![
        ("URL", parts::text(&row.url)),
        ("node", parts::text(&row.node)),
        ("tenant", parts::text(&row.tenant)),
        ("state", parts::text(&row.state)),
        ("why", parts::text(row.why.as_deref().unwrap_or("-"))),
        ("requests at all nodes", parts::text(row.all_requests)),
        ("requests that have ended", parts::text(row.requests)),
        ("failed (5xx)", parts::text(row.failed)),
        ("refused", parts::text(row.refused)),
        ("requests that run", parts::text(row.running)),
        ("requests that wait", parts::text(row.waiting)),
        ("connections", parts::text(row.connections)),
        ("mean time", parts::text(units::took(row.mean_us))),
        (
            "job",
            html! { (parts::job(&row.job)) ", " a href=(tasks) { "its requests as tasks" } },
        ),
        ("module", html! { code { (row.module.to_string()) } }),
        ("goes on without its session", parts::yes(row.is_detached)),
        (
            "started",
            parts::text(format!("{} ago", units::age(row.age_ms))),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{Digest, DriverId};

    use super::*;

    #[test]
    fn a_service_leads_to_its_numbers_its_job_and_its_requests() {
        let row = ServiceRow {
            name: "<script>".into(),
            tenant: Default::default(),
            url: "http://127.0.0.1:8080".into(),
            node: "n1".into(),
            module: Digest::from_bytes([9; 32]),
            job: DriverId::from_bytes([8; 16]),
            is_detached: true,
            age_ms: 61_500,
            requests: 70,
            failed: 11,
            refused: 12,
            mean_us: 1230,
            running: 13,
            waiting: 14,
            connections: 15,
            state: "listening".into(),
            why: None,
            generation: 2,
            all_requests: 170,
        };
        let (job, module) = (row.job, row.module);
        let list = listed(std::slice::from_ref(&row)).into_string();
        let one = shown(&row).into_string();
        let link = format!("<a href=\"/services/{job}\">&lt;script&gt;</a>");
        assert!(list.contains(&link), "{list}");
        for text in [
            "70",
            "170",
            "listening",
            "11",
            "12",
            "13",
            "14",
            "15",
            "1.23ms",
            "1m1s",
        ] {
            assert!(list.contains(&format!(">{text}</td>")), "{text}: {list}");
        }
        for text in [
            "http://127.0.0.1:8080".to_owned(),
            format!("href=\"/jobs/{job}\""),
            format!("href=\"/tasks?job={job}\""),
            format!("<code>{module}</code>"),
            "<dd>11</dd>".to_owned(),
            "1m1s ago".to_owned(),
        ] {
            assert!(one.contains(&text), "{text}: {one}");
        }
    }
}
