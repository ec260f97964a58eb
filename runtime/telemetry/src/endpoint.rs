//! The address of a collector.

use std::fmt;
use std::str::FromStr;

use wasmrun_model::wire::Address;

/// The address of a collector that takes OTLP over gRPC: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

/// A text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not the address of a collector: give --otlp, or OTEL_EXPORTER_OTLP_ENDPOINT, as http://HOST:PORT, such as \
     http://127.0.0.1:4317, where one takes OTLP over gRPC; for https, or OTLP over HTTP, run a collector on this machine that \
     forwards"
)]
pub struct ParseEndpointError(String);

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        let host = text.strip_prefix("http://");
        let host = host.map(|host| host.strip_suffix('/').unwrap_or(host));
        match host.and_then(|host| host.parse().ok()) {
            Some(Address::Network(host)) => Ok(Self(format!("http://{}", host.as_str()))),
            _ => Err(ParseEndpointError(text.chars().take(120).collect())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_refused() {
        for text in [
            "http://127.0.0.1:4317",
            "http://collector:4317/",
            "http://[::1]:1",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text.trim_end_matches('/'));
        }
        for text in [
            "",
            "127.0.0.1:4317",
            "http://collector",
            "https://collector:4317",
            "http://collector:4318/v1/traces",
            "http://unix:/x",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
    }
}
