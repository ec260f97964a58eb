//! The screen as it is drawn. However small it is: what has no room is left out.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row as TableRow, Table, TableState, Wrap};

use super::state::{App, Mode, Row, Tab};

/// The widest that a column may be, in characters, but for the last one that has room.
const WIDEST: usize = 40;
/// The narrowest that is worth showing what is cut.
const NARROWEST: usize = 6;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(tabs(app), top);
    match &app.mode {
        Mode::Detail { lines, from, .. } => {
            let shown: Vec<Line<'_>> = lines[(*from).min(lines.len())..]
                .iter()
                .map(|line| Line::raw(line.as_str()))
                .collect();
            frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }), middle);
        }
        _ => list(frame, app, middle),
    }
    frame.render_widget(footer(app), bottom);
}

/// The lists that there are, and the one that is looked at.
fn tabs(app: &App) -> Line<'_> {
    let mut spans = Vec::new();
    for (at, tab) in Tab::ALL.iter().enumerate() {
        let style = match *tab == app.tab {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let name = format!(" {} {} ", at + 1, tab.name());
        spans.push(Span::styled(name, style));
    }
    spans.push(Span::raw(format!("  node {}", app.node)));
    Line::from(spans)
}

/// What keys do, what is asked, or what went wrong.
fn footer(app: &App) -> Line<'_> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &app.mode {
        _ if let Some(note) = &app.note => Line::styled(note.as_str(), bold),
        Mode::Filter => Line::styled(format!("/{}_", app.filter), bold),
        Mode::Confirm(target) => Line::styled(format!("cancel {}? y/n", target.id), bold),
        Mode::Detail { title, .. } => Line::raw(format!("{title}  j k scroll  esc back")),
        Mode::List => {
            let mut text = String::new();
            if !app.listing.silent.is_empty() {
                text = format!("silent: {}  ", app.listing.silent.join(", "));
            }
            if !app.filter.is_empty() {
                text.push_str(&format!("/{}  ", app.filter));
            }
            text.push_str("j k select  enter details  c cancel  / filter  1-7 lists  q quit");
            Line::raw(text)
        }
    }
}

fn list(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let visible = app.visible();
    let widths = widths(&app.listing.header, &visible, area.width.into());
    let count = widths.len();
    let rows = visible.iter().map(|row| {
        let style = match is_failed(row) {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        TableRow::new(row.cells.iter().take(count).map(String::as_str)).style(style)
    });
    let header = TableRow::new(app.listing.header.iter().take(count).copied());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let selected = Style::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(rows, widths.into_iter().map(Constraint::Length))
        .header(header.style(bold))
        .row_highlight_style(selected);
    let mut state = TableState::default().with_selected(app.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

fn is_failed(row: &Row) -> bool {
    matches!(row.all["state"].as_str(), Some("failed" | "dead"))
}

/// How wide each column is, of as many as there is room for. What is last may be cut.
fn widths(header: &[&str], rows: &[&Row], room: usize) -> Vec<u16> {
    let mut widths = Vec::new();
    let mut left = room;
    for (at, name) in header.iter().enumerate() {
        let cells = rows.iter().filter_map(|row| row.cells.get(at));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let mut width = widest.max(name.chars().count());
        if at + 1 < header.len() {
            width = width.min(WIDEST);
        }
        if width > left && left < NARROWEST && !widths.is_empty() {
            break;
        }
        let width = width.min(left);
        widths.push(u16::try_from(width).unwrap_or(u16::MAX));
        left = left.saturating_sub(width + 1);
    }
    widths
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::state::tests::{app, press};
    use super::*;

    fn drawn(app: &App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let cells = terminal.backend().buffer().content().iter();
        cells.map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn every_size_can_be_drawn() {
        let mut app = app();
        for (width, height) in [(1, 1), (3, 2), (10, 3), (20, 5), (80, 24), (300, 100)] {
            drawn(&app, width, height);
        }
        app.detail("a1", "one\ntwo");
        press(&mut app, KeyCode::End);
        for (width, height) in [(1, 1), (2, 3), (80, 24)] {
            drawn(&app, width, height);
        }
    }

    #[test]
    fn a_list_is_shown_with_what_can_be_done() {
        let mut app = app();
        let screen = drawn(&app, 100, 8);
        for text in [
            "1 jobs",
            "7 services",
            "node n1",
            "second",
            "silent: n3",
            "q quit",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        press(&mut app, KeyCode::Char('c'));
        assert!(drawn(&app, 100, 8).contains("cancel a1? y/n"));
    }

    #[test]
    fn columns_that_have_no_room_are_left_out() {
        let app = app();
        let rows = app.visible();
        let header = ["id", "name", "state"];
        assert_eq!(widths(&header, &rows, 80), [2, 6, 7]);
        assert_eq!(widths(&header, &rows, 17), [2, 6, 7]);
        assert_eq!(widths(&header, &rows, 13), [2, 6]);
        assert_eq!(widths(&header, &rows, 1), [1]);
        assert_eq!(widths(&header, &rows, 0), [0]);
    }
}
