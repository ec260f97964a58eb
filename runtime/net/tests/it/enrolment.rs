//! Joining a cluster: tokens, certificates, and who gets none.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use wasmrun_model::access::{self, Access};
use wasmrun_model::id::Incarnation;
use wasmrun_net::{
    Applicant, Authority, Config, ConnectError, Enroll, Enrolment, Identity, JoinError, Login,
    ParseTokenError, Person, Redeemed, Refused, Role, Timing, Token, TokenBook, TokenGrant,
    TokenKind, TokenUses, Welcomed, join, renew,
};

use crate::harness::{Ask, Cluster, End, LOCAL, PATIENCE, soon, start};

struct Head {
    cluster: Cluster,
    book: Arc<Mutex<TokenBook>>,
    end: End,
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

/// Gives clients with a token of the book this access.
struct Giving(Arc<Mutex<TokenBook>>, Access);

impl Enroll for Giving {
    fn redeem<'a>(
        &'a self,
        applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Redeemed, Refused>> + Send + 'a>> {
        let role = self.0.lock().redeem(applicant, now_s());
        Box::pin(std::future::ready(
            role.map(|it| (it, Some(self.1.clone()))),
        ))
    }
}

/// Lets those in who say the nonce of their login, for a minute.
struct Welcoming(Access);

impl Enroll for Welcoming {
    fn redeem<'a>(
        &'a self,
        _applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Redeemed, Refused>> + Send + 'a>> {
        Box::pin(std::future::ready(Err(Refused::Unknown)))
    }

    fn offer(&self) -> Option<String> {
        Some("say the nonce".into())
    }

    fn login<'a>(
        &'a self,
        person: &'a Person,
    ) -> Pin<Box<dyn Future<Output = Result<Welcomed, Refused>> + Send + 'a>> {
        let is_it = person.credential == person.nonce();
        let access = (self.0.clone(), Duration::from_secs(60));
        let refused = Refused::Person("\u{1b}[31mwho are you".into());
        Box::pin(std::future::ready(is_it.then_some(access).ok_or(refused)))
    }
}

impl Head {
    fn new() -> Self {
        Self::with(|book| -> Arc<dyn Enroll> { book.clone() })
    }

    fn with(enroll: impl FnOnce(&Arc<Mutex<TokenBook>>) -> Arc<dyn Enroll>) -> Self {
        let cluster = Cluster::new();
        let book = Arc::new(Mutex::new(TokenBook::default()));
        let mut config = cluster.node_config(1, 1);
        config.enrolment = Some(Enrolment {
            authority: cluster.authority.clone(),
            enroll: enroll(&book),
            lifetime: Duration::from_secs(3600),
        });
        let end = start(config);
        Self { cluster, book, end }
    }

    fn token(&self, kind: TokenKind, uses: TokenUses, lifetime_s: u64) -> Token {
        let lifetime = Duration::from_secs(lifetime_s);
        let grant = TokenGrant {
            kind,
            uses,
            lifetime,
        };
        let (id, secret, expires_s) = self.book.lock().create(grant, now_s());
        Token {
            addresses: vec![self.end.address.to_string()],
            authority: self.cluster.authority.fingerprint(),
            id,
            secret,
            kind,
            expires_s,
        }
    }
}

fn timing() -> Timing {
    Timing {
        handshake: Duration::from_secs(10),
        ..Timing::default()
    }
}

async fn refused(token: &Token) -> Refused {
    match soon(join(token, &timing())).await {
        Err(JoinError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_may_do_is_in_its_certificate_and_stays_when_that_is_renewed() {
    let access = Access {
        name: "ann".into(),
        role: access::Role::Viewer,
        tenants: "a,b".parse().expect("tenants"),
    };
    let head = Head::with(|book| Arc::new(Giving(book.clone(), access.clone())));
    let token = head.token(TokenKind::Client, TokenUses::Once, 60);
    let identity = soon(join(&token, &timing())).await.expect("joined");
    assert_eq!(identity.access(), Some(&access));
    let renewed = soon(renew(&identity, &[head.end.address], &timing())).await;
    let renewed = renewed.expect("renewed");
    assert_eq!(renewed.access(), Some(&access));
    soon(crate::sessions::echoes(&renewed, head.end.address)).await;
    // One that says nothing of it says nothing when it is renewed.
    let plain = head.cluster.client(1);
    let renewed = soon(renew(&plain, &[head.end.address], &timing())).await;
    assert_eq!(renewed.expect("renewed").access(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_logs_in_for_as_long_as_the_head_says() {
    let access = Access {
        name: "ann".into(),
        role: access::Role::Viewer,
        tenants: "a".parse().expect("tenants"),
    };
    let head = Head::with(|_| Arc::new(Welcoming(access.clone())));
    let authority = head.cluster.authority.fingerprint();
    let address = head.end.address.to_string();
    let begin = async |authority| soon(Login::begin(&address, authority, &timing())).await;
    for pinned in [None, Some(authority)] {
        let login = begin(pinned).await.expect("an offer");
        assert_eq!(login.offer(), "say the nonce");
        assert_eq!(login.authority(), authority);
        let nonce = login.nonce();
        let identity = soon(login.finish(nonce, &timing())).await.expect("in");
        assert_eq!(identity.access(), Some(&access));
        // The head's other certificates are valid for an hour.
        assert!(identity.valid_until_s() <= now_s() + 60);
        soon(crate::sessions::echoes(&identity, head.end.address)).await;
    }
    // A nonce is of one login.
    let (one, other) = (begin(None).await, begin(None).await);
    let (one, other) = (one.expect("an offer"), other.expect("an offer"));
    let error = soon(one.finish(other.nonce(), &timing())).await;
    let error = error.expect_err("another's").to_string();
    assert!(error.ends_with("[31mwho are you"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error}");
    let error = soon(other.finish("x".repeat(1 << 20), &timing())).await;
    assert!(matches!(error, Err(JoinError::Credential { .. })));
    // Another authority is not believed, and a head may offer nothing.
    let plain = Head::new();
    let elsewhere = plain.cluster.authority.fingerprint();
    let error = begin(Some(elsewhere)).await.err();
    assert!(
        matches!(
            error,
            Some(JoinError::Connect(ConnectError::Untrusted { .. }))
        ),
        "{error:?}"
    );
    let address = plain.end.address.to_string();
    let error = soon(Login::begin(&address, None, &timing())).await.err();
    let is_none = matches!(
        error,
        Some(JoinError::Refused {
            why: Refused::NoLogin,
            ..
        })
    );
    assert!(is_none, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_and_a_client_join_and_renew() {
    let head = Head::new();
    for (kind, uses) in [
        (TokenKind::Node, TokenUses::Once),
        (TokenKind::Client, TokenUses::Many),
    ] {
        // As a person would copy it.
        let token: Token = head
            .token(kind, uses, 60)
            .to_string()
            .parse()
            .expect("a token");
        let identity = soon(join(&token, &timing())).await.expect("joined");
        match (kind, identity.role()) {
            (TokenKind::Node, Role::Node(_)) | (TokenKind::Client, Role::Client(_)) => {}
            other => panic!("the wrong role: {other:?}"),
        }
        assert_eq!(identity.cluster(), head.cluster.authority.cluster());
        assert!(identity.valid_until_s() > now_s());
        // Saved, loaded, renewed, used.
        let folder = tempfile::tempdir().expect("a folder");
        identity.save(folder.path()).expect("saved");
        let loaded = Identity::load(folder.path()).expect("loaded");
        let renewed = soon(renew(&loaded, &[head.end.address], &timing()))
            .await
            .expect("renewed");
        assert_eq!(renewed.role(), identity.role());
        if kind == TokenKind::Client {
            soon(crate::sessions::echoes(&renewed, head.end.address)).await;
            continue;
        }
        let member = start::<1, 0>(Config::new(loaded, Incarnation(1), LOCAL));
        member.network.set_identity(&renewed).expect("the same one");
        assert!(
            member
                .network
                .set_identity(&head.cluster.client(0))
                .is_err()
        );
        let peer = soon(member.network.connect(vec![head.end.address]))
            .await
            .expect("a member");
        assert_eq!(
            peer.call(&Ask::Echo(1, vec![]), PATIENCE).await,
            Ok((1, vec![]))
        );
    }
    // A token for many serves many.
    let many = head.token(TokenKind::Node, TokenUses::Many, 60);
    let first = soon(join(&many, &timing())).await.expect("joined");
    let second = soon(join(&many, &timing())).await.expect("joined");
    assert_ne!(first.role(), second.role());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_do_not_open() {
    let head = Head::new();
    let once = head.token(TokenKind::Node, TokenUses::Once, 60);
    soon(join(&once, &timing())).await.expect("joined");
    assert_eq!(refused(&once).await, Refused::Used);
    assert_eq!(
        refused(&head.token(TokenKind::Node, TokenUses::Many, 0)).await,
        Refused::Expired
    );
    let revoked = head.token(TokenKind::Node, TokenUses::Many, 60);
    assert!(head.book.lock().revoke(revoked.id));
    assert_eq!(refused(&revoked).await, Refused::Revoked);
    let mut unknown = head.token(TokenKind::Node, TokenUses::Many, 60);
    unknown.secret = once.secret.clone();
    assert_eq!(refused(&unknown).await, Refused::Unknown);
    // Then it has been too often.
    let too_many = soon(async {
        loop {
            let why = refused(&unknown).await;
            if why != Refused::Unknown {
                return why;
            }
        }
    })
    .await;
    assert!(matches!(too_many, Refused::TooMany { .. }), "{too_many:?}");
    // A book is kept and found again, with what was used.
    let bytes = postcard::to_stdvec(&*head.book.lock()).expect("bytes");
    let again: TokenBook = postcard::from_bytes(&bytes).expect("a book");
    assert_eq!(again, *head.book.lock());
    let row = again
        .list()
        .find(|row| row.id == once.id)
        .expect("it is there");
    assert_eq!((row.joined, row.is_revoked), (1, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_goes_only_to_the_pinned_authority() {
    let (head, other) = (Head::new(), Head::new());
    let mut token = head.token(TokenKind::Node, TokenUses::Once, 60);
    token.addresses = vec![other.end.address.to_string()];
    let error = soon(join(&token, &timing()))
        .await
        .expect_err("another authority");
    assert!(
        matches!(error, JoinError::Connect(ConnectError::Untrusted { .. })),
        "{error:?}"
    );
    // A node without the authority sends them on to the next address.
    let plain = head.cluster.node(5);
    token.addresses = vec![plain.address.to_string()];
    assert_eq!(refused(&token).await, Refused::NotHere);
    token.addresses.push(head.end.address.to_string());
    soon(join(&token, &timing()))
        .await
        .expect("joined at the second");
}

#[test]
fn typing_errors_are_told_from_refusals() {
    let cluster = Cluster::new();
    let grant = TokenGrant {
        kind: TokenKind::Client,
        uses: TokenUses::Once,
        lifetime: Duration::from_secs(60),
    };
    let (id, secret, expires_s) = TokenBook::default().create(grant, 1000);
    let token = Token {
        addresses: vec!["head.example:7000".into(), "[::1]:7000".into()],
        authority: cluster.authority.fingerprint(),
        id,
        secret,
        kind: TokenKind::Client,
        expires_s,
    };
    let text = token.to_string();
    assert!(text.starts_with("wasmrun-join-1-"), "{text}");
    assert_eq!(format!("  {text}\n").parse(), Ok(token));
    let start = "wasmrun-join-1-".len();
    for at in start..text.len() {
        let other = if text.as_bytes()[at] == b'a' {
            "b"
        } else {
            "a"
        };
        let mut wrong = text.clone();
        wrong.replace_range(at..=at, other);
        assert_eq!(
            wrong.parse::<Token>(),
            Err(ParseTokenError::Damaged),
            "{wrong}"
        );
        assert_eq!(text[..at].parse::<Token>(), Err(ParseTokenError::Damaged));
    }
    assert_eq!("hello".parse::<Token>(), Err(ParseTokenError::NotAToken));
    assert_eq!(
        text.replace("-1-", "-2-").parse::<Token>(),
        Err(ParseTokenError::Version)
    );
}

#[test]
fn files_with_keys_are_private_and_kept() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    let again = Authority::load(folder).expect("loaded");
    assert_eq!(again.fingerprint(), cluster.authority.fingerprint());
    let error = Authority::create(folder).expect_err("there is one");
    assert!(format!("{:?}", error).contains("Exists"), "{error:?}");
    let file = folder.join("authority.pem");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode));
    let is = std::fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(is & 0o777, 0o600);
    mode(0o640).expect("it is ours");
    let error = Authority::load(folder).expect_err("others can read it");
    assert!(format!("{:?}", error).contains("Exposed"), "{error:?}");
    mode(0o600).expect("it is ours");
    std::fs::write(&file, "nonsense").expect("it is ours");
    assert!(Authority::load(folder).is_err());
    // What loads an authority does not load a member, and the other way round.
    let identity = cluster.identity(Role::Node(crate::harness::node_id(1)));
    identity.save(folder).expect("saved");
    std::fs::copy(folder.join("identity.pem"), &file).expect("it is ours");
    mode(0o600).expect("it is ours");
    assert!(Authority::load(folder).is_err());
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 2);
}
