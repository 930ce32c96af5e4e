//! Placeholder until merged.

use super::Ports;
use super::job::{Ended, JobContext};
use super::message::AbRequest;
use super::message::JobError;
/// x
/// # Errors
/// x
pub fn perform(
    _r: &AbRequest,
    _p: &Ports,
    _c: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    Err(JobError::new("x", "not merged yet").into())
}
