//! Commands as shells read them, for pasting; Flux itself never runs a shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::is_unseen;

/// A shell that a command is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash, zsh, and any POSIX shell where every character is seen.
    Bash,
    /// PowerShell; 7.3 or later where a word has a double quote or is empty (`about_Parsing`, native arguments).
    Powershell,
    /// The Windows command prompt, as typed: a batch file would need `%%`.
    Cmd,
}

impl Shell {
    /// The shell people have in front of them on this system.
    pub const fn native() -> Self {
        if cfg!(windows) {
            Self::Powershell
        } else {
            Self::Bash
        }
    }

    /// Variables set, then the words run, on one line; the first word is the program.
    ///
    /// # Errors
    /// In one sentence: what this shell has no way to write.
    pub fn command(
        self,
        env: &BTreeMap<String, String>,
        words: &[String],
    ) -> Result<String, String> {
        match self {
            Self::Bash => Ok(shell_command(env, words)),
            Self::Powershell => powershell_command(env, words),
            Self::Cmd => cmd_command(env, words),
        }
    }
}

/// The command for the shell of this system; where that cannot say it, why.
pub fn native_command(env: &BTreeMap<String, String>, words: &[String]) -> String {
    Shell::native()
        .command(env, words)
        .unwrap_or_else(|why| why)
}

/// A POSIX line: variables in front, then every word, quoted where it must be.
pub fn shell_command(env: &BTreeMap<String, String>, words: &[String]) -> String {
    let variables = env
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = words.iter().map(|word| quoted(word));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Characters that are not seen go into `$'…'`, so that the line is harmless on a terminal and still exact.
pub(crate) fn quoted(word: &str) -> String {
    if !word.chars().any(is_unseen) {
        return shell_words::quote(word).into_owned();
    }
    let mut text = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            c if is_unseen(c) => {
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

fn powershell_command(env: &BTreeMap<String, String>, words: &[String]) -> Result<String, String> {
    let mut parts = Vec::new();
    for (name, value) in env {
        set_at_all("PowerShell", name, value)?;
        parts.push(format!("$env:{name} = {}", powershell_quoted(value)));
    }
    let words: Vec<String> = words.iter().map(|word| powershell_word(word)).collect();
    parts.push(format!("& {}", words.join(" ")));
    Ok(parts.join("; "))
}

/// A flag or a whole number as it stands; all else quoted: PowerShell reads lists, numbers and names out of bare words.
fn powershell_word(word: &str) -> String {
    let body = word
        .strip_prefix("--")
        .or_else(|| word.strip_prefix('-'))
        .unwrap_or_default();
    let is_flag = body.starts_with(|c: char| c.is_ascii_alphabetic())
        && body.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let is_count = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
    if is_flag || is_count {
        word.to_owned()
    } else {
        powershell_quoted(word)
    }
}

/// A PowerShell string: in single quotes, typographic ones counting as such; characters that are not seen by their numbers.
pub(crate) fn powershell_quoted(text: &str) -> String {
    const SINGLE: [char; 5] = ['\'', '\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}'];
    const DOUBLE: [char; 4] = ['"', '\u{201c}', '\u{201d}', '\u{201e}'];
    if !text.chars().any(is_unseen) {
        let mut quoted = String::from("'");
        for c in text.chars() {
            if SINGLE.contains(&c) {
                quoted.push(c);
            }
            quoted.push(c);
        }
        return quoted + "'";
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if is_unseen(c) {
            let _ = write!(quoted, "$([char]::ConvertFromUtf32({}))", u32::from(c));
            continue;
        }
        if matches!(c, '`' | '$') || DOUBLE.contains(&c) {
            quoted.push('`');
        }
        quoted.push(c);
    }
    quoted + "\""
}

fn cmd_command(env: &BTreeMap<String, String>, words: &[String]) -> Result<String, String> {
    let mut line = String::new();
    for (name, value) in env {
        set_at_all("the command prompt", name, value)?;
        one_line(value)?;
        let set = if value.contains(['%', '"']) {
            format!("set {name}={}", careted(value))
        } else {
            format!("set \"{name}={value}\"")
        };
        // No space before `&&`: it would be part of an unquoted value.
        line = format!("{line}{set}&& ");
    }
    let words: Result<Vec<String>, String> = words.iter().map(|word| cmd_word(word)).collect();
    Ok(line + &words?.join(" "))
}

/// A word quoted by the rules of the C runtime, by which llama-server splits its command line, and those of cmd.exe.
fn cmd_word(word: &str) -> Result<String, String> {
    one_line(word)?;
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '\\' | ':' | '+')
    };
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    let quoted = crt_quoted(word);
    // In cmd's own quotes `%` still names a variable, and a `"` inside ends them: then every character stands for itself.
    if word.contains(['%', '"']) {
        return Ok(careted(&quoted));
    }
    Ok(quoted)
}

/// A word in double quotes by the rules of Microsoft's C runtime: backslashes count only before a quote.
pub(crate) fn crt_quoted(word: &str) -> String {
    let mut quoted = String::from("\"");
    let mut backslashes = 0;
    for c in word.chars() {
        match c {
            '\\' => backslashes += 1,
            '"' => {
                quoted.push_str(&"\\".repeat(backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        quoted.push(c);
    }
    quoted.push_str(&"\\".repeat(backslashes));
    quoted.push('"');
    quoted
}

/// Every character that cmd.exe reads as more than itself, behind a caret. `%NAME^%` is no variable when typed.
fn careted(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if matches!(c, '(' | ')' | '%' | '!' | '^' | '"' | '<' | '>' | '&' | '|') {
            shown.push('^');
        }
        shown.push(c);
    }
    shown
}

fn set_at_all(shell: &str, name: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!(
            "{shell} cannot set {name} to nothing; use --shell bash, or start the server with `flux run`"
        ));
    }
    Ok(())
}

fn one_line(text: &str) -> Result<(), String> {
    match text.chars().find(|c| is_unseen(*c)) {
        Some(c) => Err(format!(
            "the command prompt has no way to write the character {} of {}; use --shell powershell",
            c.escape_unicode(),
            super::clean(text)
        )),
        None => Ok(()),
    }
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

    fn line(shell: Shell, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let env = BTreeMap::from([("GGML_X".to_owned(), "1".to_owned())]);
        shell.command(&env, &words).unwrap()
    }

    /// Rules: `about_Quoting_Rules`; flags and whole numbers need none.
    #[test]
    fn powershell_takes_every_word_as_one() {
        let words = [
            r"C:\llama cpp\llama-server.exe",
            "-ngl",
            "24",
            "a'b’c$d`e",
            "-1",
            "-c.d",
            "",
        ];
        assert_eq!(
            line(Shell::Powershell, &words),
            r"$env:GGML_X = '1'; & 'C:\llama cpp\llama-server.exe' -ngl 24 'a''b’’c$d`e' '-1' '-c.d' ''"
        );
        assert_eq!(
            powershell_word("a\n$x“`"),
            "\"a$([char]::ConvertFromUtf32(10))`$x`“``\"",
            "control characters by number"
        );
    }

    /// Rules: the C runtime's for backslashes before quotes, a caret before each character that is cmd's own.
    #[test]
    fn the_command_prompt_takes_every_word_as_one() {
        let words = [
            r"C:\llama cpp\llama-server.exe",
            "--model",
            r"D:\100%\a&b.gguf",
            r#"{"a": "b\"}"#,
            r"a b\",
        ];
        assert_eq!(
            line(Shell::Cmd, &words),
            concat!(
                r#"set "GGML_X=1"&& "C:\llama cpp\llama-server.exe" --model ^"D:\100^%\a^&b.gguf^" "#,
                r#"^"{\^"a\^": \^"b\\\^"}^" "a b\\""#
            )
        );
    }

    /// Of a server, verbatim, of another drive's current folder, with a dot or a blank at its end.
    #[test]
    fn paths_of_windows_are_taken_as_they_are() {
        let words = [
            r"\\nas\llama\server.exe",
            r"\\?\C:\m.gguf",
            r"D:m.gguf",
            r"C:\ends. ",
            r"C:\ends\",
        ];
        assert_eq!(
            line(Shell::Cmd, &words),
            concat!(
                r#"set "GGML_X=1"&& \\nas\llama\server.exe "\\?\C:\m.gguf" "#,
                r#"D:m.gguf "C:\ends. " C:\ends\"#
            )
        );
        assert_eq!(
            line(Shell::Powershell, &words),
            r"$env:GGML_X = '1'; & '\\nas\llama\server.exe' '\\?\C:\m.gguf' 'D:m.gguf' 'C:\ends. ' 'C:\ends\'"
        );
    }

    #[test]
    fn what_a_shell_cannot_write_is_said() {
        let refused = |shell: Shell, env: &[(&str, &str)], word: &str| {
            let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            shell
                .command(&env.collect(), &[word.to_owned()])
                .unwrap_err()
        };
        let error = refused(Shell::Cmd, &[], "a\nb");
        assert!(
            error.starts_with("the command prompt has no way"),
            "{error}"
        );
        for shell in [Shell::Cmd, Shell::Powershell] {
            let error = refused(shell, &[("GGML_X", "")], "a");
            assert!(error.contains("cannot set GGML_X to nothing"), "{error}");
        }
    }

    #[test]
    fn a_control_character_is_quoted_not_sent() {
        assert_eq!(quoted("a\u{1b}[31m'b\n"), r"$'a\x1b[31m\'b\x0a'");
    }
}
