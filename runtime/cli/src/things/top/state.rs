//! What is on the screen of `top`, and what keys change.
//!
//! Must not: draw, or ask the node.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value as Json;
use wasmrun_client::wire::What;

/// How many lines a page of a list or of details is, for the keys that go so far.
const PAGE: usize = 10;

/// A list that can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Jobs,
    Tasks,
    Nodes,
    Tenants,
    Actors,
    Objects,
    Services,
}

impl Tab {
    pub const ALL: [Self; 7] = [
        Self::Jobs,
        Self::Tasks,
        Self::Nodes,
        Self::Tenants,
        Self::Actors,
        Self::Objects,
        Self::Services,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Tasks => "tasks",
            Self::Nodes => "nodes",
            Self::Tenants => "tenants",
            Self::Actors => "actors",
            Self::Objects => "objects",
            Self::Services => "services",
        }
    }

    pub fn what(self) -> What {
        match self {
            Self::Jobs => What::Jobs,
            Self::Tasks => What::Tasks,
            Self::Nodes => What::Members,
            Self::Tenants => What::Tenants,
            Self::Actors => What::Actors,
            Self::Objects => What::Objects,
            Self::Services => What::Services,
        }
    }

    /// Whether the node can describe and cancel its rows.
    fn is_work(self) -> bool {
        matches!(self, Self::Jobs | Self::Tasks | Self::Actors)
    }

    /// The one that is so many further on, in a circle.
    fn beside(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// One thing of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: String,
    pub tenant: String,
    /// What the list shows.
    pub cells: Vec<String>,
    /// All that is known.
    pub all: Json,
}

/// A list as it was when the node was asked last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    pub header: Vec<&'static str>,
    pub rows: Vec<Row>,
    /// The nodes that have not answered.
    pub silent: Vec<String>,
}

/// A thing that something is to be done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub id: String,
    pub tenant: String,
}

/// What keys are for.
#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    List,
    /// The text that rows must have is typed.
    Filter,
    /// Whether this is to be cancelled is asked.
    Confirm(Target),
    /// All about one thing, from this line on.
    Detail {
        title: String,
        lines: Vec<String>,
        from: usize,
    },
}

/// What a key asks for that others must do.
#[derive(Debug, PartialEq)]
pub enum Action {
    Quit,
    /// The list is another one.
    Look,
    Describe(Target),
    Cancel(Target),
}

/// The screen.
#[derive(Debug)]
pub struct App {
    /// The node that is asked.
    pub node: String,
    pub tab: Tab,
    pub listing: Listing,
    pub filter: String,
    pub mode: Mode,
    /// What went wrong or was done, until the next key.
    pub note: Option<String>,
    /// The id of the row that is selected, and how many rows with the same id stand before it: tenants and objects may
    /// have one for each node.
    selected: Option<(String, usize)>,
}

impl App {
    pub fn new(node: String) -> Self {
        Self {
            node,
            tab: Tab::Jobs,
            listing: Listing::default(),
            filter: String::new(),
            mode: Mode::List,
            note: None,
            selected: None,
        }
    }

    /// Takes a list, unless another one is looked at by now.
    pub fn listed(&mut self, tab: Tab, listing: Listing) {
        if tab == self.tab {
            self.listing = listing;
        }
    }

    pub fn note(&mut self, note: String) {
        self.note = Some(note);
    }

    pub fn detail(&mut self, title: &str, text: &str) {
        self.mode = Mode::Detail {
            title: title.to_owned(),
            lines: text.lines().map(ToOwned::to_owned).collect(),
            from: 0,
        };
    }

    /// The rows that have the text that was typed, in any case.
    pub fn visible(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let has = |row: &&Row| {
            row.id.contains(&wanted)
                || row
                    .cells
                    .iter()
                    .any(|cell| cell.to_lowercase().contains(&wanted))
        };
        self.listing.rows.iter().filter(has).collect()
    }

    /// Which of the visible rows is selected; the first one, if that is no longer there.
    pub fn selected(&self) -> Option<usize> {
        let visible = self.visible();
        let found = self.selected.as_ref().and_then(|(id, before)| {
            let rows = visible.iter().enumerate();
            let mut same = rows.filter(|(_, row)| row.id == *id);
            same.nth(*before).map(|(at, _)| at)
        });
        found.or((!visible.is_empty()).then_some(0))
    }

    fn select(&mut self, at: impl FnOnce(usize, usize) -> usize) {
        let Some(now) = self.selected() else { return };
        let visible = self.visible();
        let last = visible.len() - 1;
        let at = at(now, last).min(last);
        let id = &visible[at].id;
        let before = visible[..at].iter().filter(|row| row.id == *id).count();
        self.selected = Some((id.clone(), before));
    }

    fn row(&self) -> Option<&Row> {
        self.visible().get(self.selected()?).copied()
    }

    fn target(&self) -> Option<Target> {
        let row = self.row()?;
        Some(Target {
            id: row.id.clone(),
            tenant: row.tenant.clone(),
        })
    }

    /// A key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Action> {
        self.note = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        match &self.mode {
            Mode::List => self.press_in_list(key.code),
            Mode::Filter => {
                self.press_in_filter(key.code);
                None
            }
            Mode::Confirm(target) => {
                let target = target.clone();
                self.mode = Mode::List;
                let is_yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
                is_yes.then_some(Action::Cancel(target))
            }
            Mode::Detail { .. } => {
                self.press_in_detail(key.code);
                None
            }
        }
    }

    fn press_in_list(&mut self, key: KeyCode) -> Option<Action> {
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char(digit @ '1'..='7') => {
                return self.look(Tab::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab | KeyCode::Right => return self.look(self.tab.beside(1)),
            KeyCode::BackTab | KeyCode::Left => {
                return self.look(self.tab.beside(Tab::ALL.len() - 1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(|at, _| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown => self.select(|at, _| at + PAGE),
            KeyCode::PageUp => self.select(|at, _| at.saturating_sub(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.select(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.select(|_, last| last),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('c') if self.tab.is_work() => {
                if let Some(target) = self.target() {
                    self.mode = Mode::Confirm(target);
                }
            }
            KeyCode::Char('c') => {
                self.note = Some("only jobs, tasks and actors can be cancelled".into())
            }
            KeyCode::Enter if self.tab.is_work() => return self.target().map(Action::Describe),
            KeyCode::Enter => {
                if let Some((id, text)) = self.row().map(|row| (row.id.clone(), fields(&row.all))) {
                    self.detail(&id, &text);
                }
            }
            _ => {}
        }
        None
    }

    fn look(&mut self, tab: Tab) -> Option<Action> {
        if tab == self.tab {
            return None;
        }
        self.tab = tab;
        self.listing = Listing::default();
        self.selected = None;
        Some(Action::Look)
    }

    fn press_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Enter => self.mode = Mode::List,
            _ => {}
        }
    }

    fn press_in_detail(&mut self, key: KeyCode) {
        let Mode::Detail { lines, from, .. } = &mut self.mode else {
            return;
        };
        let last = lines.len().saturating_sub(1);
        *from = match key {
            KeyCode::Down | KeyCode::Char('j') => *from + 1,
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => *from + PAGE,
            KeyCode::PageUp => from.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                self.mode = Mode::List;
                return;
            }
            _ => *from,
        }
        .min(last);
    }
}

/// All that lists know of a thing, a line each.
fn fields(all: &Json) -> String {
    let Json::Object(fields) = all else {
        return all.to_string();
    };
    let line = |(key, value): (&String, &Json)| match value {
        Json::String(text) => format!("{key}: {text}"),
        value => format!("{key}: {value}"),
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A screen with three jobs.
    pub fn app() -> App {
        let mut app = App::new("n1".into());
        let row = |id: &str, name: &str| Row {
            id: id.into(),
            tenant: "default".into(),
            cells: vec![id.into(), name.into(), "running".into()],
            all: json!({ "id": id, "name": name }),
        };
        let rows = vec![row("a1", "first"), row("b2", "second"), row("c3", "third")];
        let listing = Listing {
            header: vec!["id", "name", "state"],
            rows,
            silent: vec!["n3".into()],
        };
        app.listed(Tab::Jobs, listing);
        app
    }

    pub fn press(app: &mut App, code: KeyCode) -> Option<Action> {
        app.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_selection_moves_and_stays_with_its_row() {
        let mut app = app();
        assert_eq!(app.selected(), Some(0));
        press(&mut app, KeyCode::Up);
        press(&mut app, KeyCode::Char('j'));
        assert_eq!(app.selected(), Some(1));
        let mut listing = app.listing.clone();
        listing.rows.remove(0);
        app.listed(Tab::Tasks, Listing::default());
        app.listed(Tab::Jobs, listing);
        assert_eq!(app.selected(), Some(0));
        assert_eq!(app.target().map(|it| it.id).as_deref(), Some("b2"));
        press(&mut app, KeyCode::PageDown);
        assert_eq!(app.selected(), Some(1));
        app.listed(Tab::Jobs, Listing::default());
        assert_eq!(app.selected(), None);
        press(&mut app, KeyCode::Down);
        assert_eq!(press(&mut app, KeyCode::Enter), None);
    }

    #[test]
    fn rows_with_one_id_are_selected_one_after_the_other() {
        let mut app = app();
        let mut listing = app.listing.clone();
        listing.rows.insert(1, listing.rows[0].clone());
        app.listed(Tab::Jobs, listing);
        for at in [1, 2, 3, 3] {
            press(&mut app, KeyCode::Down);
            assert_eq!(app.selected(), Some(at));
        }
        press(&mut app, KeyCode::Home);
        assert_eq!(app.selected(), Some(0));
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut app = app();
        press(&mut app, KeyCode::Char('/'));
        for c in "SECx".chars() {
            press(&mut app, KeyCode::Char(c));
        }
        assert!(app.visible().is_empty());
        press(&mut app, KeyCode::Backspace);
        press(&mut app, KeyCode::Enter);
        assert_eq!(app.visible().len(), 1);
        press(&mut app, KeyCode::Esc);
        assert_eq!(app.visible().len(), 3);
    }

    #[test]
    fn each_list_has_a_digit() {
        let mut app = app();
        for (digit, tab) in ('1'..='9').zip(Tab::ALL).skip(1) {
            assert_eq!(press(&mut app, KeyCode::Char(digit)), Some(Action::Look));
            assert_eq!(app.tab, tab);
        }
        assert_eq!(app.tab, Tab::Services);
        assert_eq!(press(&mut app, KeyCode::Char('8')), None);
        // All about a service is what its list knows.
        let shop = Row {
            id: "shop".into(),
            tenant: "default".into(),
            cells: vec!["shop".into()],
            all: json!({ "name": "shop", "url": "http://127.0.0.1:8080" }),
        };
        let listing = Listing {
            header: vec!["name"],
            rows: vec![shop],
            silent: Vec::new(),
        };
        app.listed(Tab::Services, listing);
        assert_eq!(press(&mut app, KeyCode::Enter), None);
        let Mode::Detail { title, lines, .. } = &app.mode else {
            panic!("{:?}", app.mode);
        };
        assert_eq!(title, "shop");
        assert!(lines.contains(&"url: http://127.0.0.1:8080".to_owned()));
    }

    #[test]
    fn nothing_is_cancelled_without_a_yes() {
        let mut app = app();
        assert_eq!(press(&mut app, KeyCode::Char('c')), None);
        assert_eq!(press(&mut app, KeyCode::Char('n')), None);
        assert_eq!(app.mode, Mode::List);
        press(&mut app, KeyCode::Char('c'));
        let target = Target {
            id: "a1".into(),
            tenant: "default".into(),
        };
        let cancelled = press(&mut app, KeyCode::Char('y'));
        assert_eq!(cancelled, Some(Action::Cancel(target)));
        assert_eq!(press(&mut app, KeyCode::Char('3')), Some(Action::Look));
        press(&mut app, KeyCode::Char('c'));
        assert_eq!(app.mode, Mode::List);
        assert!(app.note.is_some());
    }

    #[test]
    fn details_scroll_within_their_lines() {
        let mut app = app();
        app.detail("a1", "one\ntwo\nthree");
        press(&mut app, KeyCode::PageDown);
        assert!(matches!(app.mode, Mode::Detail { from: 2, .. }));
        press(&mut app, KeyCode::Home);
        press(&mut app, KeyCode::Up);
        assert!(matches!(app.mode, Mode::Detail { from: 0, .. }));
        assert_eq!(press(&mut app, KeyCode::Char('q')), None);
        assert_eq!(app.mode, Mode::List);
        assert_eq!(press(&mut app, KeyCode::Char('q')), Some(Action::Quit));
    }

    #[test]
    fn ctrl_c_ends_it_wherever_it_is() {
        let mut app = app();
        press(&mut app, KeyCode::Char('/'));
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(app.press(key), Some(Action::Quit));
    }
}
