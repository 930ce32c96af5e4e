//! Server-sent events, as bytes come (WHATWG HTML, section 9.2): the data of each event, within fixed limits.

use serde_json::Value as Json;

use crate::domain::types::Failure;

use super::completion::unreadable;

/// Longest event, bytes: one with a hundred log-probabilities has a tenth of it.
const MAX_EVENT: usize = 1024 * 1024;
/// Longest answer, bytes: 262,144 tokens at the 250 bytes of an event, and as much again.
const MAX_BODY: usize = 128 * 1024 * 1024;
/// Said instead of an event when a stream of `/v1/chat/completions` is over.
const DONE: &str = "[DONE]";

/// Splits a stream into events.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: String,
    read: usize,
}

impl Events {
    /// Takes the next bytes and hands over the events they end, parsed.
    ///
    /// # Errors
    /// An event that is no JSON, or a limit is passed; what came before it was handed over.
    pub fn bytes(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Json) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.read = self.read.saturating_add(bytes.len());
        if self.read > MAX_BODY {
            return Err(unreadable("it does not end"));
        }
        for &byte in bytes {
            if byte == b'\n' {
                self.line_ended(each)?;
            } else {
                self.line.push(byte);
                if self.line.len() + self.data.len() > MAX_EVENT {
                    return Err(unreadable("one of its events does not end"));
                }
            }
        }
        Ok(())
    }

    fn line_ended(
        &mut self,
        each: &mut dyn FnMut(Json) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        if line.is_empty() {
            return self.event_ended(each);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                Ok(())
            }
            // Some builds say an error under a name of its own.
            "error" => {
                self.data = format!("{{\"error\":{value}}}");
                Ok(())
            }
            "" | "event" | "id" | "retry" => Ok(()),
            _ => Err(unreadable("it is no stream of events")),
        }
    }

    fn event_ended(
        &mut self,
        each: &mut dyn FnMut(Json) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() || data == DONE {
            return Ok(());
        }
        let event =
            serde_json::from_str(&data).map_err(|_| unreadable("one of its events is no JSON"))?;
        each(event)
    }
}
