//! Names of tools, which clients restrict, from names of functions, which may be long and alike.
//!
//! Owns the rule: the shortest of a function's names that no other function has. Which name a function gets depends on the
//! modules and not on their order, but for functions that are the same in every name.

use std::collections::BTreeMap;

use wasmrun_model::id::Digest;

/// The longest name that all clients take.
const MAX_BYTES: usize = 64;

/// A function that is to have a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// What people call its module.
    pub(crate) module: &'a str,
    /// Its full name: `name`, or `interface#name`.
    pub(crate) function: &'a str,
}

/// A name for each, in their order. None is one of those `taken`.
pub(crate) fn tool_names(functions: &[Named<'_>], taken: &[&str]) -> Vec<String> {
    let forms: Vec<Vec<String>> = functions.iter().map(forms).collect();
    let mut used = vec![0; functions.len()];
    let name = |at: usize, used: &[usize]| forms[at][used[at]].clone();
    loop {
        let mut having: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for at in 0..functions.len() {
            having.entry(name(at, &used)).or_default().push(at);
        }
        let clashing = having
            .into_iter()
            .filter(|(name, all)| all.len() > 1 || taken.contains(&&**name));
        let longer = clashing.flat_map(|(_, all)| all);
        let longer: Vec<_> = longer
            .filter(|at| used[*at] + 1 < forms[*at].len())
            .collect();
        if longer.is_empty() {
            break;
        }
        longer.into_iter().for_each(|at| used[at] += 1);
    }
    let mut given: Vec<String> = Vec::new();
    for at in 0..functions.len() {
        let name = name(at, &used);
        let is_free = |name: &String| !given.contains(name) && !taken.contains(&&**name);
        let numbered = (2..).map(|number| fit(&format!("{name}_{number}")));
        let free = [name.clone()].into_iter().chain(numbered).find(is_free);
        given.push(free.expect("there are more numbers than functions"));
    }
    given
}

/// A function's names, the shortest first: its own, with its interface, its package, that one's version, its module.
fn forms(named: &Named<'_>) -> Vec<String> {
    let full = named.function;
    let mut forms = Vec::new();
    if let Some((interface, name)) = full.rsplit_once('#') {
        let unversioned = interface.split('@').next().unwrap_or(interface);
        let short = unversioned.rsplit('/').next().unwrap_or(unversioned);
        forms.push(name.to_owned());
        forms.push(format!("{short}_{name}"));
        forms.push(format!("{unversioned}_{name}"));
    }
    forms.push(full.to_owned());
    forms.push(format!("{}_{full}", named.module));
    forms.iter().map(|form| fit(form)).collect()
}

/// The name in the characters that clients take; a long one ends with a hash of it.
fn fit(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain = name.chars().map(|c| if is_taken(c) { c } else { '_' });
    let mut plain: String = plain.collect();
    if plain.len() > MAX_BYTES {
        let hash = Digest::of(name.as_bytes()).to_string();
        plain.truncate(MAX_BYTES - 9);
        plain = format!("{plain}_{}", &hash[..8]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(functions: &[(&str, &str)]) -> Vec<String> {
        let functions: Vec<_> = functions
            .iter()
            .map(|&(module, function)| Named { module, function })
            .collect();
        tool_names(&functions, &["run_python"])
    }

    #[test]
    fn a_name_is_as_short_as_it_can_be() {
        let names = of(&[
            ("orders", "a:b/pricing@0.1.0#price-all"),
            ("fixture", "a#who"),
            ("fixture", "b#who"),
            ("fixture", "run_python"),
        ]);
        assert_eq!(names, ["price-all", "a_who", "b_who", "fixture_run_python"]);
    }

    #[test]
    fn what_is_alike_is_told_apart() {
        let names = of(&[
            ("one", "a:b/x@0.1.0#f"),
            ("two", "a:c/x@0.1.0#f"),
            ("one", "a:c/x@0.2.0#f"),
            ("one", "g"),
            ("two", "g"),
            ("two", "g"),
        ]);
        let expected = [
            "a_b_x_f",
            "a_c_x_0_1_0_f",
            "a_c_x_0_2_0_f",
            "one_g",
            "two_g",
            "two_g_2",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        let long = |end: &str| format!("{}{end}", "long-name-".repeat(9));
        let names = of(&[("m", &long("a")), ("m", &long("b"))]);
        assert!(
            names.iter().all(|name| name.len() == MAX_BYTES),
            "{names:?}"
        );
        assert_ne!(names[0], names[1]);
    }
}
