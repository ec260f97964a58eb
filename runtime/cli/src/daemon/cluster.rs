//! What the options say about a node's cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use wasmrun_node::{ClusterConfig, EtcdOptions, EtcdTls, JoinToken, OidcSettings, Part};

use super::several::Several;
use crate::args::ClusterOptions;
use crate::fail::{Exit, Failure};

/// A node's part in its cluster; `None` if it is to be alone.
pub fn config(
    options: &ClusterOptions,
    several: Option<&Several>,
) -> Result<Option<ClusterConfig>, Failure> {
    let part = match (&options.join, several) {
        (Some(Some(token)), _) => Part::Member(Some(token.clone())),
        (Some(None), _) => Part::Member(token_from_env()?),
        (None, Some(_)) => Part::Head,
        (None, None) if options.head => Part::Head,
        (None, None) => return alone(options),
    };
    let state_dir = match several {
        Some(several) => several.state_dir(1),
        None => state_dir(options.state_dir.as_deref())?,
    };
    let oidc = match (&options.oidc, &part) {
        (Some(path), Part::Head) => {
            let settings = OidcSettings::open(path);
            Some(settings.map_err(|error| Failure::new(Exit::Usage, error))?)
        }
        (Some(_), Part::Member(_)) => {
            return Err(Failure::usage(
                "--oidc is for the head, which lets people log in: leave it out here, and start the head with it",
            ));
        }
        (None, _) => None,
    };
    // Two clusters for development do not meet at one port.
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    Ok(Some(ClusterConfig {
        state_dir,
        part,
        etcd: etcd(options)?,
        oidc,
        listen: options.listen.or(several.map(|_| any)),
        advertise: options.advertise.clone(),
        lease_ttl: options.lease_time,
    }))
}

/// The token of somebody who does not want it to be seen in a list of processes.
pub fn token_from_env() -> Result<Option<JoinToken>, Failure> {
    let Some(text) = std::env::var_os(TOKEN).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let token = text.to_str().map(|text| text.trim().parse());
    match token {
        Some(Ok(token)) => Ok(Some(token)),
        // Not the text: it is a secret.
        Some(Err(error)) => Err(Failure::usage(format!("{TOKEN}: {error}"))),
        None => Err(Failure::usage(format!("{TOKEN} is not text"))),
    }
}

/// Where a token may be, besides the command line.
pub const TOKEN: &str = "WASMRUN_JOIN_TOKEN";

fn alone(options: &ClusterOptions) -> Result<Option<ClusterConfig>, Failure> {
    let is_meant = options.listen.is_some()
        || !options.advertise.is_empty()
        || options.state_dir.is_some()
        || !options.etcd.is_empty()
        || options.oidc.is_some();
    match is_meant {
        true => Err(Failure::usage(
            "this node is to be part of a cluster, and which is not said: begin one with --head, or \
             join one with --join TOKEN",
        )),
        false => Ok(None),
    }
}

fn etcd(options: &ClusterOptions) -> Result<Option<EtcdOptions>, Failure> {
    if options.etcd.is_empty() {
        return Ok(None);
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path);
        text.with_context(|| format!("cannot read {}", path.display()))
    };
    let ca = options.etcd_ca.as_ref().map(read).transpose()?;
    let identity = match (&options.etcd_cert, &options.etcd_key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    Ok(Some(EtcdOptions {
        endpoints: options.etcd.clone(),
        tls: EtcdTls { ca, identity },
    }))
}

/// Where a node keeps who it is: where the user says, else the user's state folder.
fn state_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let from_env = |name| {
        let value = std::env::var_os(name).filter(|it| !it.is_empty());
        value.map(PathBuf::from)
    };
    let given = given.map(Path::to_owned);
    if let Some(dir) = given.or_else(|| from_env("WASMRUN_STATE_DIR")) {
        return Ok(dir);
    }
    let states = from_env("XDG_STATE_HOME").filter(|dir| dir.is_absolute());
    let states = states.or_else(|| Some(from_env("HOME")?.join(".local/state")));
    let states = states.ok_or_else(|| {
        Failure::usage("there is no folder for the node's state: neither HOME nor XDG_STATE_HOME is set; name one with --state-dir")
    })?;
    Ok(states.join("wasmrun/node"))
}
