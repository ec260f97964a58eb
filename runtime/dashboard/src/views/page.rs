//! A page as a whole: what is around a view.

use maud::{DOCTYPE, Markup, html};

use super::{Fragment, View};

/// The parts of the page.
const SECTIONS: [(&str, &str); 10] = [
    ("/", "Overview"),
    ("/nodes", "Nodes"),
    ("/queue", "Queue"),
    ("/jobs", "Jobs"),
    ("/tasks", "Tasks"),
    ("/actors", "Actors"),
    ("/services", "Services"),
    ("/objects", "Objects"),
    ("/tenants", "Tenants"),
    ("/groups", "Groups"),
];

/// A page with a view in it, which the script keeps up to date.
pub fn whole(view: &View, fragment: &Fragment) -> Markup {
    framed(
        &fragment.title,
        html! {
            nav aria-label="Views" {
                ul {
                    @for (path, name) in SECTIONS {
                        li {
                            a href=(path) aria-current=[(path == view.section()).then_some("page")] { (name) }
                        }
                    }
                }
            }
        },
        html! {
            main #main data-view=(view.path()) tabindex="-1" { (fragment.body) }
        },
    )
}

/// A page that is no view.
pub fn plain(title: &str, body: Markup) -> Markup {
    framed(
        title,
        html! {},
        html! {
            main #main tabindex="-1" {
                h1 { (title) }
                (body)
            }
        },
    )
}

/// A page that leads on to another one by itself. After a link on another site a browser sends a `SameSite` cookie when a page of
/// this site leads it on, and does not if it is redirected.
pub fn way_in(to: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0; url=" (to) };
                title { "wasmrun" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/style.css";
            }
            body { main { p { "You are let in: " a href=(to) { "to the page" } } } }
        }
    }
}

fn framed(title: &str, nav: Markup, main: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – wasmrun" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/style.css";
                script src="/script.js" defer {}
            }
            body {
                a.skip href="#main" { "To the content" }
                header {
                    a.brand href="/" { "wasmrun" }
                    (nav)
                    p #live role="status" aria-live="polite" {
                        "As of when the page was loaded."
                    }
                }
                (main)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_view_and_marks_where_it_is() {
        let view = View::at("/jobs?name=%22%3E%3Cscript%3E").expect("it is one");
        let fragment = Fragment::new("Jobs <b>", html! { p { "x" } });
        let page = whole(&view, &fragment).into_string();
        assert!(
            page.contains(r#"<a href="/jobs" aria-current="page">"#),
            "{page}"
        );
        assert!(
            page.contains("<title>Jobs &lt;b&gt; – wasmrun</title>"),
            "{page}"
        );
        assert!(
            page.contains(r#"<h1 id="title">Jobs &lt;b&gt;</h1>"#),
            "{page}"
        );
        assert!(
            page.contains(r#"data-view="/jobs?name=%22%3E%3Cscript%3E""#),
            "{page}"
        );
        assert_eq!(page.matches("<script").count(), 1, "{page}");
    }
}
