//! Names over the wire: real queries by UDP and TCP, bytes that are no queries, and sentries that come and go.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use hickory_server::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_server::proto::rr::{Name, RData, RecordType};
use proptest::prelude::*;
use tidegate_control::config::Dns;
use tidegate_control::names::Names;

use crate::support::site::{Sentry, Site};
use crate::support::{PATIENCE, until};

/// After so long a datagram may be lost, and is sent again.
const AGAIN: Duration = Duration::from_secs(5);

fn start(addresses: &[IpAddr]) -> Names {
    let name = |text: &str| Name::from_ascii(text).expect("a name");
    let dns = Dns {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        zone: name("z.test."),
        ttl: Duration::from_secs(5),
        name_servers: vec![name("ns.z.test.")],
    };
    let names = Names::start(&dns, &[String::from("shop")], 1).expect("starts");
    names.set(0, addresses);
    names
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut query = Message::new(7, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    query
}

fn udp_bytes(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(AGAIN)).expect("a limit");
    let (mut buffer, mut answer) = (vec![0; 65_536], None);
    until("an answer", || {
        socket.send_to(bytes, server).expect("sends");
        answer = socket.recv_from(&mut buffer).ok();
        answer.is_some()
    });
    let (length, from) = answer.expect("it was waited for");
    assert_eq!(from, server);
    buffer.truncate(length);
    buffer
}

fn udp(server: SocketAddr, query: &Message) -> Message {
    Message::from_vec(&udp_bytes(server, &query.to_vec().expect("bytes"))).expect("a message")
}

fn tcp_bytes(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let length = u16::try_from(bytes.len()).expect("short").to_be_bytes();
    stream.write_all(&[&length, bytes].concat()).expect("sends");
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).expect("all of it");
    answer
}

fn tcp(server: SocketAddr, query: &Message) -> Message {
    let mut stream = TcpStream::connect(server).expect("connects");
    Message::from_vec(&tcp_bytes(&mut stream, &query.to_vec().expect("bytes"))).expect("a message")
}

fn addresses(answer: &Message) -> Vec<String> {
    let mut all: Vec<String> = answer.answers.iter().map(|record| record.data.to_string()).collect();
    all.sort();
    all
}

fn many(count: u16) -> Vec<IpAddr> {
    (0..count).map(|at| IpAddr::from([10, 0, (at >> 8) as u8, at as u8])).collect()
}

#[test]
fn udp_and_tcp_answer_alike() {
    let names = start(&[IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])]);
    for ask in [udp, tcp] {
        let mut asked = query("shop.z.test.", RecordType::A);
        asked.metadata.recursion_desired = true;
        let answer = ask(names.address(), &asked);
        let meta = &answer.metadata;
        assert_eq!((meta.id, meta.response_code, meta.message_type), (7, ResponseCode::NoError, MessageType::Response));
        assert!(meta.authoritative && meta.recursion_desired && !meta.recursion_available && !meta.truncation);
        assert_eq!((addresses(&answer), answer.answers[0].ttl), (vec![String::from("192.0.2.1")], 5));
        assert_eq!(answer.queries, asked.queries);
        assert_eq!(addresses(&ask(names.address(), &query("shop.z.test.", RecordType::AAAA))), ["2001:db8::1"]);
        let none = ask(names.address(), &query("none.z.test.", RecordType::A));
        assert_eq!((none.metadata.response_code, none.answers.len()), (ResponseCode::NXDomain, 0));
        assert!(matches!(&none.authorities[0].data, RData::SOA(soa) if soa.minimum == 5));
        let foreign = ask(names.address(), &query("example.com.", RecordType::A));
        assert_eq!(foreign.metadata.response_code, ResponseCode::Refused);
        assert!(!foreign.metadata.authoritative && foreign.authorities.is_empty());
    }
}

#[test]
fn what_does_not_fit_is_cut_and_comes_whole_by_tcp() {
    let names = start(&many(200));
    let mut asked = query("shop.z.test.", RecordType::A);
    let plain = udp_bytes(names.address(), &asked.to_vec().expect("bytes"));
    let cut = Message::from_vec(&plain).expect("a message");
    assert!(plain.len() <= 512 && cut.metadata.truncation && !cut.answers.is_empty(), "{} bytes", plain.len());
    let mut edns = Edns::new();
    edns.set_max_payload(65_000);
    asked.set_edns(edns);
    let larger = udp_bytes(names.address(), &asked.to_vec().expect("bytes"));
    let cut = Message::from_vec(&larger).expect("a message");
    assert!((513..=1232).contains(&larger.len()) && cut.metadata.truncation, "{} bytes", larger.len());
    assert_eq!(cut.edns.expect("as asked").max_payload(), 1232);
    let whole = tcp(names.address(), &asked);
    assert_eq!((whole.metadata.truncation, whole.answers.len()), (false, 200));
    names.set(0, &many(5000));
    let most = tcp(names.address(), &asked);
    let (is_cut, count) = (most.metadata.truncation, most.answers.len());
    assert!(is_cut && (2000..5000).contains(&count), "as much as a message holds: {is_cut}, {count}");
}

#[test]
fn what_is_no_query_is_answered_as_such() {
    let names = start(&many(1));
    let code = |bytes: &[u8]| {
        let over_udp = Message::from_vec(&udp_bytes(names.address(), bytes)).expect("a message");
        let mut stream = TcpStream::connect(names.address()).expect("connects");
        let over_tcp = Message::from_vec(&tcp_bytes(&mut stream, bytes)).expect("a message");
        assert_eq!(over_udp.metadata.response_code, over_tcp.metadata.response_code);
        assert_eq!((over_udp.metadata.id, over_tcp.metadata.id), (7, 7));
        over_udp.metadata.response_code
    };
    let good = query("shop.z.test.", RecordType::A).to_vec().expect("bytes");
    assert_eq!(code(&good), ResponseCode::NoError);
    assert_eq!(code(&good[..good.len() - 3]), ResponseCode::FormErr, "cut off");
    let mut pointing = good.clone();
    pointing[12..14].copy_from_slice(&[0xc0, 0x0c]);
    assert_eq!(code(&pointing), ResponseCode::FormErr, "a name that points at itself");
    let mut twice = query("shop.z.test.", RecordType::A);
    twice.add_query(Query::query(Name::from_ascii("z.test.").expect("a name"), RecordType::A));
    assert_eq!(code(&twice.to_vec().expect("bytes")), ResponseCode::FormErr, "two questions");
    let none = Message::new(7, MessageType::Query, OpCode::Query);
    assert_eq!(code(&none.to_vec().expect("bytes")), ResponseCode::FormErr, "no question");
    let mut update = query("shop.z.test.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update.to_vec().expect("bytes")), ResponseCode::NotImp);
    let mut later = query("shop.z.test.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(9);
    later.set_edns(edns);
    let answer = udp(names.address(), &later);
    // Number 16 has two names.
    assert_eq!(u16::from(answer.metadata.response_code), u16::from(ResponseCode::BADVERS));
}

#[test]
fn answers_to_nobody_are_not_answered() {
    let names = start(&many(1));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut bounced = query("shop.z.test.", RecordType::A);
    bounced.metadata.message_type = MessageType::Response;
    socket.send_to(&bounced.to_vec().expect("bytes"), names.address()).expect("sends");
    socket.send_to(&[1, 2, 3], names.address()).expect("sends");
    let mut asked = query("shop.z.test.", RecordType::A);
    asked.metadata.id = 99;
    socket.send_to(&asked.to_vec().expect("bytes"), names.address()).expect("sends");
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).expect("an answer");
    assert_eq!(
        Message::from_vec(&buffer[..length]).expect("a message").metadata.id,
        99,
        "the first answer is to the query"
    );
}

#[test]
fn idle_connections_do_not_keep_others_out_for_long() {
    let names = start(&many(1));
    let idle: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(names.address()).expect("connects")).collect();
    assert_eq!(tcp(names.address(), &query("shop.z.test.", RecordType::A)).answers.len(), 1);
    assert_eq!(idle.len(), 80);
}

#[test]
fn who_keeps_asking_by_tcp_keeps_nobody_out() {
    let names = start(&many(1));
    let (server, asked) = (names.address(), query("shop.z.test.", RecordType::A));
    let bytes = asked.to_vec().expect("bytes");
    let mut busy: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(server).expect("connects")).collect();
    busy.iter_mut().for_each(|stream| drop(tcp_bytes(stream, &bytes)));
    let other = std::thread::spawn(move || tcp(server, &asked).answers.len());
    until("another one is answered", || {
        for mut stream in &busy {
            // One of them had to make room.
            let _ = stream.write_all(&[&(bytes.len() as u16).to_be_bytes(), bytes.as_slice()].concat());
            let _ = stream.read(&mut [0; 1024]);
        }
        other.is_finished()
    });
    assert_eq!(other.join().expect("an answer"), 1);
}

#[test]
fn a_flood_by_udp_is_answered_less_and_less_and_who_asks_truly_comes_by_tcp() {
    let names = start(&many(60));
    assert_eq!(names.limited(), (0, 0));
    let mut asked = query("shop.z.test.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    asked.set_edns(edns);
    let (bytes, garbled) = (asked.to_vec().expect("bytes"), [0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("it need not wait");
    let mut buffer = [0; 2048];
    let (mut whole, mut cut) = (0, 0);
    until("hundreds of answers are cut, and dropped", || {
        for _ in 0..100 {
            let _ = socket.send_to(&bytes, names.address());
            let _ = socket.send_to(&garbled, names.address());
        }
        while let Ok(length) = socket.recv(&mut buffer) {
            let answer = Message::from_vec(&buffer[..length]).expect("a message");
            if answer.metadata.id != 7 || !answer.metadata.truncation {
                whole += 1;
                continue;
            }
            cut += 1;
            assert!(length <= bytes.len() && answer.answers.is_empty(), "{length} bytes for {}", bytes.len());
            assert_eq!((answer.metadata.response_code, answer.queries.len()), (ResponseCode::NoError, 1));
        }
        let (truncated, dropped) = names.limited();
        cut >= 200 && truncated >= 200 && dropped >= 200
    });
    assert!(whole >= 100, "before, {whole} answers were given");
    assert_eq!(tcp(names.address(), &asked).answers.len(), 60);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_harm_nobody(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..60),
        flips in prop::collection::vec((0_usize..200, any::<u8>()), 0..60),
    ) {
        let names = start(&many(2));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let good = query("shop.z.test.", RecordType::A).to_vec().expect("bytes");
        for packet in &packets {
            socket.send_to(packet, names.address()).expect("sends");
            let mut stream = TcpStream::connect(names.address()).expect("connects");
            // It may be hung up on in the middle.
            let _ = stream.write_all(packet);
        }
        for (at, byte) in flips {
            let mut bent = good.clone();
            let at = at % bent.len();
            bent[at] ^= byte;
            socket.send_to(&bent, names.address()).expect("sends");
        }
        prop_assert_eq!(udp(names.address(), &query("shop.z.test.", RecordType::A)).answers.len(), 2);
        prop_assert_eq!(tcp(names.address(), &query("shop.z.test.", RecordType::A)).answers.len(), 2);
    }
}

#[test]
fn names_follow_the_sentries() {
    let mut site = Site::start("[dns]\nlisten = \"127.0.0.1:0\"\nzone = \"z.test\"\n");
    let ask = |site: &Site| addresses(&udp(site.names(), &query("shop.z.test.", RecordType::A)));
    let code = |site: &Site| udp(site.names(), &query("shop.z.test.", RecordType::A)).metadata.response_code;
    assert_eq!(code(&site), ResponseCode::ServFail, "nobody was ever known");
    let mut sentries: Vec<Sentry> =
        (1..=3).map(|number| Sentry::connect(&site, &format!("s{number}"), &format!("192.0.2.{number}"))).collect();
    until("all three", || ask(&site) == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    // One that listens everywhere is where it connects from.
    sentries.push(Sentry::connect(&site, "s4", "0.0.0.0"));
    until("the fourth", || ask(&site).contains(&String::from("127.0.0.1")));
    sentries.pop().expect("the fourth").goodbye();
    until("the fourth has said goodbye", || ask(&site).len() == 3);
    // Cut off.
    drop(sentries.remove(0));
    until("the first is gone", || ask(&site) == ["192.0.2.2", "192.0.2.3"]);
    // A daemon that begins anew answers by the last good state, and waits for those it knew.
    site.restart();
    until("the same as before", || ask(&site) == ["192.0.2.2", "192.0.2.3"]);
    let mut back = Sentry::connect(&site, "s2", "192.0.2.22");
    until("one is back, elsewhere", || ask(&site) == ["192.0.2.22"]);
    back.say_goodbye();
    until("nobody is left", || site.records("sentry-left") == 2);
    assert_eq!(ask(&site), ["192.0.2.3"], "one that is waited for");
}
