//! What a client may do, and for which tenants.
//!
//! Owns roles, sets of tenants and their text. Must not: know requests, certificates or users.
//!
//! Invariants: of two roles the higher one may do all that the lower one may; an operator has all tenants.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::encoding::text::serde_as_text;
use crate::fairness::{ParseTenantNameError, TenantName};

/// What a client may do. The order is that of rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Looks at what its tenants have.
    Viewer,
    /// Also runs, cancels, deletes and serves for them.
    Submitter,
    /// Also runs the cluster: nodes, tokens, clients, shares, scheduling. Has all tenants.
    Operator,
}

impl Role {
    /// All of them, the lowest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Submitter, Self::Operator];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = ParseAccessError;

    fn from_str(text: &str) -> Result<Self, ParseAccessError> {
        let role = Self::ALL.into_iter().find(|it| it.name() == text);
        role.ok_or_else(|| ParseAccessError::Role(text.into()))
    }
}

serde_as_text!(Role, "a role");

/// A set of tenants. As text `*` for all, or names with commas in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// All there are and will be.
    All,
    /// These, and those below them: `org` has `org/team`, too. At most [`Tenants::MAX`], at least one.
    These(BTreeSet<TenantName>),
}

impl Tenants {
    /// The most names, …
    pub const MAX: usize = 64;
    /// … and the most bytes that they have together: they stand in a certificate.
    pub const MAX_BYTES: usize = 4096;

    /// Of texts: each a name, several with commas, or `*`.
    ///
    /// # Errors
    /// When there is none, too many, one that is no name, or names beside `*`.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseAccessError> {
        let names: BTreeSet<&str> = texts.into_iter().flat_map(|it| it.split(',')).collect();
        if names.contains("*") {
            return match names.len() {
                1 => Ok(Self::All),
                _ => Err(ParseAccessError::AllAndMore),
            };
        }
        if names.is_empty() {
            return Err(ParseAccessError::NoTenant);
        }
        let bytes: usize = names.iter().map(|it| it.len() + 1).sum();
        if names.len() > Self::MAX || bytes > Self::MAX_BYTES {
            return Err(ParseAccessError::TooMany(names.len()));
        }
        let names = names.into_iter().map(str::parse::<TenantName>);
        Ok(Self::These(names.collect::<Result<BTreeSet<_>, _>>()?))
    }

    /// One tenant and those below it.
    pub fn one(tenant: TenantName) -> Self {
        Self::These(BTreeSet::from([tenant]))
    }

    /// Whether a tenant is one of them, or below one of them.
    pub fn covers(&self, tenant: &TenantName) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => {
                let text = tenant.as_str();
                let ends = text.match_indices('/').map(|(at, _)| at);
                let mut above = ends.chain([text.len()]).map(|end| &text[..end]);
                above.any(|name| names.iter().any(|it| it.as_str() == name))
            }
        }
    }

    /// The tenant of work that names none: `default` if that is one of them, else the first.
    pub fn usual(&self) -> TenantName {
        let default = TenantName::default();
        match self {
            Self::These(names) if !self.covers(&default) => {
                names.first().cloned().unwrap_or(default)
            }
            _ => default,
        }
    }
}

impl fmt::Display for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("*"),
            Self::These(names) => {
                let names: Vec<_> = names.iter().map(TenantName::as_str).collect();
                f.pad(&names.join(","))
            }
        }
    }
}

impl FromStr for Tenants {
    type Err = ParseAccessError;

    fn from_str(text: &str) -> Result<Self, ParseAccessError> {
        Self::parse([text])
    }
}

serde_as_text!(Tenants, "tenants");

/// Who a client is, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// For whom.
    pub tenants: Tenants,
}

impl Access {
    /// An operator.
    pub fn operator(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            role: Role::Operator,
            tenants: Tenants::All,
        }
    }

    /// What a client has whose certificate says nothing: those of the time before certificates said it.
    pub fn unnamed() -> Self {
        Self {
            name: String::new(),
            role: Role::Submitter,
            tenants: Tenants::All,
        }
    }

    /// Whether it has a tenant.
    pub fn covers(&self, tenant: &TenantName) -> bool {
        self.tenants.covers(tenant)
    }

    /// Whether it has a role: this one or a higher one.
    pub fn may(&self, role: Role) -> bool {
        self.role >= role
    }

    /// The same, or why there is none such: an operator has all tenants.
    ///
    /// # Errors
    /// When it is an operator of some.
    pub fn checked(self) -> Result<Self, ParseAccessError> {
        match (self.role, &self.tenants) {
            (Role::Operator, Tenants::These(_)) => Err(ParseAccessError::OperatorOfSome),
            _ => Ok(self),
        }
    }
}

/// Why a text is no role, or no set of tenants, or the two do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAccessError {
    /// No role.
    #[error("'{0}' is not a role: use viewer, submitter or operator")]
    Role(String),
    /// No tenant.
    #[error(transparent)]
    Tenant(#[from] ParseTenantNameError),
    /// None at all.
    #[error("tenants are missing: name one, or '*' for all")]
    NoTenant,
    /// `*` and others.
    #[error("'*' has all tenants, so it stands alone: leave the others out, or the '*'")]
    AllAndMore,
    /// Too many.
    #[error(
        "{0} tenants are too many: use at most {max} names of {bytes} bytes together, or '*' for all",
        max = Tenants::MAX,
        bytes = Tenants::MAX_BYTES
    )]
    TooMany(usize),
    /// An operator of some tenants.
    #[error(
        "an operator runs the whole cluster and has all tenants: use '*', or the role submitter"
    )]
    OperatorOfSome,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TenantName {
        text.parse().expect("a name")
    }

    fn these(text: &str) -> Tenants {
        text.parse().expect("tenants")
    }

    #[test]
    fn each_role_may_do_what_those_before_may() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        let access = Access::unnamed();
        assert!(access.may(Role::Viewer) && access.may(Role::Submitter));
        assert!(!access.may(Role::Operator));
        assert!("root".parse::<Role>().is_err());
    }

    #[test]
    fn tenants_are_read_and_shown() {
        assert_eq!(these("*"), Tenants::All);
        assert_eq!(these("b,a,b").to_string(), "a,b");
        assert_eq!(Tenants::parse(["a", "b"]), Ok(these("b,a")));
        assert_eq!(Tenants::parse([]), Err(ParseAccessError::NoTenant));
        assert_eq!("a,*".parse::<Tenants>(), Err(ParseAccessError::AllAndMore));
        assert!("".parse::<Tenants>().is_err());
        assert!("a,".parse::<Tenants>().is_err());
        let many: Vec<_> = (0..=Tenants::MAX).map(|it| it.to_string()).collect();
        let many = Tenants::parse(many.iter().map(String::as_str));
        assert_eq!(many, Err(ParseAccessError::TooMany(65)));
    }

    #[test]
    fn a_name_covers_itself_and_what_is_below() {
        let tenants = these("org,web");
        assert!(tenants.covers(&name("org")) && tenants.covers(&name("web")));
        assert!(!tenants.covers(&name("organ")) && !tenants.covers(&name("default")));
        assert!(Tenants::All.covers(&name("organ")));
        // Where names have parts.
        if let (Ok(below), Ok(beside)) = ("org/a/b".parse(), "organ/a".parse()) {
            assert!(tenants.covers(&below) && !tenants.covers(&beside));
            assert!(!these("web").covers(&below));
        }
    }

    #[test]
    fn work_without_a_tenant_is_for_default_or_the_first() {
        assert_eq!(these("web,org").usual(), name("org"));
        assert_eq!(these("a,default").usual(), name("default"));
        assert_eq!(Tenants::All.usual(), name("default"));
    }

    #[test]
    fn an_operator_has_all_tenants() {
        let mut access = Access::operator("ann");
        assert_eq!(access.clone().checked(), Ok(access.clone()));
        access.tenants = these("a");
        assert_eq!(
            access.clone().checked(),
            Err(ParseAccessError::OperatorOfSome)
        );
        access.role = Role::Viewer;
        assert_eq!(access.clone().checked(), Ok(access));
    }

    #[test]
    fn it_is_the_same_again_from_its_bytes() {
        for access in [Access::operator("ann"), Access::unnamed()] {
            let bytes = postcard::to_allocvec(&access).expect("bytes");
            assert_eq!(postcard::from_bytes(&bytes), Ok(access));
        }
        let json = serde_json::to_string(&these("a,b")).expect("JSON");
        assert_eq!(json, "\"a,b\"");
    }
}
