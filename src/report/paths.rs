//! Whose paths and names a shared file shows.

use crate::domain::redact::Redaction;
use crate::engine::evidence::Evidence;
use crate::owner;

/// How paths and names are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paths {
    /// Home folders become `~`; the names of their owners and of this machine go.
    Shortened(Redaction),
    /// As they are.
    Full,
}

impl Paths {
    /// Shortened, this user's home too.
    pub fn shortened() -> Self {
        Self::Shortened(owner::redaction())
    }

    /// The evidence with its paths as they are shown. Every text is looked at: arguments, logs and messages have paths too.
    ///
    /// # Errors
    /// As [`super::html`].
    pub(super) fn shown(&self, evidence: &Evidence) -> Result<Evidence, serde_json::Error> {
        let Self::Shortened(redaction) = self else {
            return Ok(evidence.clone());
        };
        let mut document = serde_json::to_value(evidence)?;
        let mut redaction = redaction.clone();
        redaction.learn_document(&mut document);
        let mut hidden = document.clone();
        redaction.document(&mut hidden);
        // A name may be one of the document's own words: a user called "tune".
        serde_json::from_value(hidden).or_else(|_| {
            redaction.document_with_words(&mut document);
            serde_json::from_value(document)
        })
    }

    /// The redaction that hides, with the owners of every home in the evidence; `None` where all is shown.
    pub(super) fn redaction(
        &self,
        evidence: &Evidence,
    ) -> Result<Option<Redaction>, serde_json::Error> {
        let Self::Shortened(redaction) = self else {
            return Ok(None);
        };
        let mut redaction = redaction.clone();
        redaction.learn_document(&mut serde_json::to_value(evidence)?);
        Ok(Some(redaction))
    }
}
