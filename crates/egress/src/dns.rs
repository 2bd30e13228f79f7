//! The stub's answers, as pure text in and text out: A and AAAA for listed names, from our own table.
//! No question leaves the machine, so no question carries bytes out. Reading the packet is left to
//! hickory after the counts were checked; hostile bytes get an error or nothing.

use hickory_proto::op::{Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use crate::names::Handed;

/// Queries are short: a name of 255 bytes, a question, an OPT record with a few options.
pub(crate) const QUERY_MOST: usize = 4096;
/// What we say we take over UDP, and never exceed: a reply holds one question and one address.
const REPLY_MOST: u16 = 1232;
/// The addresses never change, but a program that outlives its network shouldn't keep them.
const TTL: u32 = 60;
const HEADER: usize = 12;

/// What the table says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    Listed(Handed),
    Unlisted,
    /// Listed, but no address is left.
    Full,
}

/// The reply to one packet; none where it deserves none. `find` is called with a lower-case name without
/// trailing dot, at most once.
pub(crate) fn answer(packet: &[u8], find: impl FnOnce(&str) -> Listing) -> Option<Vec<u8>> {
    let header = Header::read(&mut BinDecoder::new(packet)).ok()?;
    let metadata = header.metadata;
    if metadata.message_type == MessageType::Response {
        // Answering an answer is how two servers talk for ever.
        return None;
    }
    if metadata.op_code != OpCode::Query {
        return encode(&reply(&metadata, ResponseCode::NotImp));
    }
    let counts = header.counts;
    // The counts make the decoder allocate; a query has one question and little else.
    if counts.queries != 1 || counts.answers != 0 || counts.authorities != 0 || counts.additionals > 4 {
        return encode(&reply(&metadata, ResponseCode::FormErr));
    }
    match packet.get(..QUERY_MOST.min(packet.len())).map(Message::from_vec) {
        Some(Ok(query)) => encode(&respond(&query, find)),
        Some(Err(_)) | None => encode(&reply(&metadata, ResponseCode::FormErr)),
    }
}

fn respond(query: &Message, find: impl FnOnce(&str) -> Listing) -> Message {
    let [question] = query.queries.as_slice() else { return reply(&query.metadata, ResponseCode::FormErr) };
    let mut message = reply(&query.metadata, ResponseCode::NoError);
    // As asked, upper and lower case too: some resolvers draw them by lot and compare.
    message.add_query(question.clone());
    if let Some(edns) = &query.edns {
        let mut ours = Edns::new();
        ours.set_max_payload(REPLY_MOST);
        message.set_edns(ours);
        if edns.version() != 0 {
            message.metadata.response_code = ResponseCode::BADVERS;
            return message;
        }
    }
    if question.query_class() != DNSClass::IN {
        message.metadata.response_code = ResponseCode::NotImp;
        return message;
    }
    match plain(question.name()).map_or(Listing::Unlisted, |name| find(&name)) {
        Listing::Listed(handed) => {
            if let Some(record) = record(question, handed) {
                message.add_answer(record);
            }
        }
        // Not `REFUSED`: the C libraries take that for a server in trouble, and ask again for seconds.
        Listing::Unlisted => message.metadata.response_code = ResponseCode::NXDomain,
        Listing::Full => message.metadata.response_code = ResponseCode::ServFail,
    }
    message
}

/// None for other types: the name exists and has nothing of the kind.
fn record(question: &Query, handed: Handed) -> Option<Record> {
    let kind = question.query_type();
    let rdata = if kind == RecordType::A {
        RData::A(A(handed.four))
    } else if kind == RecordType::AAAA {
        RData::AAAA(AAAA(handed.six))
    } else {
        return None;
    };
    Some(Record::from_rdata(question.name().clone(), TTL, rdata))
}

/// Lower case, no trailing dot; none where a label holds what no host name does. A dot inside a label
/// must not be mistaken for one between labels.
fn plain(name: &Name) -> Option<String> {
    let mut text = String::new();
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(*byte)),
                b'A'..=b'Z' => text.push(char::from(byte.to_ascii_lowercase())),
                _ => return None,
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

fn reply(query: &Metadata, code: ResponseCode) -> Message {
    let mut message = Message::response(query.id, query.op_code);
    message.metadata.recursion_desired = query.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message
}

fn encode(message: &Message) -> Option<Vec<u8>> {
    message.to_vec().ok().filter(|bytes| bytes.len() >= HEADER && bytes.len() <= usize::from(REPLY_MOST))
}

#[cfg(test)]
mod tests;
