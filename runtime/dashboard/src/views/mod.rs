//! The views of the page: each has a path, and is rendered here from what the node answers.
//!
//! Owns all text and markup. Must not: know HTTP or sessions. Names come from guests: they are text, which the templates escape.

mod actors;
mod graph;
mod groups;
mod job;
mod jobs;
mod nodes;
mod objects;
mod overview;
mod page;
mod parts;
mod queue;
mod services;
mod share;
mod task;
mod tenants;
mod units;
mod view;

use maud::{Markup, html};

use crate::data::{AskError, Source};

pub use self::page::{plain, way_in, whole};
pub use self::view::View;

/// What a view shows.
#[derive(Debug)]
pub struct Fragment {
    /// Its title.
    pub title: String,
    /// What is in the page's `<main>`.
    pub body: Markup,
}

impl Fragment {
    fn new(title: impl Into<String>, body: Markup) -> Self {
        let title = title.into();
        let body = html! {
            h1 #title { (title) }
            (body)
        };
        Self { title, body }
    }
}

/// Renders a view from what the node answers now.
///
/// # Errors
/// When it does not answer, or there is no such thing.
pub async fn render(view: &View, source: &Source) -> Result<Fragment, AskError> {
    match view {
        View::Overview => overview::render(source).await,
        View::Nodes => nodes::render(source).await,
        View::Queue => queue::render(source).await,
        View::Tenants => tenants::render(source).await,
        View::Jobs(filter) => jobs::jobs(filter, source).await,
        View::Job(id) => job::render(id, source).await,
        View::Tasks(filter) => jobs::tasks(filter, source).await,
        View::Task(id) => task::render(id, source).await,
        View::Actors => actors::list(source).await,
        View::Actor(id) => actors::one(id, source).await,
        View::Services => services::list(source).await,
        View::Service(id) => services::one(id, source).await,
        View::Objects => objects::render(source).await,
        View::Object(id) => objects::one(id, source).await,
        View::Groups => groups::render(source).await,
    }
}

/// The view of an error.
pub fn failed(error: &AskError) -> Fragment {
    let title = match error.is_missing() {
        true => "There is no such thing",
        false => "The node does not answer",
    };
    let body = html! {
        p.notice.bad { (error.to_string()) }
        p { "What has ended is remembered for a while only. " a href="/" { "To the cluster at a glance" } }
    };
    Fragment::new(title, body)
}
