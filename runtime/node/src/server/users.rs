//! Which other users of the machine may use the socket, and what they may do there.
//!
//! Owns the file of `node start --users`, which is read for each connection of another user. Must not: check requests. A file
//! with a wrong line refuses the start of the node; later it changes nothing.
//!
//! Users and groups are those of `/etc/passwd` and `/etc/group`; those of other directories go by their numbers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use wasmrun_model::access::{Access, Role, Tenants};
use wasmrun_model::wire::{Refusal, RefusalKind};

use super::session::refusal;

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read.
    #[error("the file of users {} cannot be read: check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others could give themselves roles.
    #[error(
        "the file of users {} can be changed by others than the node's user and root: chown it to one of these, and chmod \
         go-w it", path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A line of it.
    #[error("the file of users {} is wrong in line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    /// What it last said without a mistake.
    rules: Mutex<Vec<Rule>>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    who: Who,
    role: Role,
    tenants: Tenants,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    User(u32),
    Group(u32),
}

/// The users and groups of this machine.
#[derive(Debug, Default)]
struct Accounts {
    users: BTreeMap<String, u32>,
    /// With the names of their members.
    groups: BTreeMap<String, (u32, Vec<String>)>,
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, others could change it, or a line is wrong.
    pub fn open(path: &Path) -> Result<Self, UsersError> {
        let rules = read(path, &Accounts::read())?;
        Ok(Self {
            path: path.to_owned(),
            rules: Mutex::new(rules),
        })
    }

    /// What a user may do, who is in this group: by the first line that names it.
    ///
    /// # Errors
    /// When none does.
    pub(super) fn access(&self, user: u32, group: u32) -> Result<Access, Refusal> {
        let accounts = Accounts::read();
        let mut rules = self.rules.lock();
        match read(&self.path, &accounts) {
            Ok(read) => *rules = read,
            Err(error) => tracing::warn!(%error, "what it said before holds on"),
        }
        let name = accounts.name_of(user);
        let found = rules.iter().find(|it| it.names(user, group, &accounts));
        let rule = found.ok_or_else(|| {
            let why = format_args!(
                "the node's file of users does not name {name} (uid {user}): an operator of the node adds a line to it, \
                 such as `{name} submitter default`"
            );
            refusal(RefusalKind::Usage, why)
        })?;
        Ok(Access {
            name,
            role: rule.role,
            tenants: rule.tenants.clone(),
        })
    }
}

/// What the user is called that the node runs as.
pub(super) fn name_of(user: u32) -> String {
    Accounts::read().name_of(user)
}

fn read(path: &Path, accounts: &Accounts) -> Result<Vec<Rule>, UsersError> {
    let failed = |source| UsersError::Read {
        path: path.to_owned(),
        source,
    };
    // Opened once: what is checked is what is read, even if others can change the folder.
    let file = fs::File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
    if !is_ours || meta.mode() & 0o022 != 0 {
        let path = path.to_owned();
        return Err(UsersError::Exposed { path });
    }
    let text = io::read_to_string(file).map_err(failed)?;
    parse(&text, accounts).map_err(|(line, why)| UsersError::Line {
        path: path.to_owned(),
        line,
        why,
    })
}

/// The rules of a file, or the number of its first line that is wrong, and why.
fn parse(text: &str, accounts: &Accounts) -> Result<Vec<Rule>, (usize, String)> {
    let mut rules = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            continue;
        }
        let rule = Rule::parse(line, accounts);
        rules.push(rule.map_err(|why| (at + 1, why))?);
    }
    Ok(rules)
}

impl Rule {
    fn parse(line: &str, accounts: &Accounts) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [who, role, tenants] = words[..] else {
            return Err(
                "it has to be a user, a role and tenants, such as `ann submitter research,web`"
                    .into(),
            );
        };
        let access = Access {
            name: String::new(),
            role: role.parse::<Role>().map_err(|why| why.to_string())?,
            tenants: tenants.parse::<Tenants>().map_err(|why| why.to_string())?,
        };
        let access = access.checked().map_err(|why| why.to_string())?;
        let unknown = |what: &str, name: &str| {
            format!("this machine has no {what} '{name}': correct the name, or give its number")
        };
        let who = match who.strip_prefix('@') {
            Some(group) => {
                let known = || accounts.groups.get(group).map(|(id, _)| *id);
                let id = group.parse().ok().or_else(known);
                Who::Group(id.ok_or_else(|| unknown("group", group))?)
            }
            None => {
                let known = || accounts.users.get(who).copied();
                let id = who.parse().ok().or_else(known);
                Who::User(id.ok_or_else(|| unknown("user", who))?)
            }
        };
        Ok(Self {
            who,
            role: access.role,
            tenants: access.tenants,
        })
    }

    fn names(&self, user: u32, group: u32, accounts: &Accounts) -> bool {
        match self.who {
            Who::User(id) => id == user,
            Who::Group(id) => id == group || accounts.is_member(user, id),
        }
    }
}

impl Accounts {
    /// Those of the machine, as far as its files name them.
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/etc/passwd"), &text("/etc/group"))
    }

    fn parse(users: &str, groups: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            Some((
                fields.next()?.to_owned(),
                fields.nth(1)?.parse::<u32>().ok()?,
            ))
        };
        let group = |line: &str| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
            let members = fields.next().unwrap_or_default().split(',');
            let members: Vec<String> = members.map(|it| it.trim().to_owned()).collect();
            Some((name.to_owned(), (id, members)))
        };
        Self {
            users: users.lines().filter_map(user).collect(),
            groups: groups.lines().filter_map(group).collect(),
        }
    }

    fn name_of(&self, user: u32) -> String {
        let named = self.users.iter().find(|(_, id)| **id == user);
        named.map_or_else(|| user.to_string(), |(name, _)| name.clone())
    }

    fn is_member(&self, user: u32, group: u32) -> bool {
        let name = self.name_of(user);
        let mut groups = self.groups.values();
        groups.any(|(id, members)| *id == group && members.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn accounts() -> Accounts {
        Accounts::parse(
            "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\n",
            "root:x:0:\nteam:x:50:ann,ben\nempty:x:51:\n",
        )
    }

    #[test]
    fn lines_name_users_and_groups_by_name_and_number() {
        let text = "# who\n\nann submitter a,b # of research\n1001 operator *\n@team viewer a\n@51 viewer b\n";
        let rules = parse(text, &accounts()).unwrap();
        let who: Vec<_> = rules.iter().map(|it| it.who.clone()).collect();
        let expected = [
            Who::User(1000),
            Who::User(1001),
            Who::Group(50),
            Who::Group(51),
        ];
        assert_eq!(who, expected);
        let first = |user, group| {
            let mut found = rules.iter().filter(|it| it.names(user, group, &accounts()));
            found.next().map(|it| (it.role, it.tenants.to_string()))
        };
        assert_eq!(first(1000, 1000), Some((Role::Submitter, "a,b".into())));
        assert_eq!(first(1001, 1001), Some((Role::Operator, "*".into())));
        // By the group that it has itself.
        assert_eq!(first(7, 51), Some((Role::Viewer, "b".into())));
        assert_eq!(first(7, 7), None);
        let members = parse("@team viewer a", &accounts()).unwrap();
        assert!(members[0].names(1001, 1001, &accounts()));
        assert!(!members[0].names(0, 0, &accounts()));
    }

    #[test]
    fn a_wrong_line_is_said_with_its_number() {
        for (text, line, says) in [
            ("ann submitter", 1, "a user, a role and tenants"),
            ("ann submitter a b", 1, "a user, a role and tenants"),
            ("\n# x\nann root a", 3, "'root' is not a role"),
            ("ann viewer a,*", 1, "stands alone"),
            ("ann operator a", 1, "has all tenants"),
            ("eve viewer a", 1, "no user 'eve'"),
            ("@all viewer a", 1, "no group 'all'"),
        ] {
            let (at, why) = parse(text, &accounts()).expect_err(text);
            assert_eq!(at, line, "{text}");
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn a_file_is_read_again_and_what_it_said_holds_on_while_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        };
        write("4242 nobody a");
        let error = Users::open(&path).expect_err("no role").to_string();
        assert!(error.contains("wrong in line 1"), "{error}");
        write("4242 viewer a");
        let users = Users::open(&path).unwrap();
        let of = |user| users.access(user, user).map(|it| it.role);
        assert_eq!(of(4242), Ok(Role::Viewer));
        let refused = of(4243).expect_err("it is not named");
        assert!(refused.message.contains("does not name 4243"), "{refused}");
        write("4242 submitter a\n4243 viewer a");
        assert_eq!(
            (of(4242), of(4243)),
            (Ok(Role::Submitter), Ok(Role::Viewer))
        );
        write("nonsense");
        assert_eq!(of(4242), Ok(Role::Submitter));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(
            Users::open(&path),
            Err(UsersError::Exposed { .. })
        ));
    }
}
