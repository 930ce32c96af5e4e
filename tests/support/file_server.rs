//! An HTTP server on loopback that gives each connection the next of its scripted answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

/// What one connection gets.
pub enum Answer {
    /// The whole body.
    Whole(Vec<u8>),
    /// Another address on this server.
    Redirect(String),
    /// A status without a body.
    Status(u16),
    /// The first bytes of the body, then the connection is closed.
    CutAfter(Vec<u8>, usize),
    /// The first bytes of the body, then nothing until the sender is dropped.
    HoldAfter(Vec<u8>, usize, Receiver<()>),
}

/// Ends with its last answer; after that, and without any, its port is closed.
pub struct FileServer {
    address: SocketAddr,
    _thread: JoinHandle<()>,
}

impl FileServer {
    pub fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::Builder::new()
            .name("file server".to_owned())
            .spawn(move || {
                for answer in answers {
                    let (connection, _) = listener.accept().unwrap();
                    // A client may hang up at any time.
                    let _ = serve(connection, answer);
                }
            })
            .unwrap();
        Self {
            address,
            _thread: thread,
        }
    }

    pub fn url(&self, file: &str) -> String {
        format!("http://{}/{file}", self.address)
    }
}

fn serve(mut connection: TcpStream, answer: Answer) -> std::io::Result<()> {
    let mut line = String::new();
    let mut request = BufReader::new(connection.try_clone()?);
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut head = |status: &str, extra: &str, length: usize| {
        write!(
            connection,
            "HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };
    match answer {
        Answer::Redirect(to) => head("302 Found", &format!("Location: {to}\r\n"), 0),
        Answer::Status(status) => head(&format!("{status} Status"), "", 0),
        Answer::Whole(body) => {
            head("200 OK", "", body.len())?;
            connection.write_all(&body)
        }
        Answer::CutAfter(body, count) => {
            head("200 OK", "", body.len())?;
            connection.write_all(&body[..count])
        }
        Answer::HoldAfter(body, count, until_dropped) => {
            head("200 OK", "", body.len())?;
            connection.write_all(&body[..count])?;
            let _ = until_dropped.recv();
            Ok(())
        }
    }
}
