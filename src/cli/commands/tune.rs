//! `flux tune`: search and confirm.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::args::{Tune, Workload};
use crate::cli::error::{CliError, CliResult};
use crate::cli::job::Jobs;
use crate::cli::output::{Output, print, print_json};
use crate::cli::render::tune::Context;
use crate::cli::render::{plan, tune};
use crate::engine::Ports;
use crate::engine::message::{Command, TuneRequest};
use crate::engine::prepare;
use crate::engine::resume::resumable;
use crate::ports::SessionKind;

use super::open::Place;

/// Tunes, or says what would be tried.
///
/// # Errors
/// As the job; nothing to resume.
pub fn run(args: Tune, place: &Place, output: &Output) -> CliResult {
    let dry = args.dry_run;
    let ports = if dry {
        place.look_as(&args.machine, output)?
    } else {
        place.measure(&args.machine, output)?
    };
    let request = request(args, &ports)?;
    if dry {
        let document = prepare::dry_run(&request, &ports)?;
        for notice in &document.notices {
            output.notice(notice);
        }
        return output.print_either(&document, || plan::dry_run(&document, output.style));
    }
    let mut jobs = Jobs::start(ports);
    let said = Said {
        model: request.model.clone(),
        runtime: request.runtime.clone(),
        data_dir: place.data_dir().map(Path::to_owned),
    };
    let document = jobs.run(Command::Tune(request), output)?;
    print_result(document, &said, output)
}

/// What the user said that the next command must repeat.
pub struct Said {
    /// The model.
    pub model: PathBuf,
    /// `--runtime`.
    pub runtime: Option<String>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
}

impl Said {
    /// Calls `text` with what a result's text needs.
    pub fn in_context(&self, output: &Output, text: impl FnOnce(Context) -> String) -> String {
        let data_dir = self.data_dir.as_ref().map(|d| d.display().to_string());
        text(Context {
            model: &self.model.display().to_string(),
            runtime: self.runtime.as_deref(),
            data_dir: data_dir.as_deref(),
            style: output.style,
        })
    }
}

/// Prints a result document of `tune`.
///
/// # Errors
/// stdout cannot be written.
pub fn print_result(document: Value, said: &Said, output: &Output) -> CliResult {
    if output.json {
        return print_json(&document);
    }
    let document = serde_json::from_value(document)?;
    print(&said.in_context(output, |context| tune::result(&document, context)))
}

fn request(args: Tune, ports: &Ports) -> CliResult<TuneRequest> {
    let (model, resume) = match args.resume {
        None => (args.model, None),
        Some(session) => {
            let (model, session) = resumable(SessionKind::Tune, session, args.model, ports)?;
            (Some(model), Some(session))
        }
    };
    let model = model.ok_or_else(|| CliError::usage("a model is needed: -m FILE"))?;
    let Workload {
        runtime,
        device,
        goal,
        reps,
        processes,
        prompt_tokens,
        gen_tokens,
        depth,
    } = args.workload;
    Ok(TuneRequest {
        model,
        runtime,
        device,
        goal: goal.into(),
        request_shape: args.request,
        allow_kv_quant: args.allow_kv_quant,
        repetitions: reps,
        processes,
        max_processes: Some(args.max_processes),
        time_limit_secs: args.time_limit,
        only: args.only,
        placement: args.placement,
        prompt_tokens,
        generated_tokens: gen_tokens,
        depth,
        memory_reserve: None,
        resume,
        save: true,
    })
}
