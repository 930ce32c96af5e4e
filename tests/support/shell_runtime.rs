//! llama.cpp builds that are shell scripts beside made-up ELF files: enough to be identified, quick to make.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flux::runtime::catalog::{Catalog, Place};
use flux::runtime::install::Pins;

/// `--help` of llama-bench 0.7.0, abridged: aliases, a wrapped default, a flag without a long form.
pub const BENCH_HELP: &str = r"usage: llama-bench [options]

options:
  -h, --help
  --numa <distribute|isolate|numactl>         numa mode (default: disabled)
  -fitc, --fit-ctx <n>                        minimum ctx size for --fit-target (default: 0)

test parameters:
  -hf, -hfr, --hf-repo <user>/<model>[:quant]       Hugging Face model repository; quant is optional, case-insensitive
                                                    default to Q4_K_M, or falls back to the first file in the repo
                                                    (default: unused)
  -pg <pp,tg>                                       (default: )
  -ub, --ubatch-size <n>                            (default: 512)
  -ngl, --n-gpu-layers <n>                          (default: -1)
  -fa, --flash-attn <on|off|auto>                   (default: auto)
  -ot --override-tensor <tensor name pattern>=<buffer type>;...
                                                    (default: disabled)
  --repack <0|1>                                    (default: 1)

Multiple values can be given for each parameter by separating them with ','
";

/// `--help` of llama-server, abridged.
pub const SERVER_HELP: &str = r"----- common params -----

-h,    --help, --usage                  print usage and exit
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM (default: auto)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
--spec-type none,ngram                  type of speculative decoding, see
                                        --draft for more
";

/// What a made-up build says.
pub struct Says<'a> {
    pub version: &'a str,
    pub devices: &'a str,
    pub help: &'a str,
}

impl Default for Says<'_> {
    fn default() -> Self {
        Self {
            version: "version: 0.5.0-dev (build 11149, commit d2e54583c)",
            devices: "Available devices:\n  (none)",
            help: BENCH_HELP,
        }
    }
}

/// The script of one program; every call is noted in a file beside it, with the switches in its environment.
pub fn script(says: &Says<'_>) -> String {
    format!(
        "#!/bin/sh\n\
         {{ echo \"$1\"; env | grep -E '^(GGML|LLAMA)_'; }} >> \"$0.calls\"\n\
         case \"$1\" in\n\
         --version) cat >&2 <<'END'\n{}\nEND\n;;\n\
         --list-devices) cat <<'END'\n{}\nEND\n;;\n\
         --help) cat <<'END'\n{}\nEND\n;;\n\
         esac\n",
        says.version, says.devices, says.help
    )
}

/// Writes an executable file.
pub fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a build in `dir`: a llama-bench and a library with `content`.
pub fn runtime(dir: &Path, says: &Says<'_>, library: &str, content: &str) {
    program(&dir.join("llama-bench"), &script(says));
    fs::write(dir.join(library), format!("\x7fELF{content}")).unwrap();
}

pub fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A catalogue that looks in these folders only.
pub fn catalog(data: &Path, places: &[PathBuf]) -> Catalog {
    let places = places.iter().cloned().map(Place::Folder).collect();
    Catalog::with(data, places, Ok(Pins::default()), "".into())
}

/// How often, and how, llama-bench of a folder was run.
pub fn calls(dir: &Path) -> String {
    fs::read_to_string(dir.join("llama-bench.calls")).unwrap_or_default()
}

pub const VULKAN_DEVICES: &str =
    "Available devices:\n  Vulkan0: NVIDIA H200 (143771 MiB, 143139 MiB free)";
