//! `/api/v1`: the state API, for scripts.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};
use wasmrun_client::Error;
use wasmrun_client::wire::{List, RefusalKind, What};

use crate::data::AskError;
use crate::routes::App;

/// The lists, by their names.
const LISTS: [(&str, What); 11] = [
    ("nodes", What::Members),
    ("tasks", What::Tasks),
    ("attempts", What::Attempts),
    ("jobs", What::Jobs),
    ("actors", What::Actors),
    ("objects", What::Objects),
    ("modules", What::Modules),
    ("tenants", What::Tenants),
    ("due", What::Due),
    ("groups", What::Groups),
    ("services", What::Services),
];

/// `GET /api/v1/{list}?FIELD=VALUE&limit=N&after=PLACE`.
pub async fn list(State(app): State<Arc<App>>, Path(name): Path<String>, uri: Uri) -> Response {
    let Some((_, what)) = LISTS.into_iter().find(|(it, _)| *it == name) else {
        let names: Vec<&str> = LISTS.iter().map(|(name, _)| *name).collect();
        let why = format!("there is no list '{name}'; there are {}", names.join(", "));
        return failed(StatusCode::NOT_FOUND, &why);
    };
    let list = match asked(what, uri.query().unwrap_or_default()) {
        Ok(list) => list,
        Err(why) => return failed(StatusCode::BAD_REQUEST, &why),
    };
    match app.source.list(list).await {
        Ok(found) => said(StatusCode::OK, &found),
        Err(AskError::Request(Error::Refused(why))) if why.kind == RefusalKind::Usage => {
            failed(StatusCode::BAD_REQUEST, &why.message)
        }
        Err(error) => failed(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

/// The list that a query asks for.
fn asked(what: What, query: &str) -> Result<List, String> {
    let mut list = List::of(what);
    for (field, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*field {
            "limit" => {
                let limit = value.parse::<NonZeroU64>().map_err(|_| {
                    format!("limit={value} must be a whole number from 1 on, such as limit=100")
                })?;
                list.limit = u32::try_from(limit.get()).unwrap_or(u32::MAX);
            }
            "after" => list.after = Some(value.into_owned()),
            field => list = list.with(field, value),
        }
    }
    Ok(list)
}

/// An error in the JSON of the command line.
pub fn failed(status: StatusCode, why: &str) -> Response {
    said(
        status,
        &json!({ "version": 1, "error": { "message": why } }),
    )
}

fn said(status: StatusCode, json: &Json) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{json}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_filters_and_a_place() {
        let list =
            asked(What::Tasks, "state=failed&limit=5&after=x&name=a%20b").expect("it is one");
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            list.filters,
            [field("state", "failed"), field("name", "a b")]
        );
        assert_eq!((list.limit, list.after.as_deref()), (5, Some("x")));
        let many = asked(What::Tasks, "limit=99999999999").expect("it is more than a page");
        assert_eq!(many.limit, u32::MAX);
        for limit in ["many", "0", "-1", "1.5", ""] {
            let why = asked(What::Tasks, &format!("limit={limit}")).expect_err("it is none");
            let says = format!("limit={limit} must be a whole number from 1 on");
            assert!(why.starts_with(&says), "{why}");
        }
    }
}
