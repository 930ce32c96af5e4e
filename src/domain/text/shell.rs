//! Commands as a POSIX shell reads them, for pasting; Flux itself never runs a shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Variables in front, then every word, quoted where it must be.
pub fn shell_command(env: &BTreeMap<String, String>, words: &[String]) -> String {
    let variables = env
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = words.iter().map(|word| quoted(word));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Control characters go into `$'…'`, so that the line is harmless on a terminal and still exact.
fn quoted(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return shell_words::quote(word).into_owned();
    }
    let mut text = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_back_as_the_same_words() {
        let words = [
            "/opt/llama cpp/llama-server",
            "-m",
            "it's a \"model\" & 100% (v1) #2.gguf",
        ]
        .map(str::to_owned);
        let env = BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), "1".to_owned())]);
        let line = shell_command(&env, &words);
        assert!(
            line.starts_with("GGML_VK_ALLOW_GRAPHICS_QUEUE=1 "),
            "{line}"
        );
        assert_eq!(shell_words::split(&line).unwrap()[1..], words);
    }

    #[test]
    fn a_control_character_is_quoted_not_sent() {
        assert_eq!(quoted("a\u{1b}[31m'b\n"), r"$'a\x1b[31m\'b\x0a'");
    }
}
