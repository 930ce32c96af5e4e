//! An HTTP server on loopback that answers each path by its script: status and body in turn, the last for ever.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Answers of one path.
pub type Script = Vec<(u16, String)>;

/// `count` times the same.
pub fn times(count: usize, status: u16, body: &str) -> Script {
    vec![(status, body.to_owned()); count]
}

/// A port below the range systems hand out, so that nobody else comes upon it; this test's process picks its own.
pub fn quiet_port() -> u16 {
    let first = 20_000 + std::process::id() % 10_000;
    (0..100)
        .map(|n| u16::try_from(first + n).unwrap())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap()
}

/// Listens on `port` until the test's process ends; paths without a script get 404.
pub fn serve(port: u16, mut scripts: BTreeMap<&'static str, Script>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    std::thread::Builder::new()
        .name("scripted http".to_owned())
        .spawn(move || {
            for connection in listener.incoming() {
                // A client may hang up at any time.
                let _ = answer(connection.unwrap(), &mut scripts);
            }
        })
        .unwrap();
}

fn answer(
    mut connection: TcpStream,
    scripts: &mut BTreeMap<&'static str, Script>,
) -> std::io::Result<()> {
    let mut request = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match scripts.get_mut(path) {
        Some(script) if script.len() > 1 => script.remove(0),
        Some(script) => script[0].clone(),
        None => (404, String::new()),
    };
    write!(
        connection,
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
