//! Records of clients, and what becomes of them.

use super::*;

fn client(n: u8) -> ClientId {
    ClientId::from_bytes([n; 16])
}

#[test]
fn a_record_has_these_bytes_and_reads_as_it_was_written() {
    let known = ClientRecord {
        name: Some("ci".into()),
        since_s: Some(1),
        issued_s: Some(2),
        ..ClientRecord::default()
    };
    let value = known.to_value();
    let text = r#"{"name":"ci","since_s":1,"issued_s":2}"#;
    assert_eq!(&value[..2], b"j\x01");
    assert_eq!(std::str::from_utf8(&value[2..]), Ok(text));
    assert_eq!(ClientRecord::from_value(&value), Ok(known));
    // What a later version adds is skipped.
    let later = ClientRecord::from_value(b"j\x01{\"revoked_s\":3,\"by\":1}").unwrap();
    assert_eq!(later.revoked_s, Some(3));
    let viewer = ClientRecord {
        role: Some(Role::Viewer),
        tenants: Some("a,b".parse().unwrap()),
        ..ClientRecord::default()
    };
    let value = viewer.to_value();
    let text = r#"{"role":"viewer","tenants":"a,b"}"#;
    assert_eq!(std::str::from_utf8(&value[2..]), Ok(text));
    assert_eq!(ClientRecord::from_value(&value), Ok(viewer.clone()));
    // Who has a certificate that says nothing is listed as what it is taken for.
    let rows = rows(
        vec![(client(1), viewer), (client(2), ClientRecord::default())],
        0,
    );
    let shown = |at: usize| (rows[at].role, rows[at].tenants.to_string());
    assert_eq!(shown(0), (Role::Viewer, "a,b".to_owned()));
    assert_eq!(shown(1), (Role::Submitter, "*".to_owned()));
    assert_eq!(client_of(&records::client(client(7))), Some(client(7)));
    assert_eq!(client_of(b"clients/x"), None);
}

#[test]
fn who_is_meant() {
    let known = |name: Option<&str>, revoked_s| ClientRecord {
        name: name.map(Into::into),
        revoked_s,
        ..ClientRecord::default()
    };
    let until = |name: &str, until_s| ClientRecord {
        until_s: Some(until_s),
        ..known(Some(name), None)
    };
    let all = [
        (client(0xa1), known(Some("ci"), Some(1))),
        (client(0xa2), known(Some("ci"), None)),
        (client(0xb1), known(Some("a1"), None)),
        (client(0xc1), known(Some("two"), None)),
        (client(0xc2), known(Some("two"), None)),
        // The login of yesterday, and that of today.
        (client(0xd1), until("ann", 100)),
        (client(0xd2), until("ann", 300)),
    ];
    // The head has not said what time it is: both may be valid.
    let both = meant("ann", &all, 0);
    assert!(matches!(both, Err(ClientsError::Ambiguous { .. })));
    let meant = |text: &str| meant(text, &all, 200);
    for (text, id) in [
        ("ci", 0xa2),
        ("a1", 0xb1),
        ("A1a", 0xa1),
        ("b", 0xb1),
        ("ann", 0xd2),
        ("d1", 0xd1),
    ] {
        assert_eq!(meant(text).unwrap(), client(id), "{text}");
    }
    for text in ["", "x", "ci2"] {
        let error = meant(text).unwrap_err();
        assert!(matches!(error, ClientsError::Unknown(_)), "{text}: {error}");
    }
    for text in ["c", "two"] {
        let error = meant(text).unwrap_err().to_string();
        assert!(error.contains("more than one"), "{error}");
    }
}

#[test]
fn a_name_that_could_be_an_id_is_not_taken_for_that_of_nobody() {
    let named = |id, revoked_s| ClientRecord {
        name: Some(client(id).to_string()),
        revoked_s,
        ..ClientRecord::default()
    };
    let mut all = vec![(client(1), named(2, None)), (client(3), named(4, None))];
    let text = client(2).to_string();
    assert_eq!(meant(&text, &all, 0).unwrap(), client(1));
    // One that has the id is meant by it.
    all.push((client(2), ClientRecord::default()));
    assert_eq!(meant(&text, &all, 0).unwrap(), client(2));
    // Nobody who is called so can come any more.
    all[1].1.revoked_s = Some(1);
    assert_eq!(meant(&client(4).to_string(), &all, 0).unwrap(), client(4));
    assert_eq!(meant(&client(5).to_string(), &all, 0).unwrap(), client(5));
}

#[test]
fn a_key_has_no_certificates_that_say_different_things() {
    let lifetime = LIFETIME.as_secs();
    let access = |role| Access {
        name: "ann".into(),
        role,
        tenants: "a".parse().unwrap(),
    };
    let (operator, viewer) = (access(Role::Operator), access(Role::Viewer));
    let login = |access, until_s| Login {
        name: Some("ann"),
        access,
        until_s,
    };
    let mut known = ClientRecord::default();
    let id = client(1);
    known
        .log_in(id, &login(Some(&operator), None), 100)
        .unwrap();
    let first = known.clone();
    // A weaker one, one that says nothing, the same of a person, which ends sooner, and one with another name.
    for other in [
        login(Some(&viewer), None),
        login(None, None),
        login(Some(&operator), Some(200)),
        Login {
            name: Some("bob"),
            ..login(Some(&operator), None)
        },
    ] {
        let refused = known.log_in(id, &other, 150);
        assert!(matches!(refused, Err(ClientsError::KeyInUse(_))));
        assert_eq!(known, first);
    }
    // The answer to the first was lost.
    let again = login(Some(&operator), None);
    known.log_in(id, &again, 150).unwrap();
    assert!(known.says(&again) && known.issued_s == Some(150));
    // It has ended.
    let bob = |until_s| Login {
        name: Some("bob"),
        ..login(Some(&viewer), Some(until_s))
    };
    known
        .log_in(id, &bob(lifetime + 300), 150 + lifetime)
        .unwrap();
    assert!(known.says(&bob(0)));
    assert_eq!(known.ends_s(), Some(lifetime + 300));
    known
        .log_in(id, &bob(lifetime + 200), 160 + lifetime)
        .unwrap();
    assert_eq!(known.ends_s(), Some(lifetime + 300), "the longer one holds");
    // What it has says the same, and was taken back.
    known.revoked_s = Some(1);
    let before = known.clone();
    let refused = known.log_in(id, &bob(lifetime + 400), 170 + lifetime);
    assert!(matches!(refused, Err(ClientsError::Revoked(_))));
    assert_eq!(known, before);
}

#[test]
fn a_client_is_remembered_as_long_as_a_certificate_of_it_may_be_valid() {
    let lifetime = LIFETIME.as_secs();
    let known = |issued_s, revoked_s| ClientRecord {
        issued_s,
        revoked_s,
        ..ClientRecord::default()
    };
    let issued = known(Some(100), None);
    assert_eq!(issued.state(99 + lifetime), "valid");
    assert_eq!(issued.state(100 + lifetime), "expired");
    assert!(!issued.is_over(99 + lifetime + REMEMBERED_S));
    assert!(issued.is_over(100 + lifetime + REMEMBERED_S));
    // Nobody knows until when a certificate of it may be valid: it stays revoked.
    let revoked = known(None, Some(100));
    assert_eq!(revoked.state(100 + lifetime), "revoked");
    assert!(!revoked.is_over(u64::MAX));
    assert!(!known(None, None).is_over(u64::MAX));
    // What came of a login ends sooner.
    let person = ClientRecord {
        until_s: Some(200),
        ..known(Some(100), None)
    };
    assert_eq!((person.state(199), person.state(200)), ("valid", "expired"));
    assert!(person.is_over(200 + REMEMBERED_S));
}
