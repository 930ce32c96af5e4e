//! Who may use the server that `flux run` starts, and what the user's own arguments change.

use crate::domain::doctor::settings_file;
use crate::domain::server_args::{
    LOOPBACK, check_address, checked_host, contradictions, reached_by,
};
use crate::domain::types::{Launch, LlamaConfig};
use crate::engine::message::{JobError, USAGE};
use crate::ports::{Notice, NoticeLevel};

use super::RunRequest;

/// Address and key file as llama-server's arguments. The address is passed also where it is today's default: a
/// configuration file of llama.cpp's own may say another.
///
/// # Errors
/// A secret among the user's own arguments; an address there that other machines reach, or a second one.
pub(super) fn arguments(request: &RunRequest) -> Result<Vec<String>, JobError> {
    let access = &request.access;
    let given = checked_host(&request.extra)
        .map_err(|e| JobError::new(USAGE, e.to_string()).hint(e.hint()))?;
    if given.is_some() && access.host.is_some() {
        return Err(
            JobError::new(USAGE, "--host is given twice, before and after the --")
                .hint("leave out the second"),
        );
    }
    if let Some(host) = &access.host {
        check_address(host).map_err(|e| JobError::new(USAGE, e.to_string()).hint(e.hint()))?;
    }
    let mut args = Vec::new();
    if given.is_none() {
        let host = access.host.as_deref().unwrap_or(LOOPBACK);
        args.extend(["--host".to_owned(), host.to_owned()]);
    }
    if let Some(file) = &access.api_key_file {
        args.extend(["--api-key-file".to_owned(), file.display().to_string()]);
    }
    Ok(args)
}

/// Who else reaches the server; `None` where this machine alone does.
pub(super) fn reachable(request: &RunRequest) -> Option<Notice> {
    let access = &request.access;
    let who = access.host.as_deref().and_then(reached_by)?;
    let given = |flag: &str| request.extra.iter().any(|w| w == flag);
    let has_key = access.key_in_env || access.api_key_file.is_some() || given("--api-key-file");
    let how = match (has_key, given("--ssl-key-file")) {
        (true, true) => "with an API key",
        (true, false) => "with an API key, which travels unencrypted as every request does",
        (false, _) => "without an API key: set LLAMA_API_KEY, or name a file with --api-key-file",
    };
    Some(warning(
        "reachable",
        format!("{who} can use this server {how}"),
    ))
}

/// Which of the user's own arguments win over what was measured.
pub(super) fn contradicted(request: &RunRequest, launch: &Launch) -> Vec<Notice> {
    contradictions(&launch.args, &request.extra)
        .into_iter()
        .map(|text| warning("overrides-profile", text))
        .collect()
}

/// Settings files that the server reads beside its arguments, which win where both speak.
pub(super) fn also_read(configs: &[LlamaConfig]) -> Vec<Notice> {
    let told = configs.iter().filter_map(settings_file);
    told.map(|found| warning("llama-config", found.title))
        .collect()
}

fn warning(code: &str, text: String) -> Notice {
    Notice {
        level: NoticeLevel::Warning,
        code: code.to_owned(),
        text,
    }
}
