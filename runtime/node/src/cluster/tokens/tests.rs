//! Tokens as they are stored, and who comes in by them.

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use wasmrun_control::{Embedded, EmbeddedConfig, Page, Range, TxnReply};
use wasmrun_net::{TokenGrant, TokenKind, TokenUses};

use super::super::faulty::{Faulty, Transact};
use super::*;
use crate::audit::AuditConfig;

#[tokio::test]
async fn nobody_comes_in_of_whom_a_line_must_be_and_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default());
    let store = store.await.unwrap();
    for is_required in [false, true] {
        let audit = Arc::new(Audit::new(Some(AuditConfig {
            dir: dir.path().join("audit"),
            most_bytes: 1 << 20,
            is_required,
        })));
        let enroll = StoreEnroll::new(store.clone(), audit.clone(), None);
        let token = applicant(&*store, TokenKind::Client, 1, None).await;
        let person = person();
        // Nobody writes, so there is no room at some time.
        while audit.usage().missed == 0 {
            audit.add(Entry::new("me".into(), "here".into(), "test"));
        }
        let (why, is_in) = match is_required {
            true => (Refused::Unavailable, false),
            false => (Refused::NoLogin, true),
        };
        assert_eq!(enroll.redeem(&token).await.is_ok(), is_in);
        assert_eq!(enroll.login(&person).await, Err(why));
    }
}

#[tokio::test]
async fn who_cannot_log_in_does_not_fill_the_audit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default());
    let store = store.await.unwrap();
    let audit = Arc::new(Audit::new(Some(AuditConfig {
        dir: dir.path().join("audit"),
        most_bytes: 1 << 20,
        is_required: false,
    })));
    audit.begin("n1").unwrap();
    let enroll = StoreEnroll::new(store, audit.clone(), None);
    const TRIES: usize = 400;
    for _ in 0..TRIES {
        assert_eq!(enroll.login(&person()).await, Err(Refused::NoLogin));
    }
    let rows = audit.rows(TRIES, |row| row.action == "join");
    assert!((1..TRIES).contains(&rows.len()), "{}", rows.len());
    audit.end();
}

/// Somebody who logs in.
fn person() -> Person {
    Person::new("a.b.c".into(), ([127, 0, 0, 1], 1).into(), [9; 32])
}

/// A token of its own for somebody with this key, and this access.
async fn applicant(
    store: &dyn ControlStore,
    kind: TokenKind,
    key: u8,
    access: Option<Access>,
) -> Applicant {
    let grant = TokenGrant {
        kind,
        uses: TokenUses::Once,
        lifetime: Duration::from_secs(60),
    };
    let made = change(store, None, |book| {
        let made = book.tokens.create(grant, now_s());
        book.access.extend(access.clone().map(|it| (made.0, it)));
        made
    });
    let (id, secret, _) = made.await.unwrap();
    let from = ([127, 0, 0, 1], 1).into();
    Applicant::new(id, secret, from, [key; 32])
}

/// How often a token was used.
async fn uses(store: &dyn ControlStore, token: TokenId) -> u32 {
    let tokens = read(store).await.unwrap();
    let found = tokens.list().find(|it| it.id == token);
    found.unwrap().joined
}

#[tokio::test]
async fn who_is_not_let_in_has_used_no_token_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default());
    let store = store.await.unwrap();
    let client = |key: u8, name: &'static str| {
        applicant(
            &*store,
            TokenKind::Client,
            key,
            Some(Access::operator(name)),
        )
    };
    // The key has a certificate that says something else.
    let first = client(1, "ann").await;
    redeem(&*store, &first, now_s()).await.unwrap();
    let mut second = client(1, "bob").await;
    let refused = redeem(&*store, &second, now_s()).await;
    assert!(matches!(refused, Err(Refused::Person(_))), "{refused:?}");
    assert_eq!(uses(&*store, second.token).await, 0);
    let secret = second.secret.clone();
    second = Applicant::new(second.token, secret, second.from, [2; 32]);
    redeem(&*store, &second, now_s()).await.unwrap();
    assert_eq!(uses(&*store, second.token).await, 1);
    // Two at once with one key: one gets its certificate, and the other keeps its token.
    let both = [client(3, "cid").await, client(3, "dan").await];
    let [one, other] = &both;
    let (one, other) = tokio::join!(
        redeem(&*store, one, now_s()),
        redeem(&*store, other, now_s())
    );
    for (applicant, admitted) in both.iter().zip([&one, &other]) {
        let used = uses(&*store, applicant.token).await;
        assert_eq!(used, u32::from(admitted.is_ok()), "{admitted:?}");
    }
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    // A node that was removed.
    let node = applicant(&*store, TokenKind::Node, 4, None).await;
    let Role::Node(id) = node.role(TokenKind::Node) else {
        panic!("no node")
    };
    let key = records::removed(id);
    store.put(key.clone(), "".into(), None).await.unwrap();
    let refused = redeem(&*store, &node, now_s()).await;
    assert!(matches!(refused, Err(Refused::Person(_))), "{refused:?}");
    assert_eq!(uses(&*store, node.token).await, 0);
    store.delete(key).await.unwrap();
    redeem(&*store, &node, now_s()).await.unwrap();
    assert_eq!(uses(&*store, node.token).await, 1);
}

/// Nobody hears whether the next transaction was made; it was.
struct Unheard {
    is_next: Mutex<bool>,
    /// Says what is below a prefix.
    lists: bool,
}

#[async_trait]
impl Transact for Unheard {
    async fn range(&self, store: &Embedded, range: Range) -> Result<Page, Error> {
        match self.lists {
            true => store.range(range).await,
            false => std::future::pending().await,
        }
    }

    async fn txn(&self, store: &Embedded, txn: Txn) -> Result<TxnReply, Error> {
        let reply = store.txn(txn).await?;
        match std::mem::take(&mut *self.is_next.lock()) {
            true => Err(Error::Uncertain {
                why: "the network has gone".to_owned(),
            }),
            false => Ok(reply),
        }
    }
}

#[tokio::test]
async fn a_key_comes_in_by_one_token_though_answers_are_lost_and_no_other_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default());
    let store = Faulty {
        store: store.await.unwrap(),
        way: Unheard {
            is_next: Mutex::new(false),
            lists: true,
        },
    };
    for (kind, key) in [(TokenKind::Client, 1), (TokenKind::Node, 2)] {
        let mine = applicant(&store, kind, key, None).await;
        // The answer of the store is lost, and then that of the head.
        *store.way.is_next.lock() = true;
        for now_s in [now_s(), now_s() + 1] {
            let (role, ..) = redeem(&store, &mine, now_s).await.unwrap();
            assert_eq!(role, mine.role(kind));
            assert_eq!(uses(&store, mine.token).await, 1);
        }
        let secret = mine.secret.clone();
        let other = Applicant::new(mine.token, secret, mine.from, [9; 32]);
        let refused = redeem(&store, &other, now_s()).await;
        assert!(matches!(refused, Err(Refused::Used)), "{refused:?}");
    }
}

#[tokio::test]
async fn who_comes_in_does_not_wait_until_others_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default());
    let store = Arc::new(Faulty {
        store: store.await.unwrap(),
        way: Unheard {
            is_next: Mutex::new(false),
            lists: false,
        },
    });
    let enroll = StoreEnroll::new(store.clone(), Arc::new(Audit::new(None)), None);
    for key in [1, 2] {
        let token = applicant(&*store, TokenKind::Client, key, None).await;
        let redeemed = enroll.redeem(&token).await;
        assert!(redeemed.is_ok(), "{redeemed:?}");
    }
    assert_eq!(enroll.tidying.lock().len(), 1, "one at a time");
}

#[test]
fn a_book_reads_as_it_was_written_with_names_and_without() {
    let mut book = Book::default();
    let grant = TokenGrant {
        kind: TokenKind::Client,
        uses: TokenUses::Once,
        lifetime: Duration::from_secs(60),
    };
    let (id, ..) = book.tokens.create(grant, now_s());
    assert_eq!(book.written()[1], 1, "as it ever was");
    assert_eq!(Book::read(&book.written()), Ok(book.clone()));
    book.names.insert(id, "ci".into());
    let named = Named(book.tokens.clone(), book.names.clone()).to_value();
    assert_eq!(
        Book::read(&named),
        Ok(book.clone()),
        "of the version before"
    );
    book.access.insert(id, Access::operator("ci"));
    assert_eq!(book.written()[1], 3);
    assert_eq!(Book::read(&book.written()), Ok(book.clone()));
    // A name and a role go with their token.
    let gone = TokenId::from_bytes([9; 8]);
    book.names.insert(gone, "gone".into());
    book.access.insert(gone, Access::operator("gone"));
    book.prune(now_s());
    assert_eq!((book.names.len(), book.access.len()), (1, 1));
}

#[test]
fn a_token_is_meant_by_what_its_id_alone_begins_with() {
    let mut book = Book::default();
    let grant = TokenGrant {
        kind: TokenKind::Node,
        uses: TokenUses::Many,
        lifetime: Duration::from_secs(60),
    };
    let (one, ..) = book.tokens.create(grant, now_s());
    let text = one.to_string();
    assert_eq!(book.begun_so(""), None, "though there is only one");
    assert_eq!(book.begun_so("x"), None);
    for prefix in [&text[..1], &text, &text.to_ascii_uppercase()] {
        assert_eq!(book.begun_so(prefix), Some(one));
    }
    // At least two of these begin with the same digit.
    for _ in 0..16 {
        book.tokens.create(grant, now_s());
    }
    let digits = (0..16).map(|it| format!("{it:x}"));
    let mut of_digits = digits.map(|it| {
        let ids = book.tokens.list().map(|it| it.id.to_string());
        (ids.filter(|id| id.starts_with(&it)).count(), it)
    });
    let (_, shared) = of_digits.find(|(count, _)| *count > 1).unwrap();
    assert_eq!(book.begun_so(&shared), None);
    assert_eq!(book.begun_so(&text), Some(one));
}
