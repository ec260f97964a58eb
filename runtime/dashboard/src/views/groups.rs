//! Placement groups, and where their bundles are.

use maud::{Markup, html};
use wasmrun_client::wire::{GroupBundle, GroupRow, List, What};

use super::parts::{self, Column};
use super::{Fragment, units};
use crate::data::{AskError, Source};

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<GroupRow>(List::of(What::Groups)).await?;
    let body = html! {
        (parts::silent(&page.silent))
        @if page.rows.is_empty() {
            (parts::empty(
                "There are no placement groups. This reserves two bundles on different nodes:",
                "wasmrun group create --detach --kind strict_spread --bundle cpus=1 --bundle cpus=1",
            ))
        }
        @for group in &page.rows { (shown(group)) }
    };
    Ok(Fragment::new("Placement groups", body))
}

fn shown(group: &GroupRow) -> Markup {
    let id = group.id.to_string();
    // A task that is ready waits; a group that is ready is there.
    let class = match &*group.state {
        "ready" => "good",
        other => parts::class_of(other),
    };
    let bundles: Vec<(usize, &GroupBundle)> = group.bundles.iter().enumerate().collect();
    let columns: &[Column<(usize, &GroupBundle)>] = &[
        ("bundle", |(at, _)| parts::text(at)),
        ("has", |(_, it)| parts::text(units::amounts(&it.amounts))),
        ("node", |(_, it)| {
            parts::text(it.node.as_deref().unwrap_or("none yet"))
        }),
    ];
    let row_id = |(at, _): &(usize, &GroupBundle)| format!("{id}-{at}");
    html! {
        section id={ "group-" (id) } {
            h2 { (group.name.as_deref().unwrap_or("(no name)")) }
            (parts::facts(vec![
                ("state", parts::state_as(&group.state, class)),
                ("id", html! { code { (id) } }),
                ("kind", parts::text(group.kind)),
                ("tenant", parts::text(&group.tenant)),
                ("node that owns it", parts::text(&group.node)),
                ("in this state for", parts::text(units::age(group.since_ms))),
                ("stays without its session", parts::yes(group.is_detached)),
            ]))
            @if let Some(why) = &group.why { p.why { (why) } }
            (parts::table("Bundles", &bundles, row_id, columns))
        }
    }
}
