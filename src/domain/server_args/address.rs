//! Where a server listens, and who can reach it there.

use core::net::IpAddr;

use super::ArgumentError;

/// Where llama-server listens unless asked otherwise: this machine alone.
pub const LOOPBACK: &str = "127.0.0.1";

/// The addresses of a list that llama-server listens on.
fn addresses(host: &str) -> impl Iterator<Item = &str> {
    host.split(',').map(str::trim).filter(|a| !a.is_empty())
}

/// What can be an address: an IP address with or without its zone, a host's name, a socket in the file system.
///
/// # Errors
/// One of the list is none of these, or none is there.
pub fn check_address(host: &str) -> Result<(), ArgumentError> {
    let is_address = |address: &str| {
        address.strip_suffix(".sock").is_some()
            || address
                .chars()
                .all(|c| c.is_alphanumeric() || ".-_:%".contains(c))
    };
    // Empty places of a list are passed over, as llama-server does.
    if addresses(host).next().is_some() && addresses(host).all(is_address) {
        return Ok(());
    }
    Err(ArgumentError::Address(host.to_owned()))
}

/// Does this machine alone reach the server there? A socket in the file system is no network.
pub(super) fn is_loopback(host: &str) -> bool {
    let local = |address: &str| {
        address.eq_ignore_ascii_case("localhost")
            // As llama-server tells a socket, by case.
            || address.strip_suffix(".sock").is_some()
            || address
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    };
    addresses(host).next().is_some() && addresses(host).all(local)
}

/// Who can reach a server that listens there, in words; `None` where this machine alone can.
pub fn reached_by(host: &str) -> Option<String> {
    let open: Vec<&str> = addresses(host).filter(|a| !is_loopback(a)).collect();
    let address = *open.first()?;
    let ip = address.parse::<IpAddr>().map(|ip| ip.to_canonical());
    Some(match ip {
        _ if open.len() > 1 => format!("every machine that reaches {}", open.join(" or ")),
        Ok(ip) if ip.is_unspecified() => {
            "every machine that reaches this one over any of its networks".to_owned()
        }
        Ok(ip) if is_private(ip) => format!("every machine in the network of {address}"),
        Ok(_) => format!("anyone on the internet that no firewall keeps from {address}"),
        Err(_) => format!("every machine that reaches this one as {address}"),
    })
}

/// RFC 1918, 3927, 6598 (shared address space, also of VPNs), 4193, 4291 (link local).
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private() || v4.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_an_address_is_none() {
        for none in ["", ",", " , ", "a b"] {
            let refused = check_address(none).unwrap_err();
            assert_eq!(refused, ArgumentError::Address(none.to_owned()));
        }
        for host in ["127.0.0.1", "::1", "a.local, 10.0.0.1,", "/run/x.sock"] {
            assert_eq!(check_address(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn who_can_reach_it_is_said_in_words() {
        for (host, who) in [
            ("127.0.0.1", None),
            (
                "0.0.0.0",
                Some("every machine that reaches this one over any of its networks"),
            ),
            (
                "::",
                Some("every machine that reaches this one over any of its networks"),
            ),
            (
                "192.168.1.5",
                Some("every machine in the network of 192.168.1.5"),
            ),
            (
                "100.100.1.2",
                Some("every machine in the network of 100.100.1.2"),
            ),
            ("fe80::1", Some("every machine in the network of fe80::1")),
            (
                "8.8.8.8",
                Some("anyone on the internet that no firewall keeps from 8.8.8.8"),
            ),
            (
                "box.lan",
                Some("every machine that reaches this one as box.lan"),
            ),
            (
                "127.0.0.1,10.0.0.1",
                Some("every machine in the network of 10.0.0.1"),
            ),
            (
                "10.0.0.1,::",
                Some("every machine that reaches 10.0.0.1 or ::"),
            ),
        ] {
            assert_eq!(reached_by(host).as_deref(), who, "{host}");
        }
    }

    #[test]
    fn this_machine_has_several_names() {
        assert!(is_loopback("::ffff:127.0.0.1"));
    }
}
