//! Profiles that came from elsewhere, as candidates of `flux run`.

use crate::domain::fingerprint::diff;
use crate::domain::search::Tool;
use crate::domain::text::moment;
use crate::domain::types::{Fingerprint, Launch, ModelInfo, Profile, Runtime};
use crate::engine::message::JobError;
use crate::engine::{Ports, settings};
use crate::ports::{ImportedProfile, Notice};

use super::{RunRequest, info, stale_notice};

/// Where it would be applied.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    pub model: &'a ModelInfo,
    pub runtime: &'a Runtime,
    pub fingerprint: &'a Fingerprint,
    pub simulated: bool,
}

/// The import to apply where no own profile holds, with what to say of it: one that was measured on this fingerprint,
/// else the newest, if it came after the newest own one.
///
/// # Errors
/// It was measured elsewhere and the user did not ask for that; as [`profile`].
pub(super) fn applied(
    imports: &[ImportedProfile],
    own: Option<&Profile>,
    here: Here,
    request: &RunRequest,
    ports: &Ports,
) -> Result<Option<(Profile, Notice)>, JobError> {
    if here.simulated {
        return Ok(None);
    }
    let holds = |i: &&ImportedProfile| i.profile.fingerprint.hash == here.fingerprint.hash;
    if let Some(import) = imports.iter().find(holds) {
        let notice = info("imported-profile", &words(import));
        return Ok(Some((profile(import, here, ports)?, notice)));
    }
    let newest = imports.first();
    let Some(import) = newest.filter(|i| own.is_none_or(|p| p.created_at < i.imported_at)) else {
        return Ok(None);
    };
    let notice = stale_notice(request, stale_words(import, here.fingerprint))?;
    Ok(Some((profile(import, here, ports)?, notice)))
}

/// Its settings written out for this model and build; in no session of this store.
///
/// # Errors
/// Settings that the search space does not have any more; a placement that the model has no tensors for.
fn profile(import: &ImportedProfile, here: Here, ports: &Ports) -> Result<Profile, JobError> {
    let shared = &import.profile;
    let layout = || Ok(ports.models.layout(&here.model.path)?);
    let space = ports.space.current();
    Ok(Profile {
        id: 0,
        session: 0,
        fingerprint: shared.fingerprint.hash.clone(),
        runtime_digest: shared.build.digest.clone(),
        model_digest: shared.model.digest.clone(),
        goal: shared.goal,
        server: settings::launch(&shared.settings, &space, Tool::Server, here.runtime, layout)?,
        bench: Launch::default(),
        settings: shared.settings.clone(),
        created_at: shared.created_at,
        simulated: false,
    })
}

/// What it is, in words.
fn words(import: &ImportedProfile) -> String {
    format!(
        "the profile imported {} ({}, {} goal)",
        moment(import.imported_at),
        import.profile.settings,
        import.profile.goal
    )
}

/// Why it is stale here.
fn stale_words(import: &ImportedProfile, here: &Fingerprint) -> String {
    let differs = diff(&import.profile.fingerprint, here);
    let fields: Vec<String> = differs.into_iter().map(|c| c.field).collect();
    format!(
        "{} was measured elsewhere; different here: {}",
        words(import),
        fields.join(", ")
    )
}
