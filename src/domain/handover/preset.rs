//! A preset for `llama-server --models-preset FILE`, by the grammar of b11149's `common/preset.cpp`: a value ends at `;`,
//! `#` or the line's end, its outer blanks do not count, and nothing is escaped.

use std::fmt::Write as _;

use crate::domain::server_args::pairs;
use crate::domain::text::{clean, is_unseen, quoted};

use super::{Handover, Word};

fn value(word: &Word) -> Result<String, String> {
    let text = if word.in_home {
        format!("~{}", word.text)
    } else {
        word.text.clone()
    };
    let cannot = text.trim_matches([' ', '\t']) != text
        || text.is_empty()
        || text.contains([';', '#'])
        || text.chars().any(is_unseen);
    if cannot {
        return Err(format!(
            "a preset file has no way to write `;`, `#`, line breaks, unseen characters or outer blanks, as in {}: rename it, or export a script",
            clean(&text)
        ));
    }
    Ok(text)
}

pub(super) fn ini(h: &Handover) -> Result<String, String> {
    let mut text = h.comments(";");
    let words = [&h.server, &h.model[0]];
    if words.iter().any(|w| w.in_home) {
        text.push_str("; llama-server reads no ~: write your home folder instead\n");
    }
    let mut start = String::new();
    for (name, value) in &h.env {
        let _ = write!(start, "{name}={} ", quoted(&clean(&value.text)));
    }
    if !start.is_empty() {
        text.push_str(
            "; Variables cannot be part of a preset, the server's own reach every model:\n",
        );
    }
    let _ = write!(
        text,
        "; {start}llama-server --models-preset FILE --host 127.0.0.1 --port {}\n\nversion = 1\n\n[{}]\nmodel = {}\n",
        h.port,
        h.id(),
        value(&h.model[0])?
    );
    for (flag, word) in pairs(&h.args, |w| &w.text) {
        let word = match word {
            Some(word) => value(word)?,
            None => "true".to_owned(),
        };
        let flag = value(&Word::exact(flag.trim_start_matches('-')))?;
        let _ = writeln!(text, "{flag} = {word}");
    }
    Ok(text)
}
