//! A systemd user unit. `%` begins a specifier everywhere, `$` a variable in arguments but not in the program's path
//! (`systemd.service(5)`, `systemd.syntax(7)`, `systemd.unit(5)`).

use std::fmt::Write as _;

use crate::domain::text::is_unseen;

use super::{Handover, Word};

/// A quoted word: C escapes, no specifiers.
fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            '%' => shown.push_str("%%"),
            c if is_unseen(c) => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(shown, "\\x{byte:02x}");
                }
            }
            c => shown.push(c),
        }
    }
    shown
}

fn word(word: &Word) -> String {
    let home = if word.in_home { "%h" } else { "" };
    format!("{home}{}", escaped(&word.text))
}

fn is_plain(text: &str) -> bool {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | ',' | '+')
    };
    !text.is_empty() && text.chars().all(plain)
}

fn argument(given: &Word) -> String {
    if is_plain(&given.text) {
        return word(given);
    }
    format!("\"{}\"", word(given).replace('$', "$$"))
}

/// The program's path. systemd refuses one with quotes, backslashes or control characters ("Executable name contains
/// special characters"); a shell that becomes it takes any.
fn program(path: &Word) -> String {
    let refused = |c: char| matches!(c, '"' | '\'' | '\\') || c.is_control();
    if path.text.contains(refused) {
        format!(
            "/bin/sh -c \"exec \\\"$$0\\\" \\\"$$@\\\"\" {}",
            argument(path)
        )
    } else {
        format!("\"{}\"", word(path))
    }
}

pub(super) fn unit(h: &Handover) -> Result<String, String> {
    if h.server.is_of_windows() {
        return Err("systemd runs on Linux, and this llama-server is on Windows: export a PowerShell script".to_owned());
    }
    let id = h.id();
    let mut text = h.comments("#");
    let _ = write!(
        text,
        "# Save as ~/.config/systemd/user/llama-server-{id}.service, then: systemctl --user enable --now llama-server-{id}\n\
         # An API key: LLAMA_API_KEY=… in a file of mode 600, and EnvironmentFile=FILE under [Service].\n\n\
         [Unit]\nDescription=llama-server: {id}\n\n[Service]\nType=exec\n"
    );
    for (name, value) in &h.env {
        let _ = writeln!(text, "Environment=\"{name}={}\"", word(value));
    }
    text.push_str("ExecStart=");
    text.push_str(&program(&h.server));
    for given in h.arguments("127.0.0.1", &h.port.to_string()) {
        text.push(' ');
        text.push_str(&argument(&given));
    }
    text.push_str("\nRestart=on-failure\nRestartSec=5\n\n[Install]\nWantedBy=default.target\n");
    Ok(text)
}
