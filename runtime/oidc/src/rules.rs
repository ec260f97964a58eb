//! The file of `node start --oidc`: which provider, and what its people may do.
//!
//! Owns its form and the mapping of claims. The first rule that fits a person decides; who fits none is not let in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use wasmrun_model::access::{Access, Role, Tenants};
use wasmrun_model::units::parse_milliseconds;

use crate::ask::Url;
use crate::device::Offer;
use crate::people::PersonError;
use crate::shown;

/// The longest name of a person, in bytes.
const MOST_NAME_BYTES: usize = 128;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("the file of --oidc, {}, cannot be read: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others could give themselves roles.
    #[error(
        "the file of --oidc, {}, can be changed by others than the node's user and root: chown it to one of these, and \
         chmod go-w it", path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// What is in it.
    #[error("the file of --oidc, {}, is wrong: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Where, and what.
        why: String,
    },
}

/// Which provider, and what its people may do.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) offer: Offer,
    /// How long a certificate is valid.
    pub(crate) lifetime: Duration,
    name_claim: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    claim: String,
    value: String,
    role: Role,
    tenants: Tenants,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuer: String,
    client_id: String,
    client_secret: Option<String>,
    #[serde(default = "usual_scopes")]
    scopes: Vec<String>,
    #[serde(default = "usual_name")]
    name_claim: String,
    #[serde(default = "usual_lifetime")]
    lifetime: String,
    rules: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    claim: String,
    value: String,
    role: Role,
    #[serde(default)]
    tenants: Vec<String>,
}

fn usual_scopes() -> Vec<String> {
    ["openid", "email"].map(str::to_owned).into()
}

fn usual_name() -> String {
    "email".to_owned()
}

fn usual_lifetime() -> String {
    "12h".to_owned()
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, others could change it, or something in it is wrong.
    pub fn open(path: &Path) -> Result<Self, SettingsError> {
        let failed = |source| SettingsError::Read {
            path: path.to_owned(),
            source,
        };
        // Opened once: what is checked is what is read, even if others can change the folder.
        let file = fs::File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
        if !is_ours || meta.mode() & 0o022 != 0 {
            let path = path.to_owned();
            return Err(SettingsError::Exposed { path });
        }
        let text = io::read_to_string(file).map_err(failed)?;
        Self::parse(&text).map_err(|why| SettingsError::Wrong {
            path: path.to_owned(),
            why,
        })
    }

    /// The provider.
    pub fn issuer(&self) -> &str {
        &self.offer.issuer
    }

    /// The settings in a text, or where it is wrong, and why.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // With the line and the column.
        let file: File = serde_json::from_str(text).map_err(|error| match error.is_data() {
            true => error.to_string(),
            false => format!("it is not JSON: {error}; correct it there"),
        })?;
        let at = |place: &str, why: &dyn std::fmt::Display| format!("{place}: {why}");
        let issuer = Url::parse(&file.issuer).and_then(|url| url.below("x"));
        issuer.map_err(|why| at("issuer", &why))?;
        if !file.scopes.iter().any(|it| it == "openid") {
            return Err("scopes: openid is missing, without which there is no ID token".into());
        }
        let lifetime = parse_milliseconds(&file.lifetime).map_err(|why| at("lifetime", &why))?;
        let rules = file.rules.into_iter().enumerate().map(|(index, rule)| {
            let place = format!("rules[{index}]");
            Rule::try_from(rule).map_err(|why| at(&place, &why))
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        if rules.is_empty() {
            return Err("rules: there is none, so nobody could log in; add one".into());
        }
        Ok(Self {
            offer: Offer {
                issuer: file.issuer,
                client_id: file.client_id,
                client_secret: file.client_secret,
                scopes: file.scopes,
            },
            lifetime: Duration::from_millis(lifetime),
            name_claim: file.name_claim,
            rules,
        })
    }

    /// What somebody with these claims is called, and may do.
    pub(crate) fn access(&self, mut claims: Map<String, Value>) -> Result<Access, PersonError> {
        // Anybody can say that an address is theirs.
        if claims.get("email_verified").is_some_and(|it| !is_true(it)) {
            claims.remove("email");
        }
        let name = claims.get(&self.name_claim).and_then(Value::as_str);
        let name = name.ok_or_else(|| PersonError::NoName(self.name_claim.clone()))?;
        let is_fit = |it: char| it.is_ascii_graphic() && it != '/';
        if name.is_empty() || name.len() > MOST_NAME_BYTES || !name.chars().all(is_fit) {
            return Err(PersonError::Name(shown(name)));
        }
        let rule = self.rules.iter().find(|rule| rule.fits(&claims));
        let rule = rule.ok_or_else(|| PersonError::NoRule(name.to_owned()))?;
        Ok(Access {
            name: name.to_owned(),
            role: rule.role,
            tenants: rule.tenants.clone(),
        })
    }
}

fn is_true(value: &Value) -> bool {
    // Some providers write it as text.
    *value == Value::Bool(true) || *value == "true"
}

impl TryFrom<FileRule> for Rule {
    type Error = wasmrun_model::access::ParseAccessError;

    fn try_from(rule: FileRule) -> Result<Self, Self::Error> {
        let tenants = match (rule.role, &rule.tenants[..]) {
            (Role::Operator, []) => Tenants::All,
            (_, tenants) => Tenants::parse(tenants.iter().map(String::as_str))?,
        };
        let access = Access {
            name: String::new(),
            role: rule.role,
            tenants,
        };
        let Access { role, tenants, .. } = access.checked()?;
        Ok(Self {
            claim: rule.claim,
            value: rule.value,
            role,
            tenants,
        })
    }
}

impl Rule {
    fn fits(&self, claims: &Map<String, Value>) -> bool {
        let is_it = |value: &Value| match value {
            Value::String(text) => *text == self.value,
            Value::Bool(_) | Value::Number(_) => {
                let text = value.to_string();
                text == self.value
            }
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        match claims.get(&self.claim) {
            Some(Value::Array(values)) => values.iter().any(is_it),
            Some(value) => is_it(value),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(with: &Value) -> Result<Settings, String> {
        let mut file = json!({
            "issuer": "https://op.example.com", "client_id": "wasmrun",
            "rules": [
                {"claim": "groups", "value": "admins", "role": "operator"},
                {"claim": "groups", "value": "ml-team", "role": "submitter", "tenants": ["org/ml", "web"]},
                {"claim": "staff", "value": "true", "role": "viewer", "tenants": ["*"]},
                {"claim": "email", "value": "ann@example.com", "role": "viewer", "tenants": ["ann"]},
            ],
        });
        for (name, value) in with.as_object().expect("fields") {
            file[name] = value.clone();
        }
        Settings::parse(&file.to_string())
    }

    /// Role and tenants for these claims, or why there are none.
    fn mapped(settings: &Settings, claims: Value) -> Result<(Role, String), String> {
        let Value::Object(claims) = claims else {
            panic!("claims are an object");
        };
        let access = settings.access(claims).map_err(|error| error.to_string())?;
        Ok((access.role, access.tenants.to_string()))
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let settings = file(&json!({})).expect("a file");
        assert_eq!(settings.lifetime, Duration::from_secs(12 * 3600));
        let ann =
            |groups: Value| mapped(&settings, json!({"email": "ann@x.org", "groups": groups}));
        let ml = Ok((Role::Submitter, "org/ml,web".to_owned()));
        assert_eq!(ann(json!(["ml-team", "a"])), ml);
        assert_eq!(ann(json!("ml-team")), ml);
        let all = Ok((Role::Operator, "*".to_owned()));
        assert_eq!(ann(json!(["ml-team", "admins"])), all);
        let staff = mapped(&settings, json!({"email": "bob@x.org", "staff": true}));
        assert_eq!(staff, Ok((Role::Viewer, "*".to_owned())));
    }

    #[test]
    fn who_fits_no_rule_is_named_and_the_rules_are_not() {
        let settings = file(&json!({})).expect("a file");
        for groups in [
            json!([]),
            json!(["ml-team2"]),
            json!({"ml-team": 1}),
            json!(null),
        ] {
            let claims = json!({"email": "eve@x.org", "groups": groups});
            let said = mapped(&settings, claims).expect_err("no rule");
            assert!(said.contains("eve@x.org"), "{said}");
            assert!(
                !said.contains("ml-team") && !said.contains("groups"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_name_is_needed_and_an_address_that_is_not_verified_is_none() {
        let settings = file(&json!({})).expect("a file");
        let ann = json!({"email": "ann@example.com", "email_verified": true});
        assert_eq!(mapped(&settings, ann), Ok((Role::Viewer, "ann".to_owned())));
        for claims in [
            json!({"email": "ann@example.com", "email_verified": false}),
            json!({"email": "ann@example.com", "email_verified": "false"}),
            json!({"email": "ann@example.com", "email_verified": "False"}),
            json!({"email": "ann@example.com", "email_verified": 0}),
            json!({"email": "ann@example.com", "email_verified": null}),
            json!({"groups": ["admins"]}),
            json!({"email": 1, "groups": ["admins"]}),
            json!({"email": "a/b", "groups": ["admins"]}),
            json!({"email": "a\u{1b}b", "groups": ["admins"]}),
            json!({"email": "a".repeat(129), "groups": ["admins"]}),
            json!({"email": "", "groups": ["admins"]}),
        ] {
            let said = mapped(&settings, claims.clone()).expect_err("no name");
            assert!(!said.contains('\u{1b}'), "{said}");
            assert!(said.contains("name"), "{claims}: {said}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        for text in ["", "{", "nobody x"] {
            let why = Settings::parse(text).unwrap_err();
            assert!(why.starts_with("it is not JSON: "), "{why}");
            assert!(why.ends_with("; correct it there"), "{why}");
        }
        let rule = |rule: Value| json!({ "rules": [rule] });
        for (with, said) in [
            (json!({"issuer": "http://op.example.com"}), "issuer: "),
            (json!({"issuer": "https://op.example.com/?a"}), "issuer: "),
            (json!({"scopes": ["email"]}), "scopes: openid"),
            (json!({"lifetime": "soon"}), "lifetime: 'soon'"),
            (json!({"rules": []}), "rules: there is none"),
            (json!({"rule": []}), "unknown field `rule`"),
            (
                rule(json!({"claim": "a", "value": "b", "role": "root", "tenants": ["a"]})),
                "at line 1 column",
            ),
            (
                rule(json!({"claim": "a", "value": "b", "role": "viewer"})),
                "rules[0]: tenants are missing",
            ),
            (
                rule(json!({"claim": "a", "value": "b", "role": "operator", "tenants": ["a"]})),
                "rules[0]: an operator",
            ),
        ] {
            let why = file(&with).expect_err("it is wrong");
            assert!(why.contains(said), "{with}: {why}");
        }
        assert!(Settings::parse("{").is_err());
    }

    #[test]
    fn a_file_that_others_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("oidc.json");
        let opened = Settings::open(&path);
        assert!(matches!(opened, Err(SettingsError::Read { .. })));
        fs::write(&path, "{}").expect("written");
        for (mode, is_exposed) in [(0o600, false), (0o620, true), (0o602, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
            let error = Settings::open(&path).expect_err("it is empty");
            assert_eq!(matches!(error, SettingsError::Exposed { .. }), is_exposed);
        }
    }
}
