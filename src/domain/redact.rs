//! Who somebody is, taken out of what is shared: home folders become `~`, the names of their owners and of the machine go.

use std::collections::BTreeSet;

use serde_json::Value;

/// Folders that hold homes. Their own names are no one's.
const HOMES: [&str; 4] = ["/home/", "/Users/", "\\Users\\", "\\\\Users\\\\"];
/// Folders among the homes that belong to nobody.
const NOBODY: [&str; 4] = ["Public", "Shared", "Default", "linuxbrew"];
/// Names that tell of nobody, and words that texts of llama.cpp are full of: they stay.
const NO_NAMES: [&str; 18] = [
    "admin",
    "administrator",
    "cpu",
    "cuda",
    "debian",
    "default",
    "docker",
    "flux",
    "gpu",
    "home",
    "llama",
    "localhost",
    "model",
    "root",
    "runner",
    "ubuntu",
    "user",
    "vulkan",
];
/// Shorter names are parts of too many words.
const SHORTEST_NAME: usize = 3;
/// What stands for the machine.
const MACHINE: &str = "(this machine)";

/// What is hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    home: Option<String>,
    owners: BTreeSet<String>,
    machines: BTreeSet<String>,
}

impl Redaction {
    /// Hides this home, this user and this machine; each as far as it is known.
    pub fn new(home: Option<&str>, user: Option<&str>, machine: Option<&str>) -> Self {
        let home = home.map(|h| h.trim_end_matches(['/', '\\']));
        let home = home.filter(|h| h.len() > 1).map(str::to_owned);
        let name = |name: &str| (!is_nobodys(name)).then(|| name.to_owned());
        let last = home
            .as_deref()
            .and_then(|h| h.rsplit(['/', '\\']).next())
            .filter(|_| home.as_deref() != Some("/root"));
        // Of `box.example.org` the first part is the machine's name too.
        let machines = machine
            .into_iter()
            .flat_map(|m| [m, m.split('.').next().unwrap_or(m)]);
        Self {
            owners: user.into_iter().chain(last).filter_map(name).collect(),
            machines: machines.filter_map(name).collect(),
            home,
        }
    }

    /// Hides the owners of the homes in a text too.
    pub fn learn(&mut self, text: &str) {
        self.owners.extend(owners_in(text));
    }

    /// The rest of a path below a home folder, from its separator on; `None` elsewhere.
    pub fn in_home<'t>(&self, path: &'t str) -> Option<&'t str> {
        let own = self.home.as_deref().and_then(|h| path.strip_prefix(h));
        let at_end = |rest: &&str| rest.is_empty() || rest.starts_with(['/', '\\']);
        own.filter(at_end).or_else(|| {
            let (start, _, end) = homes(path).into_iter().next()?;
            (start == 0).then(|| &path[end..]).filter(at_end)
        })
    }

    /// A text without what tells who and where.
    pub fn text(&self, text: &str) -> String {
        let mut shown = self
            .home
            .as_deref()
            .map_or_else(|| text.to_owned(), |home| without(text, home, "~"));
        for &(start, _, end) in homes(&shown).iter().rev() {
            shown.replace_range(start..end, "~");
        }
        shown = without(&shown, "/root", "~");
        // The longest first: `anna-box` before `anna`.
        let mut names: Vec<(&str, &str)> = self
            .machines
            .iter()
            .map(|m| (m.as_str(), MACHINE))
            .collect();
        names.extend(self.owners.iter().map(|o| (o.as_str(), "~")));
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, with) in names {
            shown = if is_nobodys(name) {
                in_paths(&shown, name)
            } else {
                words(&shown, name, with)
            };
        }
        shown
    }

    /// Every text of a document, and the names of its fields where they are paths.
    pub fn document(&self, document: &mut Value) {
        each_text(document, &mut |text| *text = self.text(text));
    }

    /// As [`Self::document`], but a text that is a name and nothing else stays: it may be a word of the document's own.
    pub fn document_with_words(&self, document: &mut Value) {
        each_text(document, &mut |text| {
            let is_word = text.chars().all(|c| c.is_ascii_alphanumeric());
            if !is_word {
                *text = self.text(text);
            }
        });
    }

    /// Hides the owners of every home that a document names.
    pub fn learn_document(&mut self, document: &mut Value) {
        each_text(document, &mut |text| self.learn(text));
    }
}

fn is_nobodys(name: &str) -> bool {
    name.chars().count() < SHORTEST_NAME || NO_NAMES.iter().any(|n| n.eq_ignore_ascii_case(name))
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

/// An owner's name as a folder anywhere in a path.
fn in_paths(text: &str, name: &str) -> String {
    let mut shown = text.to_owned();
    for separator in ['/', '\\'] {
        let folder = format!("{separator}{name}");
        shown = replaced(&shown, &folder, &format!("{separator}~"), |_| true);
    }
    shown
}

/// A name as a whole word.
fn words(text: &str, name: &str, with: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(name) {
        let end = at + name.len();
        let before = text[..at].chars().next_back();
        let after = text[end..].chars().next();
        let is_whole = ![before, after]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric);
        if is_whole && at >= from {
            shown.push_str(&text[from..at]);
            shown.push_str(with);
            from = end;
        }
    }
    shown.push_str(&text[from..]);
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
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    use super::*;

    fn short(text: &str) -> String {
        let mut redaction =
            Redaction::new(Some("/srv/people/kim"), Some("kim"), Some("kims-box.lan"));
        redaction.learn(text);
        redaction.text(text)
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

    #[test]
    fn names_go_wherever_they_are_a_word_of_their_own() {
        for (text, shown) in [
            (
                "denied for kim: run as kim@kims-box.lan",
                "denied for ~: run as ~@(this machine)",
            ),
            (
                "host kims-box, rpc kims-box:50052",
                "host (this machine), rpc (this machine):50052",
            ),
            ("/data/kim/a.gguf kimono", "/data/~/a.gguf kimono"),
            ("kim", "~"),
        ] {
            assert_eq!(short(text), shown);
        }
        let root = Redaction::new(Some("/root"), Some("root"), Some("localhost"));
        assert_eq!(
            root.text("root of localhost at /root/a"),
            "root of localhost at ~/a"
        );
    }

    #[test]
    fn what_lies_in_a_home_is_told_from_what_does_not() {
        let redaction = Redaction::new(Some("/srv/people/kim/"), None, None);
        assert_eq!(
            redaction.in_home("/srv/people/kim/a b.gguf"),
            Some("/a b.gguf")
        );
        assert_eq!(redaction.in_home("/home/anna/x"), Some("/x"));
        assert_eq!(redaction.in_home(r"C:\Users\Anna Berg\x"), Some(r"\x"));
        for path in [
            "/srv/people/kimberley/a",
            "/opt/home/anna/x",
            "a /home/anna/x",
        ] {
            assert_eq!(redaction.in_home(path), None, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_failure_persistence(FileFailurePersistence::WithSource("seeds")))]

        /// Wherever user, home and machine stand, none of them survives, in a text or in a document.
        #[test]
        fn nobody_is_named(
            user in "[A-Z]?[a-z]{4,9}([._-][a-z]{2,5})?",
            machine in "[a-z]{3,8}-[0-9]{2,4}",
            form in 0usize..5,
            before in "[ :=\"'(,;>/]?",
            after in "[ :\"'),;\n]?",
            tail in "(/[A-Z0-9_ ]{1,8}){0,3}",
        ) {
            prop_assume!(!is_nobodys(&user));
            let home = match form {
                0 => format!("/home/{user}"),
                1 => format!("/Users/{user}"),
                2 => format!("C:\\Users\\{user}"),
                3 => format!("/srv/PEOPLE/{user}"),
                _ => format!("/mnt/{user}/HOME"),
            };
            let redaction = Redaction::new(Some(&home), Some(&user), Some(&machine));
            let text = format!(
                "X{before}{home}{tail}{after} {user}@{machine}: /media/{user}/DISK{tail}, {machine}.lan [{user}]"
            );
            let shown = redaction.text(&text);
            for secret in [&user, &machine, &home] {
                prop_assert!(!shown.contains(secret.as_str()), "{secret} in {shown}");
            }
            let mut document = serde_json::json!({"a": [text, {"b": user}], "c": home});
            redaction.document(&mut document);
            let written = document.to_string();
            prop_assert!(!written.contains(&user) && !written.contains(&machine), "{written}");
        }
    }
}
