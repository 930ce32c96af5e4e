//! Devices of other machines, behind llama.cpp's own RPC servers.

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{ask, both, text};
use crate::domain::types::{Backend, Runtime, RuntimeDevice};
use crate::ports::{PortError, PortResult};

/// A server on a local network answers in milliseconds; one that takes longer would spoil every token.
const CONNECT: Duration = Duration::from_secs(3);

/// Every device `runtime` lists when it knows these servers (`host:port`), its own first or after as it orders them.
///
/// # Errors
/// A build without RPC; an address that is none, or where nothing answers: each named before a process is started, because
/// llama.cpp aborts on them.
pub fn devices(runtime: &Runtime, servers: &[String]) -> PortResult<Vec<RuntimeDevice>> {
    let Some(bench) = runtime.bench.as_deref() else {
        return Err(PortError::new(format!(
            "there is no llama-bench in {}",
            runtime.dir.display()
        )));
    };
    if !runtime.bench_flags.contains("--rpc") {
        return Err(PortError::new(format!(
            "runtime {} has no RPC backend: {}",
            runtime.name,
            runtime.dir.display()
        ))
        .hint("use a llama.cpp built with -DGGML_RPC=ON"));
    }
    for server in servers {
        answers(server)?;
    }
    let args = ["--rpc", &servers.join(","), "--list-devices"].map(OsString::from);
    let found = text::devices(&both(&ask(bench, &args, &runtime.env)?));
    let remote = |d: &&RuntimeDevice| Backend::of_device(&d.id) == Some(Backend::Rpc);
    if found.iter().filter(remote).count() < servers.len() {
        let listed = servers.join(", ");
        return Err(PortError::new(format!(
            "llama.cpp lists no device for every server of {listed}"
        ))
        .hint("start rpc-server of the same build on each machine"));
    }
    Ok(found)
}

fn answers(server: &str) -> PortResult<()> {
    let shape = || {
        PortError::new(format!("not the address of an RPC server: {server}"))
            .hint("write host:port, e.g. 192.168.1.20:50052")
    };
    let port = server
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none_or(|p| p == 0) || server.contains([',', ' ', ';']) {
        return Err(shape());
    }
    let resolved = server.to_socket_addrs();
    let addresses =
        resolved.map_err(|e| PortError::caused(format!("no such host: {server}"), &e))?;
    let mut failure = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => return Ok(()),
            Err(e) => failure = Some(e),
        }
    }
    let headline = format!("no RPC server answers at {server}");
    let error = match failure {
        Some(e) => PortError::caused(headline, &e),
        None => PortError::new(headline),
    };
    Err(error.hint(
        "start llama.cpp's rpc-server there, in a network you trust: it asks nobody for a password",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for wrong in ["here", "host:", "host:0", "host:99999", "a:1,b:2"] {
            let error = answers(wrong).unwrap_err();
            assert!(error.headline.contains("not the address"), "{wrong}");
        }
    }

    #[test]
    fn a_dead_server_is_a_clear_failure() {
        // A port that was free a moment ago: nothing listens on it any more.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(answers(&address).is_ok());
        drop(listener);
        let error = answers(&address).unwrap_err();
        assert_eq!(
            error.headline,
            format!("no RPC server answers at {address}")
        );
        assert!(error.hint.unwrap().contains("rpc-server"));
    }
}
