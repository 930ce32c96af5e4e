//! Scripts for bash and PowerShell. Variables of llama.cpp that the caller's shell has set would change what was
//! measured: they are cleared, but for the API key.

use crate::domain::text::{powershell_quoted, quoted};

use super::{Handover, Word};

fn bash_word(word: &Word) -> String {
    match (word.in_home, word.text.as_str()) {
        (true, "") => "\"$HOME\"".to_owned(),
        (true, rest) => format!("\"$HOME\"{}", quoted(rest)),
        (false, text) => quoted(text),
    }
}

/// One argument with its value a line.
fn in_lines(words: impl Iterator<Item = (bool, String)>, separator: &str) -> String {
    let mut text = String::new();
    for (is_flag, word) in words {
        text.push_str(if is_flag { separator } else { " " });
        text.push_str(&word);
    }
    text
}

/// `-ngl`, but not `-1`.
fn is_flag(word: &Word) -> bool {
    let rest = word.text.trim_start_matches('-');
    rest.len() < word.text.len() && rest.starts_with(|c: char| c.is_ascii_alphabetic())
}

pub(super) fn bash(h: &Handover) -> String {
    let arguments = h.arguments("127.0.0.1", &h.port.to_string());
    let words = arguments.iter().map(|w| (is_flag(w), bash_word(w)));
    let env = h.env.iter();
    let env: Vec<String> = env
        .map(|(name, value)| format!("export {name}={}\n", bash_word(value)))
        .collect();
    format!(
        "#!/usr/bin/env bash\n\
         {comments}\
         # More arguments may follow on the command line. An API key comes by LLAMA_API_KEY or --api-key-file.\n\
         # llama.cpp's other variables in this shell would change what was measured.\n\
         for name in \"${{!GGML_@}}\" \"${{!LLAMA_@}}\"; do\n  \
           [ \"$name\" = LLAMA_API_KEY ] || unset \"$name\"\n\
         done\n\
         {env}\
         exec {server}{arguments} \\\n  \"$@\"\n",
        comments = h.comments("#"),
        env = env.concat(),
        server = bash_word(&h.server),
        arguments = in_lines(words, " \\\n  "),
    )
}

fn powershell_expression(word: &Word) -> String {
    if word.in_home {
        format!("($HOME + {})", powershell_quoted(&word.text))
    } else {
        powershell_quoted(&word.text)
    }
}

/// Windows PowerShell passes these on wrongly, PowerShell 7.3 as they are (`about_Parsing`).
fn needs_newer(word: &Word) -> bool {
    let text = &word.text;
    word.is_empty() || text.contains('"') || (text.ends_with('\\') && text.contains(' '))
}

pub(super) fn powershell(h: &Handover) -> Result<String, String> {
    if let Some((name, _)) = h.env.iter().find(|(_, v)| v.is_empty()) {
        return Err(format!(
            "PowerShell cannot set {name} to nothing: start the server with `flux run`"
        ));
    }
    let arguments = h.arguments("127.0.0.1", &h.port.to_string());
    let requires = if arguments.iter().any(needs_newer) {
        "#Requires -Version 7.3\n"
    } else {
        ""
    };
    let set: Vec<String> = h
        .env
        .iter()
        .map(|(name, value)| format!("    '{name}' = {}\n", powershell_expression(value)))
        .collect();
    let last = arguments.len() - 1;
    let words = arguments.iter().enumerate().map(|(at, word)| {
        let comma = if at == last { "" } else { "," };
        (
            is_flag(word),
            format!("{}{comma}", powershell_expression(word)),
        )
    });
    let text = format!(
        "{comments}{requires}\
         # More arguments may follow on the command line. An API key comes by LLAMA_API_KEY or --api-key-file.\n\
         # llama.cpp's other variables in this session would change what was measured: they are back afterwards.\n\
         $set = @{{\n{set}}}\n\
         $arguments = @({arguments}\n)\n\
         $before = @(Get-ChildItem Env: | Where-Object {{\n    \
             ($_.Name -match '^(GGML|LLAMA)_' -and $_.Name -ne 'LLAMA_API_KEY') -or $set.ContainsKey($_.Name)\n\
         }})\n\
         try {{\n    \
             $before | ForEach-Object {{ Remove-Item \"Env:$($_.Name)\" }}\n    \
             $set.GetEnumerator() | ForEach-Object {{ Set-Item \"Env:$($_.Key)\" $_.Value }}\n    \
             & {server} @arguments @args\n\
         }} finally {{\n    \
             $set.Keys | ForEach-Object {{ Remove-Item \"Env:$_\" -ErrorAction Ignore }}\n    \
             $before | ForEach-Object {{ Set-Item \"Env:$($_.Name)\" $_.Value }}\n\
         }}\n\
         exit $LASTEXITCODE\n",
        comments = h.comments("#"),
        arguments = in_lines(words, "\n    "),
        set = set.concat(),
        server = powershell_expression(&h.server),
    );
    // Windows PowerShell reads a file without a mark in the system's own code page.
    let mark = if text.is_ascii() { "" } else { "\u{feff}" };
    Ok(mark.to_owned() + &text)
}
