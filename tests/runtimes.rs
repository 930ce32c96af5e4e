//! Identifying llama.cpp builds by running them and by digest (design section 4; cases C02, C10, C21).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/shell_runtime.rs"]
mod shell_runtime;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use flux::domain::types::{Backend, Bytes};
use flux::ports::Runtimes as _;
use flux::runtime::identify::{identify, text};

use shell_runtime::{
    SERVER_HELP, Says, VULKAN_DEVICES, calls, catalog, program, runtime, script, temp,
};

#[test]
fn version_lines_of_three_generations_are_read() {
    let seen = |line: &str| {
        let banner = format!(
            "ggml_vulkan: No devices found.\n{line}\nbuilt with GNU 12.2.0 for Linux x86_64\n"
        );
        text::version(&banner).map(|v| (v.release, v.number, v.commit, v.line))
    };
    let debian = "version: 0.7.0 (build 11669, commit Debian)";
    assert_eq!(
        seen(debian),
        Some((Some("0.7.0".into()), 11669, "Debian".into(), debian.into()))
    );
    let archive = "version: 0.5.0-dev (build 0, commit unknown)";
    assert_eq!(
        seen(archive),
        Some((
            Some("0.5.0-dev".into()),
            0,
            "unknown".into(),
            archive.into()
        ))
    );
    let old = "version: 6264 (abc1234)";
    assert_eq!(seen(old), Some((None, 6264, "abc1234".into(), old.into())));
    assert_eq!(seen("version: nonsense"), None);
    assert_eq!(
        seen("error: invalid parameter for argument: --version"),
        None
    );
}

#[test]
fn device_lines_are_read_also_with_brackets_in_the_name() {
    let devices = text::devices(
        "load_backend: loaded RPC backend\nAvailable devices:\n  \
         Vulkan0: AMD Radeon RX 580 2048SP (RADV POLARIS10) (8192 MiB, 7900 MiB free)\n  \
         RPC[127.0.0.1:50052]: far one (24 MiB, 12 MiB free)\n",
    );
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[0].id, "Vulkan0");
    assert_eq!(devices[0].name, "AMD Radeon RX 580 2048SP (RADV POLARIS10)");
    assert_eq!(
        (devices[0].total, devices[0].free),
        (Bytes::mib(8192), Bytes::mib(7900))
    );
    assert_eq!(devices[1].id, "RPC[127.0.0.1:50052]");
    assert_eq!(Backend::of_device(&devices[1].id), Some(Backend::Rpc));
}

#[test]
fn c02_flags_and_defaults_are_those_of_this_build() {
    let new = text::help(shell_runtime::BENCH_HELP);
    let defaults = |flag: &str| new.defaults.get(flag).map(String::as_str);
    assert_eq!(defaults("--ubatch-size"), Some("512"));
    assert_eq!(defaults("--flash-attn"), Some("auto"));
    assert_eq!(defaults("--n-gpu-layers"), Some("-1"));
    assert_eq!(defaults("--hf-repo"), Some("unused"));
    assert_eq!(defaults("--override-tensor"), Some("disabled"));
    assert_eq!(defaults("--repack"), Some("1"));
    assert!(
        !new.flags.contains("--fit-target"),
        "named in a description only"
    );

    let old = text::help(
        "  -ngl, --n-gpu-layers <n>                  (default: 99)\n  \
         -fa, --flash-attn <0|1>                   (default: 0)\n  \
         -mmp, --mmap <0|1>                        (default: 1)\n",
    );
    assert_eq!(old.defaults["--flash-attn"], "0");
    assert_eq!(old.defaults["--n-gpu-layers"], "99");
    assert!(old.flags.contains("--mmap") && !old.flags.contains("--repack"));

    let server = text::help(SERVER_HELP);
    let expected = [
        "--gpu-layers",
        "--help",
        "--kv-offload",
        "--n-gpu-layers",
        "--no-kv-offload",
        "--spec-type",
        "--usage",
    ];
    assert_eq!(server.flags, BTreeSet::from(expected.map(String::from)));
}

#[test]
fn c21_a_backend_without_a_device_is_told_from_one_with() {
    let dir = temp();
    let version =
        "ggml_vulkan: No devices found.\nversion: 0.5.0-dev (build 11149, commit d2e54583c)";
    runtime(
        dir.path(),
        &Says {
            version,
            ..Says::default()
        },
        "libggml-base.so",
        "x",
    );
    let none = identify(dir.path()).unwrap();
    assert!(none.devices.is_empty());
    assert_eq!(
        none.backends,
        BTreeSet::from([Backend::Cpu, Backend::Vulkan])
    );

    let with = temp();
    runtime(
        with.path(),
        &Says {
            devices: VULKAN_DEVICES,
            ..Says::default()
        },
        "libggml-base.so",
        "x",
    );
    let with = identify(with.path()).unwrap();
    assert_eq!(with.devices[0].name, "NVIDIA H200");
    assert_eq!(with.backends, none.backends);
}

#[test]
fn a_build_is_known_by_running_it() {
    let dir = temp();
    let bin = dir.path().join("build/bin");
    let version = "ggml_backend_load_best: failed to enumerate /usr/lib/ggml/backends0: No such file or directory\n\
                   load_backend: loaded CPU backend from /opt/x/lib/libggml-cpu-haswell.so\n\
                   version: 0.7.0 (build 11669, commit Debian)\nbuilt with GNU 16.2.0 for Linux x86_64";
    runtime(
        &bin,
        &Says {
            version,
            ..Says::default()
        },
        "libggml-cpu-haswell.so",
        "x",
    );
    program(
        &bin.join("llama-server"),
        &script(&Says {
            version,
            help: SERVER_HELP,
            ..Says::default()
        }),
    );
    let known = identify(dir.path()).unwrap();
    assert_eq!(known.name, "0.7.0-cpu");
    assert_eq!(known.dir, bin);
    assert_eq!(known.bench, Some(bin.join("llama-bench")));
    assert_eq!(known.server, Some(bin.join("llama-server")));
    assert_eq!(
        (known.build_number, known.build_commit.as_str()),
        (11669, "Debian")
    );
    assert_eq!(
        known.version_text,
        "version: 0.7.0 (build 11669, commit Debian)"
    );
    assert_eq!(known.cpu_variant.as_deref(), Some("libggml-cpu-haswell.so"));
    assert!(known.bench_flags.contains("--repack") && known.server_flags.contains("--spec-type"));
    assert_eq!(known.digest.len(), 64);
}

#[test]
fn c10_the_build_is_asked_without_inherited_switches() {
    // The switch must be in this process's environment: the test starts itself once with it set.
    if std::env::var_os("GGML_VK_ALLOW_GRAPHICS_QUEUE").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "c10_the_build_is_asked_without_inherited_switches",
            ])
            .env("GGML_VK_ALLOW_GRAPHICS_QUEUE", "0")
            .env("LLAMA_ARG_THREADS", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let dir = temp();
    runtime(dir.path(), &Says::default(), "libggml.so", "x");
    identify(dir.path()).unwrap();
    assert_eq!(
        calls(dir.path()).lines().collect::<Vec<_>>(),
        ["--version", "--help", "--list-devices"]
    );
}

#[test]
fn the_digest_is_of_the_files_that_do_the_work() {
    let dir = temp();
    let lib = dir.path().join("lib");
    runtime(dir.path(), &Says::default(), "libggml.so.0", "one");
    fs::create_dir_all(&lib).unwrap();
    fs::write(lib.join("llama-bench.bin"), "\x7fELF").unwrap();
    let first = identify(dir.path()).unwrap().digest;

    // A wrapper script, a link to a library, and text do not count.
    program(
        &dir.path().join("llama-bench"),
        &format!("{}# changed\n", script(&Says::default())),
    );
    std::os::unix::fs::symlink("libggml.so.0", dir.path().join("libggml.so")).unwrap();
    fs::write(dir.path().join("README.md"), "text").unwrap();
    assert_eq!(identify(dir.path()).unwrap().digest, first);

    // The program behind the wrapper does, and so does a backend library.
    fs::write(lib.join("llama-bench.bin"), "\x7fELFtwo").unwrap();
    let second = identify(dir.path()).unwrap().digest;
    assert_ne!(second, first);
    fs::write(dir.path().join("libggml-vulkan.so"), "\x7fELF").unwrap();
    assert_ne!(identify(dir.path()).unwrap().digest, second);
}

#[test]
fn a_packaged_build_is_its_own_libraries_and_not_those_of_others() {
    let root = temp();
    let (bin, backends) = (
        root.path().join("bin"),
        root.path().join("lib/x86_64-linux-gnu/ggml/backends0"),
    );
    program(&bin.join("llama-bench"), &script(&Says::default()));
    fs::create_dir_all(&backends).unwrap();
    fs::write(backends.join("libggml-cpu-haswell.so"), "\x7fELF").unwrap();
    let first = identify(root.path()).unwrap().digest;
    fs::write(root.path().join("lib/libz.so.1"), "\x7fELF").unwrap();
    assert_eq!(identify(root.path()).unwrap().digest, first);
    fs::write(backends.join("libggml-cpu-haswell.so"), "\x7fELFnew").unwrap();
    assert_ne!(identify(root.path()).unwrap().digest, first);
}

#[test]
fn a_refusal_is_forgotten_once_the_missing_library_is_there() {
    let home = temp();
    let (dir, library) = (home.path().join("rt"), home.path().join("libvulkan.so.1"));
    let says = script(&Says::default());
    let needs = format!(
        "[ -e '{}' ] || {{ echo 'error while loading shared libraries: libvulkan.so.1: cannot open' >&2; exit 127; }}\n",
        library.display()
    );
    program(
        &dir.join("llama-bench"),
        &says.replacen('\n', &format!("\n{needs}"), 1),
    );
    let catalog = catalog(&home.path().join("data"), std::slice::from_ref(&dir));
    let (listed, problems) = catalog.list_with_problems();
    assert!(listed.is_empty() && problems[0].headline.contains("libvulkan.so.1"));
    fs::write(&library, "").unwrap();
    assert_eq!(catalog.list().len(), 1);
}

#[test]
fn what_is_not_llama_cpp_is_refused_in_one_sentence() {
    let dir = temp();
    let missing = identify(&dir.path().join("nowhere")).unwrap_err();
    assert!(
        missing.headline.starts_with("there is no such folder: "),
        "{missing}"
    );
    let empty = identify(dir.path()).unwrap_err();
    assert!(
        empty
            .headline
            .contains("neither llama-bench nor llama-server"),
        "{empty}"
    );

    program(
        &dir.path().join("llama-bench"),
        "#!/bin/sh\necho 'hello from elsewhere'\nexit 3\n",
    );
    let other = identify(dir.path()).unwrap_err();
    assert!(
        other
            .headline
            .starts_with("not llama.cpp: run with --version"),
        "{other}"
    );
    assert!(
        other.headline.contains("hello from elsewhere") && other.headline.contains("status 3"),
        "{other}"
    );
    assert!(
        other
            .headline
            .ends_with(&dir.path().join("llama-bench").display().to_string()),
        "{other}"
    );

    let not_executable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(dir.path().join("llama-bench"), not_executable).unwrap();
    let broken = identify(dir.path()).unwrap_err();
    assert!(broken.hint.as_deref().unwrap().contains("chmod +x"));
    assert!(
        broken.headline.starts_with("llama-bench cannot be started"),
        "{broken}"
    );
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let dir = temp();
    program(
        &dir.path().join("llama-bench"),
        "#!/bin/sh\necho \"$0: error while loading shared libraries: libvulkan.so.1: cannot open shared object file: \
         No such file or directory\" >&2\nexit 127\n",
    );
    let error = identify(dir.path()).unwrap_err();
    assert!(error.headline.contains("libvulkan.so.1"), "{error}");
    assert!(error.hint.unwrap().contains("apt install libvulkan1"));

    let (why, _) = text::missing_part(
        "./llama-bench: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by libggml.so)",
    )
    .unwrap();
    assert!(why.contains("GLIBC_2.38"));
    let (why, hint) = text::missing_part(
        "llama-bench: error while loading shared libraries: libllama-common.so.0: cannot open",
    )
    .unwrap();
    assert!(why.contains("libllama-common.so.0") && hint.contains("symbolic links"));
}

#[test]
fn a_llama_bench_without_version_is_known_by_its_flags_and_its_server() {
    let dir = temp();
    let old = "error: invalid parameter for argument: --version";
    runtime(
        dir.path(),
        &Says {
            version: old,
            ..Says::default()
        },
        "libllama.so",
        "x",
    );
    assert_eq!(
        identify(dir.path()).unwrap().version_text,
        "version: unknown"
    );
    let version = "version: 4100 (54ef9cfc)";
    program(
        &dir.path().join("llama-server"),
        &script(&Says {
            version,
            help: SERVER_HELP,
            ..Says::default()
        }),
    );
    let known = identify(dir.path()).unwrap();
    assert_eq!(
        (known.name.as_str(), known.build_number),
        ("b4100-cpu", 4100)
    );
}
