//! Every form read back by a reader that is not ours: crates for INI and YAML, and the rules of each manual written anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Value, json};

use crate::domain::redact::Redaction;
use crate::domain::text::is_unseen;
use crate::domain::types::Backend;

use super::document::tests::shared;
use super::{Form, Handover, Word};

/// Words that have broken quoting somewhere.
const ODD: [&str; 12] = [
    "/opt/llama cpp/llama-server",
    "/m/it's a \"model\".gguf",
    "/m/$HOME and ${PATH} $$.gguf",
    "/m/100%h %%.gguf",
    "/m/back\\slash\\",
    "/m/Größe 模型 🦙.gguf",
    "/m/a;b#c&d|e>f.gguf",
    "^blk\\.(0|1)\\.(ffn_down)$=CPU",
    "{\"a\": \"b\"}",
    "-1",
    "/m/`id`$(id).gguf",
    "~/not home",
];

/// What the profile has llama-server start with.
const ARGS: [&str; 13] = [
    "-ngl",
    "24",
    "-ot",
    ODD[7],
    "-c",
    "16384",
    "-nkvo",
    "--fit",
    "off",
    "--ubatch-size",
    "1024",
    "--flash-attn",
    "on",
];

fn handover(server: &str, model: &str) -> Handover {
    Handover {
        about: vec!["Flux profile 4 of Tiny\u{1b}[2J, generation goal: +12 %\n$(id)".to_owned()],
        name: "Tiny Model: 270M [it]".to_owned(),
        server: Word::exact(server),
        model: vec![Word::exact(model)],
        args: ARGS.map(Word::exact).to_vec(),
        env: BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), Word::exact("1"))]),
        backend: Backend::Vulkan,
        is_nvidia: false,
        port: 8080,
    }
}

fn plain() -> Handover {
    handover("/opt/llama/llama-server", "/models/tiny.gguf")
}

/// llama-server's words, as every form must start it.
fn expected(server: &str, model: &str, port: &str) -> Vec<String> {
    let mut words = vec![
        server,
        "--model",
        model,
        "--host",
        "127.0.0.1",
        "--port",
        port,
    ];
    words.extend(ARGS);
    words.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_form_of_a_plain_profile() {
    for (name, form) in [
        ("bash", Form::Bash),
        ("powershell", Form::Powershell),
        ("preset", Form::Preset),
        ("llama-swap", Form::LlamaSwap),
        ("systemd", Form::Systemd),
        ("compose", Form::Compose),
    ] {
        insta::assert_snapshot!(name, plain().write(form).unwrap());
    }
}

#[test]
fn with_the_home_left_to_the_reader_every_form_names_nobody() {
    let redaction = Redaction::new(Some("/home/anna"), Some("anna"), Some("annas-box"));
    let word = |text: &str| Word::redacted(text, &redaction);
    let mut h = plain();
    h.server = word("/home/anna/llama cpp/llama-server");
    h.model = vec![
        word("/home/anna/tiny.gguf"),
        word("/media/anna/disk/part 2.gguf"),
    ];
    h.env.insert("GGML_X".to_owned(), word("/home/anna"));
    for (form, server) in [
        (Form::Bash, "exec \"$HOME\"'/llama cpp/llama-server'"),
        (Form::Powershell, "& ($HOME + '/llama cpp/llama-server')"),
        (Form::Preset, "model = ~/tiny.gguf"),
        (
            Form::LlamaSwap,
            r#"cmd: "\"${env.HOME}\"'/llama cpp/llama-server'"#,
        ),
        (
            Form::Systemd,
            "ExecStart=\"%h/llama cpp/llama-server\" --model %h/tiny.gguf",
        ),
        (Form::Compose, "source: \"${HOME}/tiny.gguf\""),
    ] {
        let text = h.write(form).unwrap();
        assert!(text.contains(server), "{text}");
        assert!(!text.contains("anna"), "{text}");
    }
}

/// `about_Quoting_Rules`: within single quotes only a doubled single quote, typographic ones too, means anything.
fn powershell_strings(text: &str) -> Vec<String> {
    const QUOTES: [char; 5] = ['\'', '\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}'];
    let mut strings = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !QUOTES.contains(&c) {
            continue;
        }
        let mut string = String::new();
        while let Some(c) = chars.next() {
            if QUOTES.contains(&c) {
                if !chars.peek().is_some_and(|n| QUOTES.contains(n)) {
                    break;
                }
                chars.next();
            }
            string.push(c);
        }
        strings.push(string);
    }
    strings
}

#[test]
fn powershell_reads_every_word_back() {
    for server in ODD {
        let text = handover(server, "/m/it’s.gguf")
            .write(Form::Powershell)
            .unwrap();
        let start = text.find("$arguments = ").unwrap();
        let end = text.find("$before = ").unwrap();
        let words = expected(server, "/m/it’s.gguf", "8080");
        assert_eq!(powershell_strings(&text[start..end]), words[1..]);
        let call = text
            .lines()
            .find(|l| l.trim_start().starts_with("& "))
            .unwrap();
        assert_eq!(powershell_strings(call), [server]);
        assert!(
            text.starts_with('\u{feff}'),
            "Windows PowerShell must see UTF-8"
        );
    }
    let quotes = handover("/s", "/m/a\"b.gguf")
        .write(Form::Powershell)
        .unwrap();
    assert!(quotes.contains("#Requires -Version 7.3\n"));
    assert!(plain().write(Form::Powershell).unwrap().is_ascii());
    let mut empty = plain();
    empty.env.insert("GGML_X".to_owned(), Word::exact(""));
    let error = empty.write(Form::Powershell).unwrap_err();
    assert!(error.contains("cannot set GGML_X to nothing"), "{error}");
}

#[test]
fn a_preset_reads_back_and_refuses_what_it_cannot_say() {
    for model in [
        "/m/it's a \"model\" 100% $HOME 模型.gguf",
        "C:\\m\\a b.gguf",
    ] {
        let text = handover("/s", model).write(Form::Preset).unwrap();
        // Nothing is escaped in llama.cpp's grammar.
        let option = ini::ParseOption {
            enabled_quote: false,
            enabled_escape: false,
            ..ini::ParseOption::default()
        };
        let file = ini::Ini::load_from_str_opt(&text, option).unwrap();
        assert_eq!(file.general_section().get("version"), Some("1"));
        let section = file.section(Some("tiny-model-270m-it")).unwrap();
        let read: Vec<(&str, &str)> = section.iter().collect();
        assert_eq!(
            read,
            [
                ("model", model),
                ("ngl", "24"),
                ("ot", ODD[7]),
                ("c", "16384"),
                ("nkvo", "true"),
                ("fit", "off"),
                ("ubatch-size", "1024"),
                ("flash-attn", "on"),
            ]
        );
    }
    for model in ["/m/a;b", "/m/a#b", "/m/a\nb", "/m/a "] {
        let error = handover("/s", model).write(Form::Preset).unwrap_err();
        assert!(error.starts_with("a preset file has no way"), "{error}");
    }
    let mut twice = plain();
    twice.args.extend(["-ub", "256"].map(Word::exact));
    let text = twice.write(Form::Preset).unwrap();
    assert!(
        text.contains("\nub = 256\n") && !text.contains("ubatch-size"),
        "the last counts"
    );
}

fn yaml(text: &str) -> Value {
    serde_norway::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn llama_swap_reads_every_word_back() {
    for odd in ODD.iter().filter(|w| !w.contains("${")) {
        let text = handover(odd, odd).write(Form::LlamaSwap).unwrap();
        let model = &yaml(&text)["models"]["tiny-model-270m-it"];
        let command = model["cmd"].as_str().unwrap().replace("${PORT}", "5800");
        let words = shell_words::split(&command).unwrap();
        if odd.starts_with("^blk") || odd.starts_with('{') {
            assert_eq!(words[0], *odd);
        }
        assert_eq!(words, expected(odd, odd, "5800"));
        assert_eq!(model["proxy"], "http://127.0.0.1:${PORT}");
        assert_eq!(model["env"], json!(["GGML_VK_ALLOW_GRAPHICS_QUEUE=1"]));
    }
    let windows = handover(r"C:\llama cpp\llama-server.exe", r"D:\a b\").write(Form::LlamaSwap);
    let text = windows.unwrap();
    let command = yaml(&text)["models"]["tiny-model-270m-it"]["cmd"].clone();
    let start = r#""C:\llama cpp\llama-server.exe" "--model" "D:\a b\\" "--host""#;
    assert!(command.as_str().unwrap().starts_with(start), "{command}");
    for odd in ["/m/${PATH}", "/m/a\nb"] {
        let error = handover("/s", odd).write(Form::LlamaSwap).unwrap_err();
        assert!(error.starts_with("llama-swap reads"), "{error}");
    }
}

/// `systemd.service(5)`, COMMAND LINES, and `systemd.unit(5)`, SPECIFIERS: words, C escapes, `%%`, and `$$` but in the path.
fn systemd_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut bytes = line.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b' ' if !quoted => words.extend(word.take()),
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b'\\' => match bytes.next().unwrap() {
                b'x' => {
                    let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                    let hex = std::str::from_utf8(&hex).unwrap();
                    word.get_or_insert_default()
                        .push(u8::from_str_radix(hex, 16).unwrap());
                }
                c @ (b'"' | b'\\') => word.get_or_insert_default().push(c),
                other => panic!("no such escape: {other}"),
            },
            b => word.get_or_insert_default().push(b),
        }
    }
    words.extend(word);
    let read = |(at, bytes): (usize, Vec<u8>)| {
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.replace("%%", "").contains('%'), "a specifier: {text}");
        let text = text.replace("%%", "%");
        if at == 0 {
            return text;
        }
        assert!(!text.replace("$$", "").contains('$'), "a variable: {text}");
        text.replace("$$", "$")
    };
    words.into_iter().enumerate().map(read).collect()
}

#[test]
fn systemd_reads_every_word_back() {
    for odd in ODD.into_iter().chain(["/m/new\nline\ttab"]) {
        let mut h = handover(odd, odd);
        h.env.insert("GGML_X".to_owned(), Word::exact(odd));
        let text = h.write(Form::Systemd).unwrap();
        let value = |key: &str| {
            let found = text.lines().filter_map(|l| l.strip_prefix(key));
            found.collect::<Vec<_>>()
        };
        let [start] = value("ExecStart=")[..] else {
            panic!("{text}")
        };
        let mut words = systemd_words(start);
        if odd.contains(['"', '\'', '\\', '\n']) {
            let shell: Vec<String> = words.drain(..3).collect();
            assert_eq!(shell, ["/bin/sh", "-c", r#"exec "$0" "$@""#]);
        }
        assert_eq!(words, expected(odd, odd, "8080"));
        let set: Vec<String> = value("Environment=")
            .iter()
            .flat_map(|l| systemd_words(l))
            .collect();
        assert_eq!(
            set,
            [
                "GGML_VK_ALLOW_GRAPHICS_QUEUE=1".to_owned(),
                format!("GGML_X={odd}")
            ]
        );
    }
    let error = handover(r"C:\l.exe", "m").write(Form::Systemd).unwrap_err();
    assert!(error.contains("PowerShell"), "{error}");
}

/// Compose's interpolation: `$$` is a dollar, a single one a variable.
fn interpolated(value: &Value) -> String {
    let text = value.as_str().unwrap();
    assert!(!text.replace("$$", "").contains('$'), "a variable: {text}");
    text.replace("$$", "$")
}

#[test]
fn compose_reads_every_word_back_and_opens_nothing() {
    for odd in ODD.into_iter().chain(["/m/new\nline\u{85}\u{7f}"]) {
        let mut h = handover("/s", odd);
        h.env.insert("GGML_X".to_owned(), Word::exact(odd));
        h.model.push(Word::exact("/m/part 2.gguf"));
        let document = yaml(&h.write(Form::Compose).unwrap());
        let service = &document["services"]["llama-server"];
        let command: Vec<String> = service["command"]
            .as_array()
            .unwrap()
            .iter()
            .map(interpolated)
            .collect();
        let inside = format!("/models/{}", odd.rsplit(['/', '\\']).next().unwrap());
        let mut words = expected("/s", &inside, "8080");
        words[4] = "0.0.0.0".to_owned();
        assert_eq!(command, words[1..]);
        assert_eq!(service["ports"], json!(["127.0.0.1:8080:8080"]));
        assert_eq!(interpolated(&service["environment"]["GGML_X"]), odd);
        assert_eq!(service["environment"]["LLAMA_API_KEY"], Value::Null);
        let mounts = service["volumes"].as_array().unwrap();
        assert_eq!(mounts.len(), 2);
        assert!(
            mounts
                .iter()
                .all(|m| m["read_only"] == true && m["type"] == "bind")
        );
        assert_eq!(interpolated(&mounts[0]["source"]), odd);
        assert_eq!(mounts[1]["target"], "/models/part 2.gguf");
    }
}

#[test]
fn each_backend_has_its_image_and_its_way_to_the_gpu() {
    for (backend, is_nvidia, image, gpu) in [
        (Backend::Cpu, false, "server", ""),
        (Backend::Cuda, true, "server-cuda", "driver: nvidia"),
        (Backend::Hip, false, "server-rocm", "- /dev/kfd:/dev/kfd"),
        (Backend::Sycl, false, "server-intel", "- /dev/dri:/dev/dri"),
        (
            Backend::Vulkan,
            false,
            "server-vulkan",
            "- /dev/dri:/dev/dri",
        ),
        (
            Backend::Vulkan,
            true,
            "server-vulkan",
            "NVIDIA_DRIVER_CAPABILITIES: \"compute,graphics",
        ),
    ] {
        let h = Handover {
            backend,
            is_nvidia,
            ..plain()
        };
        let text = h.write(Form::Compose).unwrap();
        let image = format!("ghcr.io/ggml-org/llama.cpp:{image}");
        assert_eq!(yaml(&text)["services"]["llama-server"]["image"], image);
        assert!(text.contains(gpu), "{text}");
        let none = !text.contains("devices:");
        assert_eq!(none, backend == Backend::Cpu, "{text}");
    }
    let metal = Handover {
        backend: Backend::Metal,
        ..plain()
    };
    assert!(metal.write(Form::Compose).unwrap_err().contains("no GPU"));
}

/// Text of any characters; those that are not seen are as likely as all others.
fn any_text(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let any = prop_oneof![
        "(?s)[^\0]",
        "[\u{1}-\u{1f}\u{7f}-\u{ad}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2066}\u{e0041}]"
    ];
    prop::collection::vec(any, length).prop_map(|parts| parts.concat())
}

/// Every form.
const FORMS: [Form; 6] = [
    Form::Bash,
    Form::Powershell,
    Form::Preset,
    Form::LlamaSwap,
    Form::Systemd,
    Form::Compose,
];

proptest! {
    #![proptest_config(ProptestConfig::with_failure_persistence(FileFailurePersistence::WithSource("seeds")))]
    /// Nothing in a file reorders, hides or steers what is shown of it, whatever names and words it carries.
    #[test]
    fn every_character_of_every_form_is_seen(name in any_text(1..24), value in any_text(1..12)) {
        let mut h = handover("/opt/s", &format!("/m/{name}"));
        h.name.clone_from(&name);
        h.about.push(value.clone());
        h.env = BTreeMap::from([("GGML_X".to_owned(), Word::exact(value.as_str()))]);
        h.args.push(Word::exact(value.as_str()));
        let mut document = shared();
        document.model.name = name;
        document.confirmed = value;
        let written = FORMS.into_iter().filter_map(|form| h.write(form).ok());
        for text in written.chain([document.to_json()]) {
            // Windows PowerShell needs a byte order mark.
            let text = text.trim_start_matches('\u{feff}');
            prop_assert!(text.chars().all(|c| c == '\n' || !is_unseen(c)), "{text:?}");
        }
    }

    /// Whatever a file is called, it comes back as it was, or the form says that it cannot write it.
    #[test]
    fn any_name_comes_back_exact(name in any_text(1..24), value in any_text(1..12)) {
        let model = format!("/m/{name}");
        let mut h = handover("/opt/s", &model);
        h.env = BTreeMap::from([("GGML_X".to_owned(), Word::exact(value.as_str()))]);
        let words = expected("/opt/s", &model, "8080");

        let unit = h.write(Form::Systemd).unwrap();
        let line = |key: &str| unit.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        prop_assert_eq!(systemd_words(line("ExecStart=")), words.clone());
        prop_assert_eq!(systemd_words(line("Environment=")), [format!("GGML_X={value}")]);

        let service = &yaml(&h.write(Form::Compose).unwrap())["services"]["llama-server"];
        prop_assert_eq!(interpolated(&service["volumes"][0]["source"]), model.clone());
        prop_assert_eq!(interpolated(&service["environment"]["GGML_X"]), value.clone());

        if let Ok(text) = h.write(Form::LlamaSwap) {
            let swap = &yaml(&text)["models"]["tiny-model-270m-it"];
            let command = swap["cmd"].as_str().unwrap().replace("${PORT}", "8080");
            prop_assert_eq!(shell_words::split(&command).unwrap(), words.clone());
        }
        if let Ok(text) = h.write(Form::Preset) {
            let line = text.lines().find_map(|l| l.strip_prefix("model = ")).unwrap();
            prop_assert_eq!(line, &model);
        }
        let script = h.write(Form::Powershell).unwrap();
        if !model.chars().any(is_unseen) {
            let start = script.find("$arguments = ").unwrap();
            let end = script.find("$before = ").unwrap();
            prop_assert_eq!(&powershell_strings(&script[start..end]), &words[1..]);
        }
    }
}
