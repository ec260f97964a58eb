//! Selectors: what a request demands of the labels of its node.
//!
//! Owns the terms, their text and the matching. Must not: choose between nodes.
//!
//! Invariants: a selector's text reads back as the same selector. `k!=v` and `k notin (…)` hold
//! where the node has no label `k`: these are the rules of Kubernetes' label selectors.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::labels::{LabelKey, LabelValue, Labels, ParseLabelError, cut};
use crate::encoding::text::serde_as_text;

/// One demand on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    key: LabelKey,
    rule: Rule,
}

/// What a [`Term`] demands of its label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// `k=v`: it has this value.
    Is(LabelValue),
    /// `k!=v`: it does not have this value, or is not there.
    IsNot(LabelValue),
    /// `k in (a,b)`: it has one of these values.
    In(Vec<LabelValue>),
    /// `k notin (a,b)`: it has none of these values, or is not there.
    NotIn(Vec<LabelValue>),
    /// `k`: it is there.
    Exists,
    /// `!k`: it is not there.
    Absent,
}

impl Term {
    /// The label's key.
    pub fn key(&self) -> &LabelKey {
        &self.key
    }

    /// What is demanded of it.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Whether the labels do as it demands.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(self.key.as_str());
        match &self.rule {
            Rule::Is(wanted) => value == Some(wanted),
            Rule::IsNot(refused) => value != Some(refused),
            Rule::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Rule::NotIn(refused) => value.is_none_or(|value| !refused.contains(value)),
            Rule::Exists => value.is_some(),
            Rule::Absent => value.is_none(),
        }
    }
}

/// A demand on a node's labels: terms that all must hold.
///
/// Text: terms with commas between them (`zone=a,gpu in (h100,h200),!spot`), or `*` for any node.
/// Serialised as that text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Selector {
    terms: Vec<Term>,
}

impl Selector {
    /// The most terms in a selector, and the most values in a term.
    pub const MAX: usize = 64;

    /// The selector that every node satisfies.
    pub fn any() -> Self {
        Self::default()
    }

    /// The terms, in the order in which they were written.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether every node satisfies it.
    pub fn is_any(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether all terms hold.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.mismatch(labels).is_none()
    }

    /// The first term that does not hold.
    pub fn mismatch(&self, labels: &Labels) -> Option<&Term> {
        self.terms.iter().find(|term| !term.matches(labels))
    }

    /// The selector for which the terms of both hold: for a list of texts that all must hold.
    pub fn and(mut self, other: Self) -> Result<Self, ParseSelectorError> {
        self.terms.extend(other.terms);
        match self.terms.len() <= Self::MAX {
            true => Ok(self),
            false => Err(ParseSelectorError::TooMany {
                what: "terms in one selector",
                max: Self::MAX,
            }),
        }
    }
}

/// Why a text is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSelectorError {
    /// Nothing, or nothing between two separators.
    #[error("a term of the label selector '{text}' is empty; write k=v, or * alone for any node")]
    Empty {
        /// The text, cut.
        text: String,
    },
    /// The key or a value is none.
    #[error("in the selector term '{term}': {error}")]
    Label {
        /// The term, cut.
        term: String,
        /// What is wrong with it.
        error: ParseLabelError,
    },
    /// It is none of the forms.
    #[error("'{term}' is not a selector term; write k=v, k!=v, k in (a,b), k notin (a,b), k or !k")]
    Form {
        /// The term, cut.
        term: String,
    },
    /// Too much of something.
    #[error("more than {max} {what}; use fewer")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        if text.trim() == "*" {
            return Ok(Self::any());
        }
        let mut terms = Vec::new();
        for term in split_outside_parentheses(text) {
            if term.is_empty() {
                return Err(ParseSelectorError::Empty { text: cut(text) });
            }
            if terms.len() == Self::MAX {
                return Err(ParseSelectorError::TooMany {
                    what: "terms in one selector",
                    max: Self::MAX,
                });
            }
            terms.push(term.parse()?);
        }
        Ok(Self { terms })
    }
}

/// The trimmed parts between commas that stand in no parentheses.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    let is_separator = move |c: char| {
        match c {
            '(' => is_inside = true,
            ')' => is_inside = false,
            _ => {}
        }
        c == ',' && !is_inside
    };
    text.split(is_separator).map(str::trim)
}

impl FromStr for Term {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        let wrong = |error| ParseSelectorError::Label {
            term: cut(text),
            error,
        };
        let form = || ParseSelectorError::Form { term: cut(text) };
        let value = |text: &str| text.trim().parse::<LabelValue>().map_err(wrong);
        let text = text.trim();
        let (key, rule) = if let Some(list) = text.strip_suffix(')') {
            let (head, list) = list.split_once('(').ok_or_else(form)?;
            let mut words = head.split_whitespace();
            let (key, word) = (words.next(), words.next());
            let (key, word) = key.zip(word).ok_or_else(form)?;
            let values = parse_values(list, form, value)?;
            let rule = match (word, words.next()) {
                ("in", None) => Rule::In(values),
                ("notin", None) => Rule::NotIn(values),
                _ => return Err(form()),
            };
            (key, rule)
        } else if let Some((key, text)) = text.split_once("!=") {
            (key, Rule::IsNot(value(text)?))
        } else if let Some((key, text)) = text.split_once('=') {
            // Kubernetes' other spelling, `k==v`.
            (
                key,
                Rule::Is(value(text.strip_prefix('=').unwrap_or(text))?),
            )
        } else if let Some(key) = text.strip_prefix('!') {
            (key, Rule::Absent)
        } else if text.contains([' ', '(']) {
            return Err(form());
        } else {
            (text, Rule::Exists)
        };
        let key = key.trim().parse().map_err(wrong)?;
        Ok(Self { key, rule })
    }
}

fn parse_values(
    list: &str,
    form: impl Fn() -> ParseSelectorError,
    value: impl Fn(&str) -> Result<LabelValue, ParseSelectorError>,
) -> Result<Vec<LabelValue>, ParseSelectorError> {
    let mut values = Vec::new();
    for text in list.split(',') {
        // No empty value here, else `k in ()` would look like none and be one.
        if text.trim().is_empty() {
            return Err(form());
        }
        if values.len() == Selector::MAX {
            return Err(ParseSelectorError::TooMany {
                what: "values in one selector term",
                max: Selector::MAX,
            });
        }
        values.push(value(text)?);
    }
    Ok(values)
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, rule } = self;
        let list = |f: &mut fmt::Formatter<'_>, word: &str, values: &[LabelValue]| {
            write!(f, "{key} {word} (")?;
            for (at, value) in values.iter().enumerate() {
                write!(f, "{}{value}", if at == 0 { "" } else { "," })?;
            }
            f.write_str(")")
        };
        match rule {
            Rule::Is(value) => write!(f, "{key}={value}"),
            Rule::IsNot(value) => write!(f, "{key}!={value}"),
            Rule::In(values) => list(f, "in", values),
            Rule::NotIn(values) => list(f, "notin", values),
            Rule::Exists => write!(f, "{key}"),
            Rule::Absent => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("*");
        }
        for (at, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

serde_as_text!(Selector, "a string");

/// Selectors as fallbacks: the first one for which a node is there wins. None at all means any
/// node.
///
/// Text: selectors with `;` between them (`zone=a ; zone=b ; *`). Serialised as a list of texts;
/// one text is read too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Selectors(Vec<Selector>);

impl Selectors {
    /// The most fallbacks.
    pub const MAX: usize = 16;

    /// The selectors in this order. What follows one that every node satisfies says nothing and is
    /// left out, and so is that one if it stands alone. Fails above [`Selectors::MAX`].
    pub fn new(mut selectors: Vec<Selector>) -> Result<Self, ParseSelectorError> {
        if selectors.len() > Self::MAX {
            return Err(ParseSelectorError::TooMany {
                what: "label selectors as fallbacks",
                max: Self::MAX,
            });
        }
        match selectors.iter().position(Selector::is_any) {
            Some(0) => selectors.clear(),
            Some(at) => selectors.truncate(at + 1),
            None => {}
        }
        Ok(Self(selectors))
    }

    /// In the order in which they are tried; none means any node.
    pub fn as_slice(&self) -> &[Selector] {
        &self.0
    }

    /// Whether any node will do.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Selectors {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        // One more than allowed is enough to see that there are too many.
        let selectors = text.split(';').take(Self::MAX + 1).map(str::parse);
        Self::new(selectors.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Selectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("*");
        }
        for (at, selector) in self.0.iter().enumerate() {
            write!(f, "{}{selector}", if at == 0 { "" } else { " ; " })?;
        }
        Ok(())
    }
}

impl Serialize for Selectors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl<'de> Deserialize<'de> for Selectors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(SelectorsVisitor),
            false => deserializer.deserialize_seq(SelectorsVisitor),
        }
    }
}

struct SelectorsVisitor;

impl<'de> Visitor<'de> for SelectorsVisitor {
    type Value = Selectors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label selector, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Selectors, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Selectors, A::Error> {
        let mut selectors = Vec::new();
        while selectors.len() <= Selectors::MAX
            && let Some(selector) = seq.next_element()?
        {
            selectors.push(selector);
        }
        Selectors::new(selectors).map_err(de::Error::custom)
    }
}

/// Fuzz target: text from anywhere is refused or reads back as the same.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(selectors) = text.parse::<Selectors>() {
        assert_eq!(selectors.to_string().parse(), Ok(selectors));
    }
    if let Ok(labels) = text.parse::<Labels>() {
        assert_eq!(labels.to_string().parse(), Ok(labels));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selector(text: &str) -> Selector {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn terms_match_as_in_kubernetes() {
        let labels: Labels = "zone=a,gpu=h100,empty=".parse().unwrap();
        for (text, expected) in [
            ("zone=a", true),
            ("zone==a", true),
            ("zone=b", false),
            ("rack=a", false),
            ("empty=", true),
            ("zone=", false),
            ("zone!=b", true),
            ("zone!=a", false),
            ("rack!=a", true),
            ("gpu in (h100, h200)", true),
            ("gpu in (a100,h200)", false),
            ("rack in (1)", false),
            ("gpu notin (a100)", true),
            ("gpu notin(a100,h100)", false),
            ("rack notin (1)", true),
            ("zone", true),
            ("rack", false),
            ("!rack", true),
            ("! zone", false),
            ("zone=a,gpu in (h100,h200),!spot", true),
            ("zone=a,!gpu", false),
            ("*", true),
        ] {
            assert_eq!(selector(text).matches(&labels), expected, "{text}");
        }
        let all = selector("zone=a, gpu notin (h100,x), !zone");
        assert_eq!(
            all.mismatch(&labels).unwrap().to_string(),
            "gpu notin (h100,x)"
        );
    }

    #[test]
    fn text_is_normal_and_reads_back() {
        let text = " zone = a , gpu  in  ( h100 , h200 ),b notin(c) , x/y , ! z,e= ,f!=g ";
        let normal = "zone=a,gpu in (h100,h200),b notin (c),x/y,!z,e=,f!=g";
        assert_eq!(selector(text).to_string(), normal);
        assert_eq!(selector(normal), selector(text));
        let json = serde_json::to_string(&selector(text)).unwrap();
        assert_eq!(json, format!("\"{normal}\""));
        assert_eq!(
            serde_json::from_str::<Selector>(&json).unwrap(),
            selector(text)
        );
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in [
            "",
            ",",
            "a,",
            "a b",
            "a in",
            "a in ()",
            "a in (b",
            "a in b)",
            "a in (b,)",
            "in (a)",
            "a notin (b) c",
            "a in x (b)",
            "=a",
            "!=a",
            "!",
            "a=b=c",
            "a=(b)",
            "a===b",
            "*,a",
            "a;b",
            "a in ((b))",
            "a(b)",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text:?}");
        }
        let error = |text: &str| text.parse::<Selector>().unwrap_err().to_string();
        assert!(error("zone is a").starts_with("'zone is a' is not a selector term; write k=v"));
        assert!(error("zone=a b").starts_with("in the selector term 'zone=a b': 'a b' is not"));
        let many = vec!["a"; Selector::MAX + 1].join(",");
        assert!(error(&many).contains("more than 64 terms"));
        assert!(error(&format!("k in ({many})")).contains("more than 64 values"));
        let half = selector(&vec!["a"; Selector::MAX].join(","));
        assert!(half.clone().and(Selector::any()).is_ok() && half.and(selector("b")).is_err());
    }

    #[test]
    fn fallbacks() {
        let parse = |text: &str| text.parse::<Selectors>();
        let both = parse("zone in (a;b)").is_err();
        assert!(both, "; does not stand inside parentheses");
        let selectors = parse("zone=a,gpu; zone in (b,c) ;*; d").unwrap();
        assert_eq!(selectors.to_string(), "zone=a,gpu ; zone in (b,c) ; *");
        let json = serde_json::to_string(&selectors).unwrap();
        assert_eq!(json, r#"["zone=a,gpu","zone in (b,c)","*"]"#);
        assert_eq!(serde_json::from_str::<Selectors>(&json).unwrap(), selectors);
        assert_eq!(
            serde_json::from_str::<Selectors>(r#""a ; b""#).unwrap(),
            parse("a;b").unwrap()
        );
        let bytes = postcard::to_allocvec(&selectors).unwrap();
        assert_eq!(
            postcard::from_bytes::<Selectors>(&bytes).unwrap(),
            selectors
        );
        assert_eq!(parse("*;a").unwrap(), Selectors::default());
        assert!(parse("a;").is_err() && parse("").is_err());
        assert!(parse(&vec!["a"; 17].join(";")).is_err());
        assert!(parse(&vec!["a"; 16].join(";")).is_ok());
        let list = format!("[{}]", vec!["\"a\""; 17].join(","));
        assert!(serde_json::from_str::<Selectors>(&list).is_err());
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in "[ab=!(),; */.-]{0,24}|[a-c]{1,2} (in|notin) \\([ab,]{0,5}\\)") {
            fuzz(text.as_bytes());
        }
    }
}
