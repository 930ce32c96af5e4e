//! Configuration of llama-swap. Its `cmd` is split by POSIX rules, on Windows by those of the C runtime, after `${…}` was
//! replaced (llama-swap's guide "Writing the cmd for a model").

use std::fmt::Write as _;

use crate::domain::text::{clean, crt_quoted};

use super::{Handover, Word, yaml_quoted};

const fn home(word: &Word, windows: bool) -> &'static str {
    match (word.in_home, windows) {
        (false, _) => "",
        (true, true) => "${env.USERPROFILE}",
        (true, false) => "${env.HOME}",
    }
}

fn word(word: &Word, windows: bool) -> Result<String, String> {
    let text = &word.text;
    if text.contains("${") || text.chars().any(char::is_control) {
        return Err(format!(
            "llama-swap reads `${{` as the start of a macro and takes no line breaks, as in {}: rename it, or export a script",
            clean(text)
        ));
    }
    let home = home(word, windows);
    Ok(if windows {
        crt_quoted(&format!("{home}{text}"))
    } else if word.in_home {
        format!("\"{home}\"{}", shell_words::quote(text))
    } else {
        shell_words::quote(text).into_owned()
    })
}

pub(super) fn yaml(h: &Handover) -> Result<String, String> {
    let windows = h.server.is_of_windows();
    let mut command = word(&h.server, windows)?;
    for argument in h.arguments("127.0.0.1", "${PORT}") {
        command.push(' ');
        if argument == Word::exact("${PORT}") {
            command.push_str("${PORT}");
        } else {
            command.push_str(&word(&argument, windows)?);
        }
    }
    let mut text = h.comments("#");
    let _ = write!(
        text,
        "# llama-swap listens on every network unless told otherwise:\n\
         # llama-swap --config FILE --listen 127.0.0.1:{}\n\
         models:\n  {}:\n    proxy: \"http://127.0.0.1:${{PORT}}\"\n    cmd: {}\n",
        h.port,
        yaml_quoted(&h.id()),
        yaml_quoted(&command)
    );
    if !h.env.is_empty() {
        text.push_str("    env:\n");
    }
    for (name, value) in &h.env {
        let pair = format!("{name}={}{}", home(value, windows), value.text);
        let _ = writeln!(text, "      - {}", yaml_quoted(&pair));
    }
    Ok(text)
}
