//! The search space: what is offered where and why not, what a setting becomes per tool, and which files are refused.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};

use flux::domain::search::{Capabilities, Offer, OfferRules, SearchSpace, Tool};
use flux::domain::types::{Backend, Features, Goal, Settings};
use serde_json::json;

#[path = "support/sim.rs"]
mod sim;

use sim::rx580;

fn space() -> SearchSpace {
    SearchSpace::default()
}

fn offered(capabilities: &Capabilities, rules: &OfferRules) -> Offer {
    space().offer(capabilities, rules).unwrap()
}

fn values<'o>(offer: &'o Offer, dimension: &str) -> Vec<&'o str> {
    let found = offer.dimensions.iter().find(|d| d.id == dimension);
    found.map_or_else(Vec::new, |d| {
        d.values.iter().map(|v| v.id.as_str()).collect()
    })
}

fn reason<'o>(offer: &'o Offer, dimension: &str) -> &'o str {
    &offer
        .refused
        .iter()
        .find(|r| r.dimension == dimension)
        .unwrap()
        .reason
}

#[test]
fn the_shipped_file_is_read_and_described() {
    let space = space();
    assert!(space.dimensions().len() > 30);
    assert!(
        space
            .describe("graphics-queue")
            .starts_with("Submit compute work")
    );
    assert_eq!(space.describe("nonsense"), "");
    for dimension in space.dimensions() {
        assert!(dimension.summary.len() < 110, "{} is no line", dimension.id);
    }
}

#[test]
fn the_papers_card_is_offered_what_it_can_do() {
    let offer = offered(&rx580(), &OfferRules::default());
    assert_eq!(values(&offer, "graphics-queue"), ["on"]);
    assert_eq!(values(&offer, "flash-attn"), ["on", "off"]);
    assert_eq!(values(&offer, "ubatch"), ["1024", "256", "128"]);
    // No int8 dot product: nothing about it is offered, nor about half precision and matrix units.
    for dimension in ["mmvq", "integer-dot"] {
        assert_eq!(
            reason(&offer, dimension),
            "the device has no accelerated 8-bit dot product"
        );
    }
    assert_eq!(
        reason(&offer, "f16"),
        "the device has no half-precision arithmetic"
    );
    assert_eq!(
        reason(&offer, "coopmat"),
        "the device has no cooperative matrices"
    );
    assert_eq!(
        reason(&offer, "cuda-graphs"),
        "only for the cuda or hip backend"
    );
    assert_eq!(
        reason(&offer, "kv-cache"),
        "reduces precision, which this search does not allow"
    );
    assert_eq!(reason(&offer, "threads"), "the CPU computes nothing here");
    assert_eq!(
        reason(&offer, "op-offload"),
        "no weights are split between GPU and RAM"
    );
}

#[test]
fn a_device_with_all_features_is_offered_their_switches() {
    let all = Capabilities {
        features: Some(Features {
            fp16: true,
            int8_dot_accelerated: true,
            cooperative_matrix: true,
            cooperative_matrix2: true,
            bfloat16: true,
            ..Features::default()
        }),
        ..rx580()
    };
    let offer = offered(&all, &OfferRules::default());
    assert_eq!(values(&offer, "mmvq"), ["off", "force"]);
    for dimension in ["integer-dot", "f16", "bf16", "coopmat", "coopmat2"] {
        assert_eq!(values(&offer, dimension), ["off"]);
    }
    let unknown = Capabilities {
        features: None,
        ..rx580()
    };
    let offer = offered(&unknown, &OfferRules::default());
    assert_eq!(
        reason(&offer, "f16"),
        "the device's features cannot be read"
    );
}

#[test]
fn how_a_model_is_split_is_asked_where_several_gpus_share_it() {
    let pair = Capabilities {
        devices: 2,
        ..rx580()
    };
    let offer = offered(&pair, &OfferRules::default());
    assert_eq!(values(&offer, "split-mode"), ["none", "tensor", "row"]);
    let tensor = Settings::stock().with("split-mode", "tensor");
    for tool in [Tool::Bench, Tool::Server] {
        let launch = space().launch(&tensor, tool).unwrap();
        assert_eq!(launch.args, ["--split-mode", "tensor"]);
    }
    let offer = offered(&rx580(), &OfferRules::default());
    assert_eq!(reason(&offer, "split-mode"), "one device holds the model");
}

#[test]
fn a_software_renderer_gets_no_gpu_option() {
    let lavapipe = Capabilities {
        software_device: true,
        ..rx580()
    };
    let offer = offered(&lavapipe, &OfferRules::default());
    assert_eq!(
        reason(&offer, "graphics-queue"),
        "the device is a software renderer, not a GPU"
    );
    assert!(values(&offer, "fusion").is_empty());
    assert_eq!(values(&offer, "flash-attn"), ["on", "off"]);
}

#[test]
fn what_the_builds_own_environment_sets_is_not_searched() {
    let fixed = Capabilities {
        fixed_env: BTreeSet::from(["GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned()]),
        ..rx580()
    };
    let offer = offered(&fixed, &OfferRules::default());
    assert_eq!(
        reason(&offer, "graphics-queue"),
        "the runtime's own environment sets GGML_VK_ALLOW_GRAPHICS_QUEUE"
    );
    assert!(values(&offer, "graphics-queue").is_empty());
    assert_eq!(values(&offer, "flash-attn"), ["on", "off"]);
}

fn cpu() -> Capabilities {
    Capabilities {
        backend: Backend::Cpu,
        features: None,
        ..rx580()
    }
}

#[test]
fn threads_come_from_the_processor_and_defaults_from_the_binary() {
    let offer = offered(&cpu(), &OfferRules::default());
    // Six cores, twelve threads.
    assert_eq!(values(&offer, "threads"), ["3", "6", "12"]);
    let defaults = BTreeMap::from([
        ("--threads".to_owned(), "6".to_owned()),
        ("--flash-attn".to_owned(), "off".to_owned()),
        ("--ubatch-size".to_owned(), "1024".to_owned()),
    ]);
    let moved = Capabilities {
        bench_defaults: defaults,
        ..cpu()
    };
    let offer = offered(&moved, &OfferRules::default());
    assert_eq!(values(&offer, "threads"), ["3", "12"]);
    // C10: a build whose default is off is offered auto and on.
    assert_eq!(values(&offer, "flash-attn"), ["auto", "on"]);
    assert_eq!(values(&offer, "ubatch"), ["256", "128"]);
    let unknown = Capabilities {
        physical_cores: None,
        ..cpu()
    };
    assert_eq!(
        values(&offered(&unknown, &OfferRules::default()), "threads"),
        ["12"]
    );
}

#[test]
fn a_flag_the_binary_does_not_know_is_not_offered() {
    let offer = offered(&cpu(), &OfferRules::default());
    assert_eq!(reason(&offer, "repack"), "this llama-bench has no --repack");
    let mut newer = cpu();
    newer.bench_flags.insert("--repack".to_owned());
    assert_eq!(
        values(&offered(&newer, &OfferRules::default()), "repack"),
        ["off"]
    );
}

#[test]
fn c43_a_micro_batch_beyond_half_the_prompt_is_not_offered() {
    let rules = OfferRules {
        max_prompt: 512,
        ..OfferRules::default()
    };
    let offer = offered(&rx580(), &rules);
    assert_eq!(values(&offer, "ubatch"), ["256", "128"]);
    let refused = offer.refused.iter().filter(|r| r.dimension == "ubatch");
    let refused: Vec<&str> = refused.map(|r| r.reason.as_str()).collect();
    assert_eq!(
        refused,
        [
            "searched with prompts of 2048 tokens or more: shorter ones hardly fill it",
            "searched with prompts of 4096 tokens or more: shorter ones hardly fill it"
        ]
    );
}

#[test]
fn only_and_the_goal_choose_and_order() {
    let only = |names: &[&str]| OfferRules {
        only: names.iter().map(ToString::to_string).collect(),
        ..OfferRules::default()
    };
    let offer = offered(&rx580(), &only(&["fusion", "ubatch"]));
    let ids: Vec<&str> = offer.dimensions.iter().map(|d| d.id.as_str()).collect();
    // A generation search screens what cannot change generation last.
    assert_eq!(ids, ["fusion", "ubatch"]);
    let prompt = OfferRules {
        goal: Goal::Prompt,
        ..only(&["fusion", "ubatch"])
    };
    assert_eq!(offered(&rx580(), &prompt).dimensions[0].id, "ubatch");
    let error = space().offer(&rx580(), &only(&["fushion"])).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no setting is called fushion; known: graphics-queue, flash-attn")
    );
}

#[test]
fn a_quantised_cache_brings_flash_attention_and_excludes_switching_it_off() {
    let rules = OfferRules {
        allow_kv_quant: true,
        ..OfferRules::default()
    };
    let offer = offered(&rx580(), &rules);
    let set = offer
        .compose(&Settings::stock(), "kv-cache", "q8_0")
        .unwrap();
    assert_eq!(set.to_string(), "flash-attn=on kv-cache=q8_0");
    let error = offer.compose(&set, "flash-attn", "off").unwrap_err();
    assert_eq!(error, "kv-cache=q8_0 needs flash-attn=on");
}

#[test]
fn a_batch_below_the_micro_batch_is_refused() {
    let rules = OfferRules {
        max_prompt: 8192,
        ..OfferRules::default()
    };
    let offer = offered(&rx580(), &rules);
    let large = Settings::stock().with("ubatch", "2048");
    let error = offer.compose(&large, "batch", "1024").unwrap_err();
    assert_eq!(error, "batch=1024 does not go with ubatch=2048");
    assert!(offer.compose(&large, "batch", "4096").is_ok());
    let error = space().parse_settings("ubatch=4096").unwrap_err();
    assert_eq!(error.to_string(), "batch=2048 is below ubatch=4096");
}

#[test]
fn c10_switches_are_set_to_one_or_left_out_and_stock_passes_nothing() {
    let space = space();
    let stock = space.launch(&Settings::stock(), Tool::Bench).unwrap();
    assert!(stock.args.is_empty() && stock.env.is_empty());
    let on = Settings::stock().with("graphics-queue", "on");
    let launch = space.launch(&on, Tool::Server).unwrap();
    assert_eq!(
        launch.env,
        BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), "1".to_owned())])
    );
    // Every switch that tests presence is on as "1"; no value of the file writes a "0" but the one that is read as a number.
    let zeroes: BTreeSet<String> = space
        .dimensions()
        .iter()
        .filter(|d| {
            ["on", "off", "force", "prefer"].iter().any(|v| {
                let set = Settings::stock().with(&d.id, v);
                space
                    .launch(&set, Tool::Bench)
                    .is_ok_and(|l| l.env.values().any(|e| e == "0"))
            })
        })
        .map(|d| d.id.clone())
        .collect();
    assert_eq!(zeroes, BTreeSet::from(["cuda-pdl".to_owned()]));
}

#[test]
fn settings_are_written_out_also_where_they_equal_the_default_and_must_read_back() {
    let space = space();
    let set = space
        .parse_settings("ubatch=512 flash-attn=auto threads=6")
        .unwrap();
    let launch = space.launch(&set, Tool::Bench).unwrap();
    assert_eq!(
        launch.args,
        [
            "--flash-attn",
            "auto",
            "--threads",
            "6",
            "--ubatch-size",
            "512"
        ]
    );
    assert_eq!(
        space.expectations(&set).unwrap(),
        BTreeMap::from([
            ("flash_attn".to_owned(), json!(-1)),
            ("n_threads".to_owned(), json!(6)),
            ("n_ubatch".to_owned(), json!(512)),
        ])
    );
    let off = space.parse_settings("op-offload=off").unwrap();
    assert_eq!(
        space.launch(&off, Tool::Bench).unwrap().args,
        ["--no-op-offload", "1"]
    );
    assert_eq!(
        space.launch(&off, Tool::Server).unwrap().args,
        ["--no-op-offload"]
    );
}

#[test]
fn c06_lists_have_the_separator_of_their_tool() {
    assert_eq!(Tool::Bench.tensor_split(&[1.0, 9.0]), "1/9");
    assert_eq!(Tool::Server.tensor_split(&[1.0, 9.0]), "1,9");
    let rules = [
        ("a".to_owned(), "CPU".to_owned()),
        ("b".to_owned(), "CPU".to_owned()),
    ];
    assert_eq!(Tool::Bench.overrides(&rules), "a=CPU;b=CPU");
    assert_eq!(Tool::Server.overrides(&rules), "a=CPU,b=CPU");
    let devices = ["Vulkan0".to_owned(), "Vulkan1".to_owned()];
    assert_eq!(Tool::Bench.devices(&devices), "Vulkan0/Vulkan1");
    assert_eq!(Tool::Server.devices(&devices), "Vulkan0,Vulkan1");
    // No value of the space can be read as several tests.
    let space = space();
    for text in ["ubatch=512,1024", "flash-attn=on,off", "threads=1-8"] {
        assert!(space.parse_settings(text).is_err(), "{text}");
    }
}

#[test]
fn settings_from_text_are_checked() {
    let space = space();
    assert_eq!(space.parse_settings("stock").unwrap(), Settings::stock());
    assert_eq!(space.parse_settings("  ").unwrap(), Settings::stock());
    let wrong = |text: &str| space.parse_settings(text).unwrap_err().to_string();
    assert_eq!(wrong("fast"), "\"fast\" is no setting: write name=value");
    assert!(wrong("speed=high").starts_with("no setting is called speed; known: "));
    assert_eq!(
        wrong("flash-attn=maybe"),
        "flash-attn cannot be maybe; it can be auto, on, off"
    );
    assert_eq!(wrong("poll=101"), "poll cannot be 101; it can be 0 to 100");
    assert_eq!(wrong("poll=1 poll=2"), "poll is set twice");
    assert_eq!(wrong("kv-cache=q8_0"), "kv-cache=q8_0 needs flash-attn=on");
    assert_eq!(
        wrong("async=off transfer-queue=on"),
        "async=off does not go with transfer-queue=on"
    );
}

fn refused(value: &str) -> String {
    let file = format!(
        "[[dimension]]\nid = \"x\"\ntitle = \"X\"\nsummary = \"s\"\naffects = \"both\"\n[[dimension.value]]\nid = \"on\"\n{value}\n"
    );
    SearchSpace::parse(&file).unwrap_err().to_string()
}

#[test]
fn a_file_can_only_produce_known_flags_and_variables_with_plain_values() {
    for (value, why) in [
        (
            "env = { PATH = \"1\" }",
            "PATH is no variable of llama.cpp that Flux knows",
        ),
        (
            "env = { GGML_BACKEND_PATH = \"evil.dll\" }",
            "GGML_BACKEND_PATH is no variable of llama.cpp that Flux knows",
        ),
        (
            "env = { GGML_VK_VISIBLE_DEVICES = \"1\" }",
            "GGML_VK_VISIBLE_DEVICES is no variable of llama.cpp that Flux knows",
        ),
        (
            "env = { GGML_VK_DISABLE_F16 = \"a b\" }",
            "\"a b\" is no plain value",
        ),
        (
            "env = { GGML_VK_DISABLE_F16 = \"{}\" }",
            "\"{}\" is no plain value",
        ),
        (
            "bench = [\"--model\", \"x\"]\nexpect = { m = 1 }",
            "\"--model\" is no flag that Flux knows and no plain value",
        ),
        (
            "bench = [\"--threads\", \"1,2\"]\nexpect = { m = 1 }",
            "\"1,2\" is no flag that Flux knows and no plain value",
        ),
        (
            "bench = [\"-ot\", \"x\"]\nexpect = { m = 1 }",
            "\"-ot\" is no flag that Flux knows and no plain value",
        ),
        (
            "bench = [\"--threads\", \"1\"]",
            "arguments and the record fields they show in go together",
        ),
        ("stock = false", "it changes nothing"),
        (
            "env = { GGML_VK_DISABLE_F16 = \"1\" }\nfallbck = true",
            "there is no key fallbck",
        ),
        (
            "env = { GGML_VK_DISABLE_F16 = \"1\" }\nrequires = { y = [\"on\"] }",
            "y has no value [\"on\"]",
        ),
    ] {
        assert_eq!(
            refused(value),
            format!("the search space is wrong at x=on: {why}"),
            "{value}"
        );
    }
}

#[test]
fn a_file_of_the_wrong_shape_says_where() {
    let error = SearchSpace::parse("[[dimension]]\nid = \"x\"\ncolour = 1\n").unwrap_err();
    let start = "the search space cannot be read: line 3: unknown field `colour`";
    assert!(error.to_string().starts_with(start), "{error}");
    // However long a line is, and whatever the parser quotes of it, it is one sentence.
    for text in [
        "[".repeat(200_000),
        format!("\n{} = 1", "a".repeat(200_000)),
    ] {
        let error = SearchSpace::parse(&text).unwrap_err().to_string();
        assert!(error.len() < 240 && !error.contains('\n'), "{error}");
        let line = 1 + text.matches('\n').count();
        assert!(error.contains(&format!(": line {line}: ")), "{error}");
    }
    let dimension = |id: &str| {
        format!(
            "[[dimension]]\nid = \"{id}\"\ntitle = \"X\"\nsummary = \"s\"\naffects = \"both\"\n[[dimension.value]]\nid = \"on\"\nenv = {{ GGML_VK_DISABLE_F16 = \"1\" }}\n"
        )
    };
    for own in ["placement", "speculation"] {
        let error = SearchSpace::parse(&dimension(own)).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("this id is a setting of Flux's own"),
            "{error}"
        );
    }
    let error = SearchSpace::parse(&dimension("Upper")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the search space is wrong at Upper: a dimension's id is kebab-case"
    );
    let error = SearchSpace::parse(&dimension("x").repeat(2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the search space is wrong at x: this id is used twice"
    );
    let error = SearchSpace::parse(&dimension("x").replace("title = \"X\"\n", "")).unwrap_err();
    assert!(
        error.to_string().contains("missing field `title`"),
        "{error}"
    );
    let error = SearchSpace::parse(&dimension("x").replace("\"X\"", "\" \"")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the search space is wrong at x: a title is one line"
    );
}
