//! A session's profile as a file that starts a server, or that another Flux reads.

use crate::domain::handover::{
    Build, DEFAULT_PORT, Form, Handover, KIND, SharedModel, SharedProfile, Word,
};
use crate::domain::redact::Redaction;
use crate::domain::search::SearchSpace;
use crate::domain::text::{moment, setting_title, settings_phrase};
use crate::domain::types::{Backend, Profile, Runtime};
use crate::engine::evidence::Evidence;
use crate::engine::message::JobError;
use crate::engine::settings::against_stock;

use super::Story;

/// The profile a session saved last.
fn profile(evidence: &Evidence) -> Result<&Profile, JobError> {
    let id = evidence.session.id;
    let profile = evidence.profiles.first().ok_or_else(|| {
        JobError::new(
            "no-profile",
            format!("session {id} saved no profile: there is nothing to hand over"),
        )
        .hint(format!(
            "`flux show {id}` says why; `flux export {id}` writes what was measured"
        ))
    })?;
    if profile.simulated {
        let headline =
            format!("session {id} was made on an exported machine: its profile is for no real one");
        return Err(JobError::new("simulated", headline));
    }
    Ok(profile)
}

/// The profile in a form that starts a server.
///
/// # Errors
/// The session saved none, or on an exported machine; its build has no llama-server; a path that is no text, or that
/// this form has no way to say.
pub fn start(
    evidence: &Evidence,
    form: Form,
    port: Option<u16>,
    hidden: Option<&Redaction>,
) -> Result<String, JobError> {
    let profile = profile(evidence)?;
    let begun = &evidence.session.begun;
    let word = |text: &str| match hidden {
        Some(redaction) => Word::redacted(text, redaction),
        None => Word::exact(text),
    };
    let path = |path: &std::path::Path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let text = absolute.to_str().map(word);
        text.ok_or_else(|| {
            let shown = path.display();
            JobError::new(
                "path",
                format!("the path is no Unicode text, which these files are: {shown}"),
            )
        })
    };
    let server = begun.runtime.server.as_deref().ok_or_else(|| {
        JobError::new(
            "no-server",
            format!(
                "the build of session {} has no llama-server",
                evidence.session.id
            ),
        )
    })?;
    let model: Result<Vec<Word>, JobError> = begun.model.parts.iter().map(|p| path(p)).collect();
    let env = begun.runtime.environment(&profile.server.env);
    let shown = |text: String| hidden.map_or_else(|| text.clone(), |r| r.text(&text));
    let handover = Handover {
        about: about(evidence, profile).into_iter().map(shown).collect(),
        name: shown(begun.model.name.clone()),
        server: path(server)?,
        model: model?,
        args: profile.server.args.iter().map(|a| word(a)).collect(),
        env: env.iter().map(|(n, v)| (n.clone(), word(v))).collect(),
        backend: backend(profile, &begun.runtime),
        is_nvidia: begun
            .runtime
            .devices
            .iter()
            .any(|d| d.name.to_lowercase().contains("nvidia")),
        port: port.unwrap_or(DEFAULT_PORT),
    };
    let written = handover.write(form);
    written.map_err(|why| JobError::new("handover", why))
}

/// The device named by the profile, else what the build takes by itself.
fn backend(profile: &Profile, runtime: &Runtime) -> Backend {
    let args = &profile.server.args;
    let named = args.iter().position(|a| a == "-dev");
    let named = named.and_then(|at| args.get(at + 1));
    let device = named
        .map(String::as_str)
        .or_else(|| runtime.devices.first().map(|d| d.id.as_str()));
    let first = device.and_then(|d| d.split(',').next());
    first.and_then(Backend::of_device).unwrap_or(Backend::Cpu)
}

fn about(evidence: &Evidence, profile: &Profile) -> Vec<String> {
    let begun = &evidence.session.begun;
    let differs = against_stock(&profile.settings, SearchSpace::shipped());
    let stock: Vec<String> = differs
        .iter()
        .map(|d| format!("{} {}", setting_title(&d.setting), d.stock))
        .collect();
    vec![
        format!(
            "Flux profile {} of {}, {} goal: {}",
            profile.id,
            begun.model.name,
            profile.goal,
            Story::of(evidence).headline()
        ),
        format!(
            "Settings: {}; stock has: {}",
            settings_phrase(&profile.settings),
            stock.join(", ")
        ),
        format!(
            "Measured {} with llama.cpp {} (fingerprint {}): on another machine or build `flux tune` measures anew",
            moment(profile.created_at),
            begun.runtime.name,
            begun.fingerprint.short()
        ),
    ]
}

/// The profile as a document for another Flux; nobody is named in it.
///
/// # Errors
/// The session saved none, or on an exported machine.
pub fn shared(evidence: &Evidence, hidden: &Redaction) -> Result<String, JobError> {
    let profile = profile(evidence)?;
    let begun = &evidence.session.begun;
    let mut fingerprint = begun.fingerprint.clone();
    for (_, value) in &mut fingerprint.fields {
        *value = hidden.text(value);
    }
    let document = SharedProfile {
        schema: SharedProfile::SCHEMA,
        kind: KIND.to_owned(),
        flux_version: begun.flux_version.clone(),
        goal: profile.goal,
        settings: profile.settings.clone(),
        confirmed: hidden.text(&Story::of(evidence).headline()),
        created_at: profile.created_at,
        model: SharedModel {
            name: hidden.text(&begun.model.name),
            digest: profile.model_digest.clone(),
        },
        build: Build {
            number: begun.runtime.build_number,
            commit: begun.runtime.build_commit.clone(),
            digest: profile.runtime_digest.clone(),
            backends: begun.runtime.backends.clone(),
        },
        fingerprint,
    };
    Ok(document.to_json())
}
