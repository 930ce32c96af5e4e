//! What each fuzz target does with its bytes, and what must hold whatever they are. `tests/fuzz_corpora.rs` does the same
//! with the corpora, without a fuzzer.
#![allow(clippy::unwrap_used, reason = "a target stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use flux::domain::bench_record;
use flux::domain::doctor::{self, Facts};
use flux::domain::fingerprint::{diff, fingerprint, of_fields};
use flux::domain::handover::{self, Form, Handover, SharedProfile, Word};
use flux::domain::machine::{default_gpu, gpus, no_gpu};
use flux::domain::placement::assignment::{ContextParams, Placement};
use flux::domain::placement::devices::{CpuLayout, HostMemory, Memories, OffloadDevice};
use flux::domain::placement::layout::ModelLayout;
use flux::domain::placement::learn;
use flux::domain::placement::memory::{Corrections, memory};
use flux::domain::placement::words;
use flux::domain::search::offer::{Capabilities, OfferRules};
use flux::domain::search::{SearchSpace, Tool};
use flux::domain::server::{
    AnswerReader, Completion, Events, Timings, evidence, identify, output, requests,
};
use flux::domain::settings::AppSettings;
use flux::domain::types::{Backend, Bytes, Launch, Settings, TestSpec};
use flux::gguf::GgufModels;
use flux::ports::{CancelToken, MachineProbe as _, Models as _, SynthRequest};
use flux::probe::FixtureProbe;
use flux::runtime::failure::{classify, is_vague};
use flux::runtime::identify::text;
use flux::runtime::log::LogReader;
use flux::runtime::process::{EndReason, Ended};
use flux::telemetry::nvml::Recorded;
use serde_json::Value as Json;

/// A target by its name.
pub type Target = fn(&[u8]);

/// All of them.
pub const TARGETS: [(&str, Target); 8] = [
    ("bench_output", bench_output),
    ("fixture", fixture),
    ("gguf", gguf),
    ("log", log),
    ("profile", profile),
    ("search_space", search_space),
    ("server_stream", server_stream),
    ("settings", settings),
];

/// Bytes a context or a device has in the predictions of a fuzzed model.
const MEMORY: Bytes = Bytes::gib(24);

/// A file of these bytes in a folder of this process; the same file each time, which keeps a run fast.
fn file(name: &str, data: &[u8]) -> PathBuf {
    thread_local! {
        static DIR: tempfile::TempDir = tempfile::tempdir().unwrap();
    }
    DIR.with(|dir| {
        let path = dir.path().join(name);
        fs::write(&path, data).unwrap();
        path
    })
}

/// No line of it can steer a terminal or hide what follows.
fn assert_one_harmless_line(text: &str) {
    assert_eq!(text, flux::domain::text::clean(text));
}

/// A model file: its layout holds together and its memory can be predicted, or a sentence says why not.
pub fn gguf(data: &[u8]) {
    let path = file("m.gguf", data);
    let layout = match GgufModels.layout(&path) {
        Ok(layout) => layout,
        Err(error) => return assert_one_harmless_line(&error.headline),
    };
    let size = data.len() as u64;
    assert!(layout.info.tensor_bytes.0 <= size);
    assert!(
        layout
            .tensors
            .iter()
            .all(|t| t.elements() > 0 && t.bytes.0 <= size)
    );
    for layers in [0, 1, u32::MAX] {
        check_memory(
            &layout,
            &Placement::layers(layers),
            &ContextParams::default(),
        );
    }
}

/// What a placement takes can be added up.
fn check_memory(layout: &ModelLayout, placement: &Placement, context: &ContextParams) {
    let device = OffloadDevice {
        id: "Vulkan0".to_owned(),
        name: "card".to_owned(),
        backend: Backend::Vulkan,
        total: MEMORY,
        usable: MEMORY,
        shares_ram: false,
        captures_graphs: false,
        max_buffer: None,
        max_tensor: None,
    };
    let host = HostMemory {
        total: MEMORY,
        usable: MEMORY,
        used_by_others: Bytes(0),
        layout: CpuLayout::File,
    };
    let memories = Memories {
        devices: vec![device],
        host,
    };
    let taken = memory(
        layout,
        placement,
        context,
        &memories,
        &Corrections::default(),
    );
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(|m| m.total() >= m.model()));
}

/// The smallest mixture of experts that ships with Flux.
fn small_model() -> &'static ModelLayout {
    static LAYOUT: LazyLock<ModelLayout> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let request = SynthRequest {
            shape: "tiny-moe".to_owned(),
            output: dir.path().join("m.gguf"),
            sparse: true,
            seed: 1,
        };
        let made = GgufModels.synthesise(&request, &CancelToken::new(), &mut |_, _| {});
        made.unwrap();
        GgufModels.layout(&request.output).unwrap()
    });
    &LAYOUT
}

/// llama-bench's output: every record has samples, all of them positive; what it was placed like can be learned from.
pub fn bench_output(data: &[u8]) {
    let parsed = bench_record::parse(data);
    for record in &parsed.records {
        assert!(!record.samples_ns.is_empty() && record.samples_ns.iter().all(|ns| *ns > 0));
        assert_eq!(
            bench_record::Record::from_value(record.raw.clone()).as_ref(),
            Ok(record)
        );
        let model = small_model();
        if let Ok(placement) = learn::placement(&record.raw, model) {
            check_memory(model, &placement, &learn::context(&record.raw));
        }
    }
    let samples: Vec<_> = parsed
        .records
        .iter()
        .map(flux::domain::bench_record::Record::samples)
        .collect();
    let _ = learn::usual_threads(&samples);
    assert!(parsed.salvaged().len() >= parsed.records.len());
}

/// An answer of llama-server, streamed and whole: the first byte says in what pieces the rest arrives, which must not matter.
pub fn server_stream(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else {
        return;
    };
    let read = |piece: usize| {
        let (mut events, mut reader, mut tokens) =
            (Events::default(), AnswerReader::default(), 0_u32);
        let result = stream.chunks(piece).try_for_each(|bytes| {
            events.bytes(bytes, &mut |event| {
                tokens += u32::from(reader.part(&event)?);
                Ok(())
            })
        });
        (result.and_then(|()| reader.finish()), tokens)
    };
    let whole = read(stream.len().max(1));
    assert_eq!(whole, read(usize::from(piece).max(1)));
    if let Ok(answer) = whole.0 {
        judge(answer);
    }
    if let Ok(document) = serde_json::from_slice::<Json>(stream) {
        let mut reader = AnswerReader::default();
        if reader.part(&document).is_ok()
            && let Ok(answer) = reader.finish()
        {
            judge(answer);
        }
        let _ = identify(&document, &document, "/m.gguf", 8080);
        let _ = Timings::parse(&document);
    }
}

/// What is made of an answer: a sample is a positive time.
fn judge(mut answer: Completion) {
    answer.first_token = Some(Duration::from_millis(3));
    answer.took = Duration::from_millis(400);
    let prompt = answer.timings.prompt_n.unwrap_or(512).max(1);
    let generated = answer.timings.predicted_n.unwrap_or(64).max(1);
    let test = |n_prompt, n_gen| TestSpec {
        n_prompt,
        n_gen,
        n_depth: 0,
    };
    for asked in requests(&[test(prompt, 0), test(0, generated), test(prompt, generated)])
        .unwrap_or_default()
    {
        if let Ok(samples) = asked.samples(&answer) {
            assert!(!samples.is_empty() && samples.iter().all(|ns| *ns > 0));
        }
    }
    let _ = (evidence(&answer), output::places(&answer).is_some());
}

/// What llama.cpp's programs say: logs, versions, devices, help, reasons for an end.
pub fn log(data: &[u8]) {
    let said = String::from_utf8_lossy(data);
    let mut reader = LogReader::new();
    said.lines().for_each(|line| reader.line(line));
    let facts = reader.finish();
    let _ = facts.has_gpu_buffers();
    let ended = |exit_code, signal| Ended {
        reason: EndReason::Exited,
        exit_code,
        signal,
        memory_ran_out: None,
        stdout: said.to_string(),
        stderr: said.to_string(),
        wall: Duration::from_secs(1),
    };
    // One end a run: each reads all of it many times.
    let (code, signal) = match data.len() % 4 {
        0 => (Some(0), None),
        1 => (Some(1), None),
        2 => (None, Some(11)),
        _ => (None, None),
    };
    let failure = classify(&ended(code, signal));
    let _ = is_vague(&failure);
    assert!(!failure.detail.contains('\n'), "{failure:?}");
    let _ = (
        text::version(&said),
        text::devices(&said),
        text::help(&said),
    );
    let _ = (
        text::backends(&said),
        text::cpu_variant(&said),
        text::missing_part(&said),
    );
}

/// A search space: whatever it offers makes flags Flux knows, `GGML_` variables and plain values, and nothing else.
pub fn search_space(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let space = match SearchSpace::parse(text) {
        Ok(space) => space,
        Err(error) => return drop(error.to_string()),
    };
    let capabilities = Capabilities {
        backend: Backend::Vulkan,
        features: None,
        software_device: false,
        partial_offload: true,
        devices: 2,
        physical_cores: Some(8),
        logical_cores: 16,
        bench_flags: space
            .dimensions()
            .iter()
            .filter_map(|d| d.flag.clone())
            .collect(),
        bench_defaults: BTreeMap::new(),
        fixed_env: BTreeSet::new(),
    };
    let rules = OfferRules {
        allow_kv_quant: true,
        ..OfferRules::default()
    };
    let offer = space.offer(&capabilities, &rules).unwrap();
    let stock = space
        .dimensions()
        .iter()
        .filter_map(|d| Some((d.id.clone(), space.stock_value(&d.id)?)));
    let offered = offer
        .dimensions
        .iter()
        .flat_map(|d| d.values.iter().map(|v| (d.id.clone(), v.id.clone())));
    for (name, value) in stock.chain(offered) {
        let settings = Settings::stock().with(&name, &value);
        for tool in [Tool::Bench, Tool::Server] {
            if let Ok(launch) = space.launch(&settings, tool) {
                assert_known(&launch);
            }
        }
        let _ = space.expectations(&settings);
        let _ = space.digest([(name.as_str(), value.as_str())]);
        let _ = offer.compose(&Settings::stock(), &name, &value);
        let said = settings.to_string();
        if let Ok(read) = space.parse_settings(&said) {
            assert_eq!(read, settings);
        }
    }
}

/// Nothing that another program or a shell would read as more than a flag, a name or a plain value.
fn assert_known(launch: &Launch) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+');
    for argument in &launch.args {
        let value = argument
            .strip_prefix("--")
            .map_or_else(|| argument.clone(), |flag| flag.replace('-', ""));
        assert!(
            !value.is_empty() && value.chars().all(plain),
            "{argument:?}"
        );
    }
    for (name, value) in &launch.env {
        assert!(
            name.starts_with("GGML_") && name.chars().all(plain),
            "{name:?}"
        );
        assert!(
            !value.is_empty() && value.chars().all(plain),
            "{name}={value:?}"
        );
    }
}

/// The owner's settings: what was brought into bounds stays there, and is written and read back as it is.
pub fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok((mut settings, _)) = AppSettings::parse(text) else {
        return;
    };
    assert_eq!(settings.bring_into_bounds(), Vec::<String>::new());
    let written = toml::to_string_pretty(&settings).unwrap();
    let (read, said) = AppSettings::parse(&written).unwrap();
    assert_eq!(said, Vec::<String>::new(), "{written}");
    // As text: what an unknown setting holds may be no number, which is not equal to itself.
    assert_eq!(format!("{read:?}"), format!("{settings:?}"), "{written}");
}

/// An exported machine, or what its NVIDIA driver answered.
pub fn fixture(data: &[u8]) {
    let path = file("machine.json", data);
    match FixtureProbe::load(&path) {
        Ok(probe) => {
            let machine = probe.machine();
            assert!(machine.simulated);
            let found = gpus(&machine);
            let _ = (default_gpu(&found), no_gpu(&machine, &found));
            let _ = doctor::findings(&machine, &Facts::default());
            let alone = fingerprint(&machine, None);
            assert_eq!(alone, fingerprint(&machine, None));
            for runtime in probe.runtimes() {
                let _ = diff(&alone, &fingerprint(&machine, Some(runtime)));
            }
        }
        Err(error) => assert_one_harmless_line(&error.headline),
    }
    fs::remove_file(&path).unwrap();
    let answers = file("nvml.json", data);
    let _ = Recorded::load(answers.parent().unwrap());
}

/// A profile from elsewhere: what is imported is what Flux could have chosen, and reads back as it was written.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let space = SearchSpace::shipped();
    let profile = match handover::read(text, space) {
        Ok(profile) => profile,
        Err(error) => return assert_one_harmless_line(&error.to_string()),
    };
    assert_eq!(
        handover::read(&profile.to_json(), space).as_ref(),
        Ok(&profile)
    );
    let key = of_fields(profile.fingerprint.fields.clone());
    assert!(diff(&key, &profile.fingerprint).is_empty());
    let own = profile.settings.without(words::SETTING);
    let launch = space.launch(&own, Tool::Server).unwrap();
    assert_known(&launch);
    if let Some(placement) = profile.settings.0.get(words::SETTING)
        && words::fitting(placement).is_none()
    {
        words::parse(placement, &ContextParams::default()).unwrap();
    }
    written(&profile, &launch);
}

/// In every form that starts a server.
fn written(profile: &SharedProfile, launch: &Launch) {
    let handover = Handover {
        about: vec![profile.confirmed.clone(), profile.model.name.clone()],
        name: profile.model.name.clone(),
        server: Word::exact("/opt/llama-server"),
        model: vec![Word::exact("/models/m.gguf")],
        args: launch.args.iter().map(Word::exact).collect(),
        env: launch
            .env
            .iter()
            .map(|(n, v)| (n.clone(), Word::exact(v)))
            .collect(),
        backend: Backend::Vulkan,
        is_nvidia: false,
        port: 8080,
    };
    for form in [
        Form::Bash,
        Form::Powershell,
        Form::Preset,
        Form::LlamaSwap,
        Form::Systemd,
        Form::Compose,
    ] {
        let text = handover.write(form).unwrap();
        let text = text.trim_start_matches('\u{feff}');
        text.lines().for_each(assert_one_harmless_line);
    }
}
