//! The settings files that llama.cpp's tools read at their start, before variables and arguments (b11149:
//! `common/arg.cpp`, `docs/preset.md`; llama-server and llama-fit-params do, llama-bench does not): what is in one there
//! is no llama.cpp default, and changes what "stock" means.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::types::{ConfigReach, LlamaConfig};

/// Path of either file below its folder.
const FILE: [&str; 2] = ["llama.cpp", "config.ini"];
/// Sections every tool reads: what stands before any header, and what is for all.
const COMMON: [&str; 2] = [DEFAULT, "*"];
const DEFAULT: &str = "default";
/// Reserved by llama.cpp, no setting.
const VERSION: &str = "version";

/// Where the files are, that of the whole system first. `variable` tells a variable of the environment.
pub fn places(
    is_windows: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(ConfigReach, PathBuf)> {
    let folder = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let (system, user) = if is_windows {
        (folder("PROGRAMDATA"), folder("APPDATA"))
    } else {
        let below_home = || Some(folder("HOME")?.join(".config"));
        let user = folder("XDG_CONFIG_HOME").or_else(below_home);
        (Some(PathBuf::from("/etc")), user)
    };
    let system = system.map(|dir| (ConfigReach::System, dir));
    let user = user.map(|dir| (ConfigReach::User, dir));
    let files = system.into_iter().chain(user);
    files
        .map(|(reach, dir)| (reach, dir.join(FILE[0]).join(FILE[1])))
        .collect()
}

/// Variables that lead a child away from the user's own file (Windows: from both), to where nothing can be.
/// On Unix the file of the whole system cannot be turned off.
pub const fn away(is_windows: bool) -> &'static [(&'static str, &'static str)] {
    if is_windows {
        &[("APPDATA", "NUL"), ("PROGRAMDATA", "NUL")]
    } else {
        &[("XDG_CONFIG_HOME", "/dev/null")]
    }
}

/// What a file says, by llama.cpp's own grammar (`common/preset.cpp`).
pub fn read(reach: ConfigReach, path: PathBuf, text: &str) -> LlamaConfig {
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut section = DEFAULT;
    let mut bad_line = None;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let bare = line.trim_start_matches([' ', '\t']);
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some((name, rest)) = line.strip_prefix('[').and_then(|l| l.split_once(']'))
            && !name.is_empty()
            && is_end(rest)
        {
            section = name.trim_start();
            // A section that comes again replaces what it held.
            sections.insert(section, Vec::new());
        } else if let Some(key) = key(line) {
            let keys = sections.entry(section).or_default();
            if key != VERSION && !keys.iter().any(|known| known == key) {
                keys.push(key.to_owned());
            }
        } else {
            bad_line = Some(number);
            break;
        }
    }
    let mut keys: Vec<String> = Vec::new();
    for key in COMMON
        .iter()
        .filter_map(|name| sections.remove(name))
        .flatten()
    {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    LlamaConfig {
        reach,
        path,
        keys,
        bad_line,
    }
}

/// Nothing but space and a comment.
fn is_end(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', '\t']);
    rest.is_empty() || rest.starts_with(['#', ';'])
}

/// The key of `key = value`, which begins its line.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim_end_matches([' ', '\t']);
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && key.chars().all(is_word)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> LlamaConfig {
        read(ConfigReach::User, PathBuf::from("c"), text)
    }

    #[test]
    fn the_keys_of_the_common_sections_are_read() {
        let text = "# mine\ntemp = 0.3\nversion = 1\n[*] ; all\nubatch-size=77\ntemp = 1\n\n[default]\n\
                    ctx-size = 1111 # long\n[some-model:Q8_0]\nbatch-size = 99\n";
        // "default" comes again and replaces `temp` of the lines before any header; that of [*] stays.
        assert_eq!(of(text).keys, ["ctx-size", "ubatch-size", "temp"]);
        assert_eq!(of(text).bad_line, None);
        assert_eq!(of("").keys, [""; 0]);
        assert_eq!(
            of("LLAMA_ARG_CTX_SIZE = 5\r\n").keys,
            ["LLAMA_ARG_CTX_SIZE"]
        );
    }

    #[test]
    fn the_line_that_llama_cpp_stops_at_is_named() {
        for (text, line) in [
            ("temp = 1\n  indented = 2\n", 2),
            ("just words\n", 1),
            ("[]\n", 1),
            ("[open\n", 1),
            ("ok = 1\n[a] b\n", 2),
            ("1st = 2\n", 1),
        ] {
            assert_eq!(of(text).bad_line, Some(line), "{text:?}");
        }
    }

    #[test]
    fn places_are_those_of_the_source() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = pairs.iter().find(|(n, _)| *n == name);
                found.map(|(_, v)| OsString::from(v))
            }
        };
        let paths = |is_windows, pairs| -> Vec<PathBuf> {
            let places = places(is_windows, env(pairs));
            places.into_iter().map(|(_, path)| path).collect()
        };
        let unix = paths(false, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "")]);
        assert_eq!(
            unix,
            [
                "/etc/llama.cpp/config.ini",
                "/h/.config/llama.cpp/config.ini"
            ]
            .map(PathBuf::from)
        );
        let own = paths(false, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]);
        assert_eq!(own[1], PathBuf::from("/x/llama.cpp/config.ini"));
        assert_eq!(paths(false, &[]).len(), 1);
        let windows = paths(true, &[("PROGRAMDATA", "P"), ("APPDATA", "A")]);
        let below = |dir: &str| PathBuf::from(dir).join("llama.cpp").join("config.ini");
        assert_eq!(windows, [below("P"), below("A")]);
    }
}
