//! Where a node listens, as text.

use std::fmt;
use std::str::FromStr;

/// Where a node listens: `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    path: String,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// A node of another machine.
    #[error(
        "'{0}' is a node on the network, and nodes listen on this machine only so far: use unix:PATH"
    )]
    Network(String),
    /// Nothing that we know.
    #[error(
        "'{0}' is no address of a node: use unix:PATH, such as unix:/run/user/1000/wasmrun/node.sock"
    )]
    Form(String),
    /// The system takes no path that long.
    #[error("the path of the socket has {0} bytes, and the system takes {max}; choose a shorter one", max = Address::MAX_PATH_BYTES)]
    TooLong(usize),
}

impl Address {
    /// The longest path of a unix socket, in bytes.
    pub const MAX_PATH_BYTES: usize = 107;

    /// The socket of a user's node where none is named: below the user's runtime folder, if there is
    /// one, else in a folder of the user's own in `/tmp`.
    pub fn default_for(runtime_dir: Option<&str>, user_id: u32) -> Self {
        let path = match runtime_dir.filter(|dir| dir.starts_with('/')) {
            Some(dir) => format!("{}/wasmrun/node.sock", dir.trim_end_matches('/')),
            None => format!("/tmp/wasmrun-{user_id}/node.sock"),
        };
        Self { path }
    }

    /// The socket's path.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let shown = || text.chars().take(120).collect();
        match text.strip_prefix("unix:") {
            Some(path) if path.len() > Self::MAX_PATH_BYTES => {
                Err(ParseAddressError::TooLong(path.len()))
            }
            Some(path) if !path.is_empty() && !path.contains('\0') => {
                Ok(Self { path: path.into() })
            }
            Some(_) => Err(ParseAddressError::Form(shown())),
            None => match text.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_ok() => {
                    Err(ParseAddressError::Network(shown()))
                }
                _ => Err(ParseAddressError::Form(shown())),
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_refused() {
        let address: Address = "unix:/run/x.sock".parse().unwrap();
        assert_eq!(address.path(), "/run/x.sock");
        assert_eq!(address.to_string(), "unix:/run/x.sock");
        let network = "10.0.0.1:6379".parse::<Address>();
        assert!(matches!(network, Err(ParseAddressError::Network(_))));
        for bad in ["", "unix:", "/run/x.sock", "node", "unix:a\0b"] {
            let parsed = bad.parse::<Address>();
            assert!(matches!(parsed, Err(ParseAddressError::Form(_))), "{bad}");
        }
        let long = format!("unix:/{}", "x".repeat(200));
        assert_eq!(
            long.parse::<Address>(),
            Err(ParseAddressError::TooLong(201))
        );
    }

    #[test]
    fn each_user_has_a_default() {
        let path = |dir, user| Address::default_for(dir, user).path().to_owned();
        assert_eq!(
            path(Some("/run/user/7"), 7),
            "/run/user/7/wasmrun/node.sock"
        );
        assert_eq!(path(Some("relative"), 7), "/tmp/wasmrun-7/node.sock");
        assert_eq!(path(None, 7), "/tmp/wasmrun-7/node.sock");
    }
}
