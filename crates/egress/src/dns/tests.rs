use std::net::Ipv4Addr;

use super::*;
use proptest::prelude::*;

fn handed() -> Handed {
    Handed { four: Ipv4Addr::new(198, 18, 0, 1), six: "fd53:746f:636b:6164::1".parse().unwrap() }
}

fn only_listed(name: &str) -> Listing {
    match name {
        "listed.example" => Listing::Listed(handed()),
        "full.example" => Listing::Full,
        _ => Listing::Unlisted,
    }
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn ask(query: &Message) -> Message {
    Message::from_vec(&answer(&query.to_vec().unwrap(), only_listed).unwrap()).unwrap()
}

#[test]
fn listed_names_get_their_address() {
    let reply = ask(&query("listed.example.", RecordType::A));
    assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
    assert_eq!(reply.answers[0].data, RData::A(A(handed().four)));
    let reply = ask(&query("listed.example.", RecordType::AAAA));
    assert_eq!(reply.answers[0].data, RData::AAAA(AAAA(handed().six)));
    assert_eq!(reply.metadata.id, 77);
    assert!(reply.metadata.recursion_desired && reply.metadata.recursion_available);
}

#[test]
fn the_case_of_the_question_is_kept() {
    let reply = ask(&query("LiStEd.eXample.", RecordType::A));
    assert_eq!(reply.queries[0].name().to_ascii(), "LiStEd.eXample.");
    assert_eq!(reply.answers.len(), 1);
}

#[test]
fn other_types_of_listed_names_are_empty() {
    for kind in [RecordType::TXT, RecordType::MX, RecordType::HTTPS, RecordType::ANY, RecordType::CNAME] {
        let reply = ask(&query("listed.example.", kind));
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(reply.answers.is_empty(), "{kind}");
    }
}

#[test]
fn unlisted_names_do_not_exist() {
    let long = format!("{0}.{0}.{0}.listed.example.", "x".repeat(60));
    for name in ["other.example.", "listed.example.corp.", &long, "."] {
        for kind in [RecordType::A, RecordType::TXT, RecordType::NULL] {
            let reply = ask(&query(name, kind));
            assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain, "{name} {kind}");
            assert!(reply.answers.is_empty());
        }
    }
    assert_eq!(ask(&query("full.example.", RecordType::A)).metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn a_dot_inside_a_label_is_no_dot() {
    let name = Name::from_labels([&b"listed.example"[..]]).unwrap();
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name, RecordType::A));
    assert_eq!(ask(&message).metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn odd_queries_get_an_error() {
    let mut two = query("listed.example.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(ask(&two).metadata.response_code, ResponseCode::FormErr);

    let mut chaos = query("listed.example.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(ask(&chaos).metadata.response_code, ResponseCode::NotImp);

    let mut update = query("listed.example.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(ask(&update).metadata.response_code, ResponseCode::NotImp);

    let mut answered = query("listed.example.", RecordType::A);
    answered.metadata.message_type = MessageType::Response;
    assert_eq!(answer(&answered.to_vec().unwrap(), only_listed), None);

    let whole = query("listed.example.", RecordType::A).to_vec().unwrap();
    let cut = Message::from_vec(&answer(&whole[..20], only_listed).unwrap()).unwrap();
    assert_eq!(cut.metadata.response_code, ResponseCode::FormErr);
    assert_eq!(answer(&whole[..5], only_listed), None);
}

#[test]
fn edns_is_answered_in_kind() {
    let mut asked = query("listed.example.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    asked.set_edns(edns.clone());
    let reply = ask(&asked);
    assert_eq!(reply.answers.len(), 1);
    assert_eq!(reply.edns.map(|edns| edns.max_payload()), Some(REPLY_MOST));

    edns.set_version(1);
    asked.set_edns(edns);
    // BADVERS shares its number with BADSIG.
    assert_eq!(u16::from(ask(&asked).metadata.response_code), 16);
}

#[test]
fn the_longest_name_fits_into_a_plain_reply() {
    let labels = format!("{0}.{0}.{0}.{1}.", "y".repeat(63), "y".repeat(61));
    let asked = query(&labels, RecordType::AAAA).to_vec().unwrap();
    let reply = answer(&asked, |_| Listing::Listed(handed())).unwrap();
    assert!(reply.len() <= 512, "{}", reply.len());
    assert_eq!(Message::from_vec(&reply).unwrap().answers.len(), 1);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        answer(&bytes, only_listed);
        let mut headed = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        headed.extend(&bytes);
        answer(&headed, only_listed);
    }

    #[test]
    fn a_damaged_query_never_panics(
        at in any::<proptest::sample::Index>(),
        to in any::<u8>(),
        extra in proptest::collection::vec(any::<u8>(), 0..40),
        record in any::<u16>(),
    ) {
        let mut asked = query("listed.example.", RecordType::A);
        let mut edns = Edns::new();
        edns.set_max_payload(4096);
        asked.set_edns(edns);
        let mut bytes = asked.to_vec().unwrap();
        bytes.extend([0]);
        bytes.extend(record.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(extra.len()).unwrap()]);
        bytes.extend(&extra);
        bytes[11] = 2;
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Some(reply) = answer(&bytes, only_listed) {
            prop_assert!(reply.len() <= usize::from(REPLY_MOST));
        }
    }

    #[test]
    fn names_are_asked_for_as_hosts_are_written(name in "[a-zA-Z0-9-]{1,20}(\\.[a-zA-Z0-9-]{1,20}){0,4}") {
        let parsed = Name::from_labels(name.split('.').map(str::as_bytes)).unwrap();
        prop_assert_eq!(plain(&parsed), Some(name.to_ascii_lowercase()));
    }
}
