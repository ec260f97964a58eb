//! Where the page is, and which requests are meant for it.
//!
//! Owns the checks of `Host` and `Origin`: a page of another site can have a browser send requests here, by a name that its owner
//! has pointed at this machine. Must not: know sessions.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HOST, ORIGIN};

/// Where the page is.
#[derive(Debug, Clone)]
pub struct Site {
    address: SocketAddr,
    is_tls: bool,
}

impl Site {
    /// A page at this address.
    pub fn new(address: SocketAddr, is_tls: bool) -> Self {
        Self { address, is_tls }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether what goes there is encrypted.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Where a browser finds it. At an address that stands for all of this machine's, by the machine's name.
    pub fn url(&self) -> String {
        let host = match self.address.ip().is_unspecified() {
            true => format!("{}:{}", machine(), self.address.port()),
            false => self.address.to_string(),
        };
        format!("{}://{host}", self.scheme())
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Whether a request was sent to the page's own address, or to `localhost`. With TLS the browser has compared the name with
    /// the certificate, which is stricter.
    pub fn is_addressed(&self, headers: &HeaderMap) -> bool {
        let Some(host) = text(headers, &HOST) else {
            return false;
        };
        let own = [
            self.address.to_string(),
            format!("localhost:{}", self.address.port()),
        ];
        let is_own = |own: &String| {
            // Browsers leave out the port of the scheme.
            let short = own.strip_suffix(":80").unwrap_or(own);
            own.eq_ignore_ascii_case(host) || short.eq_ignore_ascii_case(host)
        };
        self.is_tls || own.iter().any(is_own)
    }

    /// Whether this page has sent a request.
    pub fn is_from_own_page(&self, headers: &HeaderMap) -> bool {
        let (host, origin) = (text(headers, &HOST), text(headers, &ORIGIN));
        let (Some(host), Some(origin)) = (host, origin) else {
            return false;
        };
        origin.eq_ignore_ascii_case(&format!("{}://{host}", self.scheme()))
    }

    /// The name of the session's cookie. Browsers have no cookies by port, and a machine may have several nodes.
    pub fn cookie(&self) -> String {
        format!("wasmrun-{}", self.address.port())
    }

    /// The secret in a request's cookie.
    pub fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie();
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|it| it.to_str().ok());
        let mut pairs = cookies.flat_map(|it| it.split(';')).map(str::trim);
        pairs.find_map(|pair| pair.strip_prefix(&name)?.strip_prefix('='))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|it| it.to_str().ok())
}

/// The name of this machine.
fn machine() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(all: &[(HeaderName, &'static str)]) -> HeaderMap {
        let all = all.iter();
        let all = all.map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        all.collect()
    }

    fn site(is_tls: bool) -> Site {
        let address = "127.0.0.1:7463".parse().expect("it is one");
        Site::new(address, is_tls)
    }

    #[test]
    fn a_name_that_others_have_given_this_machine_is_refused() {
        let addressed = |host| site(false).is_addressed(&headers(&[(HOST, host)]));
        assert!(addressed("127.0.0.1:7463") && addressed("LocalHost:7463"));
        for host in ["evil.example:7463", "127.0.0.1", "127.0.0.1:7464", ""] {
            assert!(!addressed(host), "{host}");
        }
        assert!(!site(false).is_addressed(&HeaderMap::new()));
        assert!(site(true).is_addressed(&headers(&[(HOST, "node.example:7463")])));
        let site = Site::new("[::1]:80".parse().expect("it is one"), false);
        let addressed = |host| site.is_addressed(&headers(&[(HOST, host)]));
        assert!(addressed("[::1]") && addressed("[::1]:80") && addressed("localhost"));
        assert!(!addressed("[::1]:8080") && !addressed("::1"));
    }

    #[test]
    fn only_own_pages_may_change_something() {
        let own = |origin| {
            let all = headers(&[(HOST, "localhost:7463"), (ORIGIN, origin)]);
            site(false).is_from_own_page(&all)
        };
        assert!(own("http://localhost:7463"));
        for origin in ["null", "http://evil.example", "https://localhost:7463"] {
            assert!(!own(origin), "{origin}");
        }
        let without = headers(&[(HOST, "localhost:7463")]);
        assert!(!site(false).is_from_own_page(&without));
    }

    #[test]
    fn a_session_is_in_the_cookie_of_this_port() {
        let session = |cookies| {
            let all = headers(&[(COOKIE, cookies)]);
            site(false).session(&all).map(str::to_owned)
        };
        assert_eq!(session("a=b; wasmrun-7463=12"), Some("12".into()));
        assert_eq!(session("wasmrun-74631=12; wasmrun-7464=13"), None);
    }
}
