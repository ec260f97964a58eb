//! The views and their paths.

use std::time::Duration;

use wasmrun_client::wire::{List, What};

/// How many rows a page of a list has.
const ROWS: u32 = 100;
/// The longest value of a filter, in bytes.
const MOST_VALUE_BYTES: usize = 200;
/// The longest id, in hexadecimal digits.
const MOST_DIGITS: usize = 40;

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum View {
    /// The cluster at a glance.
    Overview,
    /// The nodes, and which tasks hold their resources.
    Nodes,
    /// The tasks that wait, and why.
    Queue,
    /// The tenants and their shares.
    Tenants,
    /// Jobs.
    Jobs(Filter),
    /// One job, by its id.
    Job(String),
    /// Tasks.
    Tasks(Filter),
    /// One task, by its id.
    Task(String),
    /// Actors.
    Actors,
    /// One actor, by its id.
    Actor(String),
    /// Services.
    Services,
    /// One service, by the id of its job.
    Service(String),
    /// Objects.
    Objects,
    /// One object, by its id.
    Object(String),
    /// Placement groups.
    Groups,
}

/// Which rows of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Filter {
    /// Only those where all of these fields have these values.
    pub fields: Vec<(String, String)>,
    /// Only those behind this place.
    pub after: Option<String>,
}

impl View {
    /// The view at this path.
    pub fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let (first, second) = (parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let filter = |what| Filter::parse(query.unwrap_or_default(), what);
        match (first, second) {
            ("", None) => Some(Self::Overview),
            ("nodes", None) => Some(Self::Nodes),
            ("queue", None) => Some(Self::Queue),
            ("tenants", None) => Some(Self::Tenants),
            ("jobs", None) => Some(Self::Jobs(filter(What::Jobs))),
            ("jobs", Some(id)) => id_of(id).map(Self::Job),
            ("tasks", None) => Some(Self::Tasks(filter(What::Tasks))),
            ("tasks", Some(id)) => id_of(id).map(Self::Task),
            ("actors", None) => Some(Self::Actors),
            ("actors", Some(id)) => id_of(id).map(Self::Actor),
            ("services", None) => Some(Self::Services),
            ("services", Some(id)) => id_of(id).map(Self::Service),
            ("objects", None) => Some(Self::Objects),
            ("objects", Some(id)) => id_of(id).map(Self::Object),
            ("groups", None) => Some(Self::Groups),
            _ => None,
        }
    }

    /// The view at a path that has its query behind a `?`.
    pub fn at(place: &str) -> Option<Self> {
        match place.split_once('?') {
            Some((path, query)) => Self::parse(path, Some(query)),
            None => Self::parse(place, None),
        }
    }

    /// Where it is: what [`Self::at`] takes.
    pub fn path(&self) -> String {
        match self {
            Self::Jobs(filter) => format!("/jobs{}", filter.query()),
            Self::Tasks(filter) => format!("/tasks{}", filter.query()),
            Self::Job(id)
            | Self::Task(id)
            | Self::Actor(id)
            | Self::Service(id)
            | Self::Object(id) => {
                format!("{}/{id}", self.section())
            }
            _ => self.section().to_owned(),
        }
    }

    /// The part of the page that it is in.
    pub fn section(&self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Nodes => "/nodes",
            Self::Queue => "/queue",
            Self::Tenants => "/tenants",
            Self::Jobs(_) | Self::Job(_) => "/jobs",
            Self::Tasks(_) | Self::Task(_) => "/tasks",
            Self::Actors | Self::Actor(_) => "/actors",
            Self::Services | Self::Service(_) => "/services",
            Self::Objects | Self::Object(_) => "/objects",
            Self::Groups => "/groups",
        }
    }

    /// How often it is rendered at most, where others are each `usual`: a view that asks the node for more, less often.
    pub fn period(&self, usual: Duration) -> Duration {
        match self {
            Self::Queue | Self::Objects | Self::Object(_) => usual * 3,
            _ => usual,
        }
    }
}

impl Filter {
    fn parse(query: &str, what: What) -> Self {
        let mut filter = Self::default();
        for (field, value) in form_urlencoded::parse(query.as_bytes()) {
            if value.is_empty() || value.len() > MOST_VALUE_BYTES {
                continue;
            }
            if field == "after" {
                filter.after = Some(value.into_owned());
            } else if what.fields().contains(&&*field) {
                filter.fields.push((field.into_owned(), value.into_owned()));
            }
        }
        filter
    }

    /// The value that a field must have; empty if it may have any.
    pub fn value(&self, field: &str) -> &str {
        let found = self.fields.iter().find(|(name, _)| name == field);
        found.map_or("", |(_, value)| value)
    }

    /// The page of the list.
    pub fn list(&self, what: What) -> List {
        List {
            what,
            filters: self.fields.clone(),
            limit: ROWS,
            after: self.after.clone(),
        }
    }

    /// The same rows, from another place on.
    pub fn after(&self, place: &str) -> Self {
        Self {
            fields: self.fields.clone(),
            after: Some(place.to_owned()),
        }
    }

    /// With a `?` before it, if it is not empty.
    pub fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.fields);
        if let Some(after) = &self.after {
            query.append_pair("after", after);
        }
        match query.finish() {
            none if none.is_empty() => none,
            some => format!("?{some}"),
        }
    }
}

fn id_of(text: &str) -> Option<String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = (1..=MOST_DIGITS).contains(&text.len());
    (is_hex && fits).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_view_and_a_view_its_path() {
        for path in [
            "/",
            "/nodes",
            "/queue",
            "/tenants",
            "/jobs",
            "/jobs?state=failed&name=a+b&after=x",
            "/jobs/00ff",
            "/tasks?tenant=red",
            "/tasks/00ff",
            "/actors",
            "/actors/00ff",
            "/services",
            "/services/00ff",
            "/objects",
            "/objects/00ff",
            "/groups",
        ] {
            let view = View::at(path).unwrap_or_else(|| panic!("{path} is a view"));
            assert_eq!(view.path(), path);
        }
        for path in [
            "",
            "nodes",
            "/nothing",
            "/jobs/",
            "/jobs/x",
            "/jobs/00/1",
            "//evil.example",
        ] {
            assert_eq!(View::at(path), None, "{path}");
        }
    }

    #[test]
    fn filters_are_of_fields_that_there_are() {
        let view = View::at("/jobs?state=&nonsense=1&name=x").expect("it is one");
        assert_eq!(view.path(), "/jobs?name=x");
        let View::Jobs(filter) = view else {
            panic!("it is jobs");
        };
        assert_eq!((filter.value("name"), filter.value("state")), ("x", ""));
        assert_eq!(filter.after("y&z").query(), "?name=x&after=y%26z");
    }
}
