//! Objects: how large they are, and where.

use std::collections::BTreeMap;

use maud::html;
use wasmrun_client::wire::{List, ObjectRow, What};
use wasmrun_model::id::ObjectId;

use super::Fragment;
use super::parts::{self, Row};
use crate::data::{AskError, Source};

/// How many objects are shown: the largest.
const MOST: usize = 500;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ObjectRow>(List::of(What::Objects)).await?;
    let mut objects = BTreeMap::<ObjectId, Vec<&ObjectRow>>::new();
    for row in &page.rows {
        objects.entry(row.id).or_default().push(row);
    }
    let count = objects.len();
    let mut objects: Vec<(ObjectId, Vec<&ObjectRow>)> = objects.into_iter().collect();
    objects.sort_by_key(|(_, copies)| std::cmp::Reverse(copies[0].size_bytes));
    let rows = objects.iter().take(MOST).map(|(id, copies)| {
        let places = copies.iter();
        let places = places.map(|it| format!("{} ({})", it.node, it.place));
        let is_kept = copies.iter().any(|it| it.is_kept);
        let cells = vec![
            parts::id(&id.to_string()),
            parts::text(wasmrun_model::units::bytes(copies[0].size_bytes)),
            parts::text(places.collect::<Vec<_>>().join(", ")),
            parts::text(copies.len()),
            parts::text(&copies[0].tenant),
            match is_kept {
                true => parts::state_as("kept", "good"),
                false => parts::text("while it is used"),
            },
            parts::task(&id.task()),
        ];
        Row::new(id, cells)
    });
    let rows: Vec<Row> = rows.collect();
    let header = [
        "object", "size", "where", "copies", "tenant", "kept", "made by",
    ];
    let body = html! {
        (parts::silent(&page.silent))
        @if rows.is_empty() {
            (parts::empty("There are no objects that are kept or in the store. This stores one:", "wasmrun put FILE"))
        } @else {
            p { (count) " objects" @if count > MOST { ", of which the " (MOST) " largest are shown" } "." }
            (parts::table("Objects, the largest first", &header, &rows))
        }
    };
    Ok(Fragment::new("Objects", body))
}
