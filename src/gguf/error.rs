//! What can be wrong with one GGUF file, in sentences that end before the path.

use std::io;
use std::path::Path;

use crate::ports::PortError;

/// Why a header could not be read. Positions are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The operating system refused.
    #[error("cannot read model file")]
    Io(#[source] io::Error),
    /// The file begins with something else.
    #[error("not a GGUF file ({0})")]
    NotGguf(String),
    /// GGUF v1, which llama.cpp no longer reads.
    #[error("GGUF v{0} is too old: no current llama.cpp reads it")]
    TooOld(u32),
    /// Every number is byte-swapped (case C29).
    #[error("big-endian GGUF v{0}: this machine cannot run it")]
    BigEndian(u32),
    /// A version after the newest one known.
    #[error("GGUF v{0} is newer than the v3 that Flux knows")]
    TooNew(u32),
    /// A value no writer of a sound file produces (case C34).
    #[error("corrupt GGUF: {field} at byte {at}: {why}")]
    Corrupt {
        /// What was being read.
        field: String,
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The tensor table describes more data than the file has.
    #[error("file is shorter than its tensor table says: {missing} bytes missing (download again)")]
    Short {
        /// Bytes that should follow the file's end.
        missing: u64,
    },
}

impl HeaderError {
    /// The failure of the file at `path`.
    pub fn of(self, path: &Path) -> PortError {
        let headline = format!("{self}: {}", path.display());
        match &self {
            Self::Io(error) => PortError::caused(headline, error),
            Self::NotGguf(_) => {
                PortError::new(headline).hint("give a llama.cpp model, a file that ends in .gguf")
            }
            Self::TooOld(_) | Self::BigEndian(_) => {
                PortError::new(headline).hint("download a current little-endian GGUF of this model")
            }
            Self::TooNew(_) => PortError::new(headline).hint("update Flux"),
            Self::Corrupt { .. } | Self::Short { .. } => {
                PortError::new(headline).hint("download the file again")
            }
        }
    }
}

/// What went wrong below the level where the field has a name.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    Bad { at: u64, why: String },
}

impl Fault {
    pub(super) fn bad(at: u64, why: impl Into<String>) -> Self {
        Self::Bad {
            at,
            why: why.into(),
        }
    }

    /// The same fault in the named field.
    pub(super) fn field(self, name: impl Into<String>) -> HeaderError {
        match self {
            Self::Io(error) => HeaderError::Io(error),
            Self::Bad { at, why } => HeaderError::Corrupt {
                field: name.into(),
                at,
                why,
            },
        }
    }
}

/// A name from the file, fit for one line of a message.
pub(super) fn shown(name: &str) -> String {
    /// Letters shown; real names are shorter.
    const MOST: usize = 80;
    let mut out: String = name.escape_debug().take(MOST).collect();
    if name.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

/// A field with a wrong value.
pub(super) fn corrupt(field: impl Into<String>, at: u64, why: impl Into<String>) -> HeaderError {
    Fault::bad(at, why).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_on_one_short_line() {
        assert_eq!(shown("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
        assert_eq!(shown("a\n\u{1b}[31m"), "a\\n\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(81)), format!("{}…", "x".repeat(80)));
    }
}
