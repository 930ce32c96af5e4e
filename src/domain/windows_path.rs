//! Files as programs of Windows are told of them: most open none of 260 characters or more unless its path is written in
//! the verbatim form, and llama-bench reads its arguments in the system's code page (b11149's `tools/llama-bench`, against
//! `make_utf8_argv` of llama-server's `common/arg.cpp`).

use std::path::{Path, PathBuf};

/// Most UTF-16 units of a path that every program opens: `MAX_PATH` without the zero at its end
/// (learn.microsoft.com, "Maximum Path Length Limitation").
const LONGEST: usize = 259;
/// What `SQLite` appends at most to the name of its database: `-journal`.
const LONGEST_APPENDED: usize = 8;
/// The same of the folder that a program is started in, which has no verbatim form and gets a backslash at its end.
const LONGEST_FOLDER: usize = LONGEST - 1;

/// A file as the argument of a program: on Windows in the verbatim form where it is too long for another.
pub fn argument(file: &Path) -> PathBuf {
    absolute(file)
        .and_then(|path| verbatim(&path))
        .map_or_else(|| file.to_owned(), PathBuf::from)
}

/// `SQLite` opens no file beside such a database: it knows no verbatim form for what it was given in another.
pub fn is_too_long_for_sqlite(database: &Path) -> bool {
    absolute(database).is_some_and(|path| units(&path) + LONGEST_APPENDED > LONGEST)
}

/// What llama-bench is told of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForBench {
    /// Its argument.
    pub argument: PathBuf,
    /// The folder that it must be started in.
    pub folder: Option<PathBuf>,
    /// Why it may not find the file all the same.
    pub doubt: Option<&'static str>,
}

impl ForBench {
    /// Of a model's file.
    pub fn of(file: &Path) -> Self {
        match absolute(file) {
            Some(path) if !path.is_ascii() => Self::beyond_ascii(&path),
            _ => Self {
                argument: argument(file),
                folder: None,
                doubt: None,
            },
        }
    }

    /// A name in ASCII is the same in every code page, and what stands before it the system itself knows.
    fn beyond_ascii(path: &str) -> Self {
        let (folder, name) = path.split_at(path.rfind('\\').map_or(0, |at| at + 1));
        if name.is_ascii() && units(folder) <= LONGEST_FOLDER && !is_raw(path) {
            return Self {
                argument: name.into(),
                folder: Some(folder.into()),
                doubt: None,
            };
        }
        Self {
            argument: verbatim(path).unwrap_or_else(|| path.to_owned()).into(),
            folder: None,
            doubt: Some(
                "on Windows llama-bench finds no file whose name has letters beyond ASCII: rename it",
            ),
        }
    }
}

/// On Windows alone, and of what is Unicode.
fn absolute(file: &Path) -> Option<String> {
    let path = cfg!(windows).then(|| std::path::absolute(file).ok())??;
    path.into_os_string().into_string().ok()
}

/// The verbatim form of an absolute path that is too long for another.
fn verbatim(path: &str) -> Option<String> {
    if units(path) <= LONGEST || is_raw(path) {
        return None;
    }
    Some(match path.strip_prefix(r"\\") {
        Some(share) => format!(r"\\?\UNC\{share}"),
        None => format!(r"\\?\{path}"),
    })
}

/// Nothing in it is read by Windows: it is verbatim, or a device.
fn is_raw(path: &str) -> bool {
    path.starts_with(r"\\?\") || path.starts_with(r"\\.\")
}

fn units(path: &str) -> usize {
    path.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(start: &str, length: usize) -> String {
        let name = "m".repeat(length - start.len() - ".gguf".len());
        format!("{start}{name}.gguf")
    }

    #[test]
    fn a_path_of_260_characters_is_verbatim() {
        assert_eq!(verbatim(&long(r"C:\models\", 259)), None);
        let path = long(r"C:\models\", 260);
        assert_eq!(verbatim(&path), Some(format!(r"\\?\{path}")));
        let path = long(r"\\nas\models\", 260);
        assert_eq!(verbatim(&path), Some(format!(r"\\?\UNC\{}", &path[2..])));
        for path in [r"\\?\C:\models\", r"\\.\C:\models\"] {
            assert_eq!(verbatim(&long(path, 300)), None);
        }
        // Windows counts UTF-16: 252 letters of one unit or 126 of two.
        assert_eq!(units(&format!(r"C:\{}.gg", "я".repeat(252))), 258);
        assert_eq!(units(&format!(r"C:\{}.gg", "🦙".repeat(126))), 258);
    }

    #[test]
    fn llama_bench_is_started_where_a_name_beyond_ascii_is_not_needed() {
        let of = |path: &str| {
            let told = ForBench::beyond_ascii(path);
            let text = |p: PathBuf| p.into_os_string().into_string().unwrap_or_default();
            (
                text(told.argument),
                told.folder.map(text),
                told.doubt.is_some(),
            )
        };
        assert_eq!(
            of(r"C:\Users\Jürgen\m.gguf"),
            (
                "m.gguf".to_owned(),
                Some(r"C:\Users\Jürgen\".to_owned()),
                false
            )
        );
        assert_eq!(
            of(r"\\nas\модели\m.gguf"),
            (
                "m.gguf".to_owned(),
                Some(r"\\nas\модели\".to_owned()),
                false
            )
        );
        for path in [r"C:\модель.gguf", r"\\?\C:\ü\m.gguf"] {
            assert_eq!(of(path), (path.to_owned(), None, true));
        }
        let path = format!(r"C:\{}\m.gguf", "ü".repeat(255));
        assert_eq!(of(&path), (format!(r"\\?\{path}"), None, true));
    }

    #[test]
    fn what_every_program_opens_is_told_as_it_was_given() {
        let path = Path::new("a/../model b.gguf");
        assert_eq!(argument(path), path);
        assert_eq!(ForBench::of(path).argument, path);
        let path = Path::new("модели/модель.gguf");
        assert_eq!(argument(path), path);
        assert_eq!(ForBench::of(path).doubt.is_some(), cfg!(windows));
    }
}
