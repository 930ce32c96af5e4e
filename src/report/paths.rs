//! Home folders and the names of their owners, shortened to `~` before anything is written.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::engine::evidence::Evidence;

/// How paths are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paths {
    /// Home folders, and the names of their owners anywhere in a path, become `~`.
    Shortened {
        /// This user's home, where it may lie in an unusual place.
        home: Option<String>,
    },
    /// As they are.
    Full,
}

/// Folders that hold homes. Their own names are no one's.
const HOMES: [&str; 4] = ["/home/", "/Users/", "\\Users\\", "\\\\Users\\\\"];
/// Folders among the homes that belong to nobody.
const NOBODY: [&str; 4] = ["Public", "Shared", "Default", "linuxbrew"];

impl Paths {
    /// Shortened, this user's home too.
    pub fn shortened() -> Self {
        let dirs = directories::UserDirs::new();
        Self::Shortened {
            home: dirs.map(|dirs| dirs.home_dir().display().to_string()),
        }
    }

    /// The evidence with its paths as they are shown. Every text is looked at: arguments, logs and messages have paths too.
    ///
    /// # Errors
    /// As [`super::html`].
    pub(super) fn shown(&self, evidence: &Evidence) -> Result<Evidence, serde_json::Error> {
        let Self::Shortened { home } = self else {
            return Ok(evidence.clone());
        };
        let mut document = serde_json::to_value(evidence)?;
        let mut owners = BTreeSet::new();
        each_text(&mut document, &mut |text| owners.extend(owners_in(text)));
        let home = home.as_deref().map(|h| h.trim_end_matches(['/', '\\']));
        let home = home.filter(|h| h.len() > 1);
        each_text(&mut document, &mut |text| {
            *text = shortened(text, home, &owners);
        });
        serde_json::from_value(document)
    }
}

fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|v| each_text(v, change)),
        Value::Object(fields) => fields.values_mut().for_each(|v| each_text(v, change)),
        _ => {}
    }
}

/// Ends a folder's name in a path, in a log or in JSON. A space may be part of a name on Windows alone.
fn is_end(c: char, windows: bool) -> bool {
    matches!(
        c,
        '/' | '\\' | '"' | '\'' | '\n' | '\r' | ':' | ';' | ',' | ')' | ']' | '>' | '|'
    ) || (!windows && c.is_whitespace())
}

/// Whether `text` ends where a path may begin.
fn may_begin(text: &str) -> bool {
    !text
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~'))
}

/// The home folders in a text: where each begins, where its owner's name begins, and where it ends.
fn homes(text: &str) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for folder in HOMES {
        let windows = folder.contains('\\');
        for (at, _) in text.match_indices(folder) {
            let before = &text[..at];
            // The drive goes with its folder: `C:\Users\anna` is `~`.
            let drive = before
                .strip_suffix(':')
                .filter(|b| b.ends_with(|c: char| c.is_ascii_alphabetic()));
            let start = drive.map_or(at, |b| b.len() - 1);
            let name = at + folder.len();
            let end = text[name..]
                .find(|c| is_end(c, windows))
                .map_or(text.len(), |n| name + n);
            let owner = text[name..end].trim();
            if !owner.is_empty()
                && !NOBODY.contains(&owner)
                && (drive.is_some() || may_begin(before))
            {
                found.push((start, name, end));
            }
        }
    }
    found.sort_unstable();
    found
}

fn owners_in(text: &str) -> Vec<String> {
    let homes = homes(text).into_iter();
    homes
        .map(|(_, name, end)| text[name..end].trim().to_owned())
        .collect()
}

fn shortened(text: &str, home: Option<&str>, owners: &BTreeSet<String>) -> String {
    let mut shown = home.map_or_else(|| text.to_owned(), |home| without(text, home, "~"));
    for &(start, _, end) in homes(&shown).iter().rev() {
        shown.replace_range(start..end, "~");
    }
    shown = without(&shown, "/root", "~");
    for owner in owners {
        for separator in ['/', '\\'] {
            let folder = format!("{separator}{owner}");
            shown = replaced(&shown, &folder, &format!("{separator}~"), |_| true);
        }
    }
    shown
}

/// `folder` where it begins a path and ends at a folder's end.
fn without(text: &str, folder: &str, with: &str) -> String {
    replaced(text, folder, with, may_begin)
}

fn replaced(text: &str, folder: &str, with: &str, begins: impl Fn(&str) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(folder) {
        let end = at + folder.len();
        let ends = text[end..].chars().next().is_none_or(|c| is_end(c, false));
        if ends && begins(&text[..at]) {
            shown.push_str(&text[from..at]);
            shown.push_str(with);
            from = end;
        }
    }
    shown.push_str(&text[from..]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> String {
        let owners = owners_in(text).into_iter().collect();
        shortened(text, Some("/srv/people/kim"), &owners)
    }

    #[test]
    fn homes_become_a_tilde_wherever_they_stand() {
        for (text, shown) in [
            ("/home/anna/models/a.gguf", "~/models/a.gguf"),
            ("/Users/anna", "~"),
            ("-m /home/anna/a.gguf -o json", "-m ~/a.gguf -o json"),
            ("runtime=/home/anna/llama", "runtime=~/llama"),
            (r"C:\Users\Anna Berg\models\a.gguf", r"~\models\a.gguf"),
            (
                r#"{"model": "C:\\Users\\Anna\\a.gguf"}"#,
                r#"{"model": "~\\a.gguf"}"#,
            ),
            ("/root/.cache: denied", "~/.cache: denied"),
            ("/srv/people/kim/a.gguf", "~/a.gguf"),
            ("/home/anna/x and /media/anna/disk", "~/x and /media/~/disk"),
        ] {
            assert_eq!(short(text), shown);
        }
    }

    #[test]
    fn what_is_no_home_stays() {
        for text in [
            "/opt/home/llama/bin",
            "/rootfs/a",
            "/srv/people/kimberley/a",
            "/Users/Shared/a.gguf",
            "/home/",
            "no path at all",
        ] {
            assert_eq!(short(text), text);
        }
    }
}
