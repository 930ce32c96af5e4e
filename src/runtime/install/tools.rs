//! The build tools of this machine, and stand-ins from `PyPI` where one is missing; each missing one is named with the
//! Debian package that brings it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ports::{CancelToken, PortError, PortResult};
use crate::runtime::process::{Ended, Event, Flow, Spec, Stream, run};

/// Tools answer a question about themselves within this; cold caches of a slow disk included.
const ASK_LIMIT: Duration = Duration::from_mins(1);
/// The package needs this Python.
const OLDEST_PYTHON: (u32, u32) = (3, 9);
/// Shaders of recent llama.cpp need a glslc of this year: 2023.2 fails on cooperative matrices.
const OLDEST_GLSLC: u32 = 2024;

/// Runs pip with a watcher: when Flux is killed, Linux ends pip with it, and the watcher then ends the compilers that
/// pip had started, which are in its process group. In all other ways out the group is ended by Flux itself.
const WATCHED_PIP: &str = "\
import os, runpy, signal, time
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.2)
    os.killpg(0, signal.SIGKILL)
runpy.run_module('pip', run_name='__main__', alter_sys=True)
";

/// Runs a tool; `on_line` sees both outputs as they come. A cancelled job, gentle or not, ends the tool.
pub(super) fn run_tool(
    spec: &Spec,
    cancel: &CancelToken,
    on_line: &mut dyn FnMut(&str),
) -> PortResult<Ended> {
    let ended = run(spec, cancel, &mut |event| {
        if let Event::Line(_, line) = event {
            on_line(line);
        }
        if cancel.is_cancelled() {
            Flow::Stop
        } else {
            Flow::Continue
        }
    })
    .map_err(|e| {
        PortError::caused(
            format!("a build tool cannot be started: {}", spec.program.display()),
            &e,
        )
    })?;
    if cancel.is_cancelled() {
        return Err(super::cancelled());
    }
    Ok(ended)
}

/// The program `name` in one of the folders of `path`.
pub(super) fn which(name: &str, path: &OsStr) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(&file))
        .find(|file| is_program(file))
}

fn first_of(names: &[&str], path: &OsStr) -> Option<PathBuf> {
    names.iter().find_map(|name| which(name, path))
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// A Python with pip.
pub(super) struct Python {
    program: PathBuf,
    env: BTreeMap<String, String>,
}

impl Python {
    /// The Python on `path`, or a virtual environment of it below `work` where it has no pip of its own.
    pub(super) fn find(path: &OsStr, work: &Path, cancel: &CancelToken) -> PortResult<Self> {
        let program = first_of(&["python3", "python"], path).ok_or_else(|| {
            PortError::new("building llama.cpp needs Python 3, which is not on PATH")
                .hint("Install it, on Debian and Ubuntu: `apt install python3 python3-pip`")
        })?;
        let python = Self {
            program,
            env: BTreeMap::new(),
        };
        python.check_version(cancel)?;
        if python
            .ask(&["-m", "pip", "--version"], cancel)?
            .is_success()
        {
            return Ok(python);
        }
        let venv = work.join("venv");
        let made = python.ask_os(
            &["-m".into(), "venv".into(), venv.clone().into_os_string()],
            cancel,
        )?;
        let inside = if cfg!(windows) {
            "Scripts/python.exe"
        } else {
            "bin/python"
        };
        let python = Self {
            program: venv.join(inside),
            env: BTreeMap::new(),
        };
        if made.is_success()
            && python
                .ask(&["-m", "pip", "--version"], cancel)?
                .is_success()
        {
            return Ok(python);
        }
        Err(PortError::new("building llama.cpp needs Python's pip, and this Python has neither pip nor venv")
            .hint("Install one of them, on Debian and Ubuntu: `apt install python3-pip` (or `python3-venv`)"))
    }

    fn check_version(&self, cancel: &CancelToken) -> PortResult<()> {
        let said = self.ask(&["-c", "import sys; print(*sys.version_info[:2])"], cancel)?;
        let mut numbers = said.stdout.split_whitespace().map(str::parse::<u32>);
        let version = (numbers.next(), numbers.next());
        if let (Some(Ok(major)), Some(Ok(minor))) = version
            && said.is_success()
            && (major, minor) >= OLDEST_PYTHON
        {
            return Ok(());
        }
        let (major, minor) = OLDEST_PYTHON;
        Err(PortError::new(format!(
            "building llama.cpp needs Python {major}.{minor} or later, and this one is older or broken: {}",
            self.program.display()
        )))
    }

    fn ask(&self, args: &[&str], cancel: &CancelToken) -> PortResult<Ended> {
        self.ask_os(&args.iter().map(OsString::from).collect::<Vec<_>>(), cancel)
    }

    fn ask_os(&self, args: &[OsString], cancel: &CancelToken) -> PortResult<Ended> {
        let mut spec = self.spec();
        spec.args = args.to_vec();
        spec.time_limit = Some(ASK_LIMIT);
        run_tool(&spec, cancel, &mut |_| {})
    }

    fn spec(&self) -> Spec {
        let mut spec = Spec::new(&self.program);
        spec.env = self.env.clone();
        spec
    }

    /// `pip install` with what every install here needs; temporary files stay below `temp`.
    pub(super) fn pip_install(&self, temp: &Path) -> Spec {
        let mut spec = self.spec();
        let pip: &[&str] = if cfg!(unix) {
            &["-c", WATCHED_PIP]
        } else {
            &["-m", "pip"]
        };
        spec.args = pip
            .iter()
            .chain(&["install", "--no-deps", "--no-cache-dir", "--no-input"])
            .chain(&["--disable-pip-version-check", "--no-warn-script-location"])
            .chain(&["--progress-bar", "off", "--target"])
            .map(OsString::from)
            .collect();
        for name in ["TMPDIR", "TMP", "TEMP"] {
            spec.env
                .insert(name.to_owned(), temp.to_string_lossy().into_owned());
        }
        spec
    }
}

/// What the build runs with beside Python.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// Folders before PATH.
    pub(super) path_first: Vec<PathBuf>,
    /// Environment (`CC`, `CXX`, `CMAKE_GENERATOR`, …).
    pub(super) env: BTreeMap<String, String>,
    /// Further `CMake` arguments.
    pub(super) cmake_args: Vec<String>,
    /// Requirements to take from `PyPI` first.
    pub(super) fetch: Vec<String>,
    /// The compiler is the stand-in.
    pub(super) is_zig: bool,
}

impl Toolchain {
    /// The tools on `path`; stand-ins go below `work/tools`.
    pub(super) fn find(path: &OsStr, work: &Path, make: &str, compiler: &str) -> Self {
        let mut chain = Self::default();
        // Windows: CMake finds Visual Studio by itself, and its generator brings the build tool.
        if cfg!(windows) {
            return chain;
        }
        let tools = work.join("tools");
        if first_of(&["make", "gmake"], path).is_none() {
            chain
                .env
                .insert("CMAKE_GENERATOR".to_owned(), "Ninja".to_owned());
            if which("ninja", path).is_none() {
                chain.fetch.push(make.to_owned());
                chain.path_first.push(tools.join("bin"));
            }
        }
        if first_of(&["c++", "g++", "clang++"], path).is_none() {
            chain.fetch.push(compiler.to_owned());
            chain.is_zig = true;
            chain.use_zig(work);
        }
        chain
    }

    fn use_zig(&mut self, work: &Path) {
        let bin = work.join("zig-bin");
        for (name, tool) in [("CC", "cc"), ("CXX", "c++")] {
            self.env.insert(
                name.to_owned(),
                bin.join(tool).to_string_lossy().into_owned(),
            );
        }
        for cache in ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"] {
            let dir = work.join("zig-cache").to_string_lossy().into_owned();
            self.env.insert(cache.to_owned(), dir);
        }
        for (name, tool) in [("CMAKE_AR", "ar"), ("CMAKE_RANLIB", "ranlib")] {
            self.cmake_args
                .push(format!("-D{name}={}", bin.join(tool).display()));
        }
        // Each shared library would carry its own C++ runtime, and exceptions would not cross between them.
        self.cmake_args.push("-DBUILD_SHARED_LIBS=OFF".to_owned());
        // Zig adds 100 MB of debug information to each program.
        self.cmake_args
            .push("-DCMAKE_EXE_LINKER_FLAGS=-s".to_owned());
    }
}

/// Writes the programs that make the stand-in compiler look like `cc`, `c++`, `ar` and `ranlib`.
#[cfg(unix)]
pub(super) fn write_zig(work: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let zig = work.join("tools/ziglang/zig");
    let zig = shell_words::quote(&zig.to_string_lossy()).into_owned();
    let bin = work.join("zig-bin");
    std::fs::create_dir_all(&bin)?;
    for tool in ["cc", "c++", "ar", "ranlib"] {
        let file = bin.join(tool);
        std::fs::write(&file, format!("#!/bin/sh\nexec {zig} {tool} \"$@\"\n"))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Never needed: Windows builds with Visual Studio.
#[cfg(not(unix))]
pub(super) fn write_zig(_work: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Refuses a Vulkan build whose tools are missing or known to be too old.
pub(super) fn check_vulkan(path: &OsStr, cancel: &CancelToken) -> PortResult<()> {
    const HINT: &str = "Install glslc of 2024 or later, the Vulkan headers and SPIRV-Headers, on Debian 13 and Ubuntu \
                        24.10 or later: `apt install glslc libvulkan-dev spirv-headers`; or install the CPU build";
    let glslc = which("glslc", path).ok_or_else(|| {
        PortError::new("building llama.cpp's Vulkan backend needs glslc, which is not on PATH")
            .hint(HINT)
    })?;
    let mut spec = Spec::new(&glslc);
    spec.args = vec!["--version".into()];
    spec.time_limit = Some(ASK_LIMIT);
    let mut text = String::new();
    run_tool(&spec, cancel, &mut |line| {
        text.push_str(line);
        text.push('\n');
    })?;
    match glslc_year(&text) {
        Some(year) if year < OLDEST_GLSLC => Err(PortError::new(format!(
            "building llama.cpp's Vulkan backend needs a glslc of {OLDEST_GLSLC} or later, and this one is of {year}: {}",
            glslc.display()
        ))
        .hint(HINT)),
        // A development build names no year: let it try.
        _ => Ok(()),
    }
}

/// The year in `shaderc v2023.2 v2023.2`.
fn glslc_year(text: &str) -> Option<u32> {
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("shaderc v"))?;
    version.split('.').next()?.parse().ok()
}

/// Refuses a CUDA build without NVIDIA's compiler.
pub(super) fn check_cuda(path: &OsStr) -> PortResult<()> {
    match which("nvcc", path) {
        Some(_) => Ok(()),
        None => Err(PortError::new("building llama.cpp's CUDA backend needs nvcc, which is not on PATH").hint(
            "Install NVIDIA's CUDA toolkit and put its bin folder on PATH; or install the Vulkan or CPU build",
        )),
    }
}

/// The last lines a tool printed, for the causes of a failure.
pub(super) fn last_lines(ended: &Ended, stream: Stream, count: usize) -> Vec<String> {
    let text = match stream {
        Stream::Stdout => &ended.stdout,
        Stream::Stderr => &ended.stderr,
    };
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|&l| l.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_year_of_glslc_is_read_and_a_development_build_has_none() {
        assert_eq!(
            glslc_year("shaderc v2023.2 v2023.2\nspirv-tools v2023.1\n"),
            Some(2023)
        );
        assert_eq!(glslc_year("shaderc v2024.4\nglslang 11.1.0\n"), Some(2024));
        assert_eq!(glslc_year("shaderc unknown hash\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn killing_pip_ends_what_it_started() {
        use std::io::BufRead as _;
        use std::os::unix::process::CommandExt as _;
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let pip = "import subprocess\nchild = subprocess.Popen(['tail', '-f', '/dev/null'])\n\
                   print(child.pid, flush=True)\nchild.wait()\n";
        std::fs::write(dir.path().join("pip.py"), pip).unwrap();
        let mut python = Command::new("python3")
            .args(["-c", WATCHED_PIP])
            .env("PYTHONPATH", dir.path())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = std::io::BufReader::new(python.stdout.take().unwrap());
        let mut pid = String::new();
        output.read_line(&mut pid).unwrap();
        // Its command line is not there yet: the parent goes on before the new program's arguments are set up.
        let process = format!("/proc/{}", pid.trim());
        assert!(Path::new(&process).exists());
        python.kill().unwrap();
        python.wait().unwrap();
        // Everything that holds the other end of the pipe is in the group: it closes when the last of them has ended.
        assert_eq!(output.read_line(&mut pid).unwrap(), 0);
        let command = std::fs::read_to_string(format!("{process}/cmdline"));
        assert_eq!(command.unwrap_or_default(), "");
    }

    #[cfg(unix)]
    #[test]
    fn stand_ins_are_taken_for_what_is_missing_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let work = Path::new("/work dir");
        let nothing = Toolchain::find(dir.path().as_os_str(), work, "ninja==1", "ziglang==1");
        assert_eq!(nothing.fetch, ["ninja==1", "ziglang==1"]);
        assert_eq!(nothing.env["CC"], "/work dir/zig-bin/cc");
        assert_eq!(nothing.env["CMAKE_GENERATOR"], "Ninja");
        for name in ["make", "g++"] {
            let file = dir.path().join(name);
            std::fs::write(&file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let all = Toolchain::find(dir.path().as_os_str(), work, "ninja==1", "ziglang==1");
        assert_eq!(all, Toolchain::default());
    }
}
