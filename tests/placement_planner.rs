//! The planner on machines that are known: the paper's card (section 5), two cards (case C36), little RAM (case C38).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/placement.rs"]
mod placement_support;

use std::collections::BTreeSet;

use flux::domain::placement::assignment::{ContextParams, Home, HostTensors, Placement};
use flux::domain::placement::assumed::priors;
use flux::domain::placement::devices::{CpuLayout, Memories};
use flux::domain::placement::flags::{self, Known as Flags, Rule, RuleError};
use flux::domain::placement::layout::{ModelLayout, TensorClass};
use flux::domain::placement::memory::{self, Corrections};
use flux::domain::placement::planner::{Ask, Candidate, MICRO_BATCHES, Planner, Tier};
use flux::domain::placement::speed::{Constant, Constants, Known, Status};
use flux::domain::search::Tool;
use flux::domain::types::{Backend, Bytes, Goal, RequestShape, TestSpec};

use placement_support::{card, layout, memories};

fn ask(goal: Goal) -> Ask {
    Ask {
        context: ContextParams::default(),
        micro_batches: MICRO_BATCHES.to_vec(),
        cache_types: Vec::new(),
        goal,
        request: RequestShape::default(),
        prompt: TestSpec::prompt(512),
        generation: TestSpec::generation(128),
    }
}

fn set(constants: &mut Constants, constant: Constant, shown: f64) {
    let known = Known {
        seconds: constant.seconds(shown),
        status: Status::Fitted,
        origin: "given".to_owned(),
    };
    constants.insert(constant, known);
}

/// The paper's fitted figures: 19.0 GB/s CPU decode and 4.87 ms a hand-off.
fn paper(memories: &Memories) -> Constants {
    let mut constants = priors(memories, None, true);
    set(&mut constants, Constant::HostRead, 19.0);
    set(&mut constants, Constant::HandOff, 4.87);
    constants
}

fn best(
    layout: &ModelLayout,
    memories: &Memories,
    constants: &Constants,
    ask: &Ask,
) -> Vec<Candidate> {
    let none = Corrections::default();
    Planner::new(layout, memories, constants, &none).best(ask, 3)
}

#[test]
fn on_the_papers_card_whole_layers_beat_a_split_by_class() {
    let layout = layout("gemma3-12b");
    let rx580 = memories(
        vec![card("Vulkan0", Backend::Vulkan, Bytes::mib(7424))],
        Bytes::gib(12),
    );
    let constants = paper(&rx580);
    let best = best(&layout, &rx580, &constants, &ask(Goal::Generation));
    assert_eq!(best[0].tier, Tier::SplitByLayer);
    let of = |tier| best.iter().find(|c| c.tier == tier).unwrap().predicted.tg;
    assert!(of(Tier::SplitByLayer) > of(Tier::SplitByClass));
    // Two hand-offs for each layer whose feed-forward weights are in RAM: five layers wait 48.7 ms for each token.
    let none = Corrections::default();
    let planner = Planner::new(&layout, &rx580, &constants, &none);
    let split = |layers: u32| {
        let placement = Placement {
            host_tensors: vec![HostTensors {
                class: TensorClass::FeedForward,
                layers: (0..layers).collect(),
            }],
            ..Placement::layers(49)
        };
        let context = ContextParams::default();
        1.0 / planner
            .judge(&placement, &context, &ask(Goal::Generation))
            .predicted
            .tg
    };
    let bytes: u64 = (5..10)
        .map(|layer| layout.bytes(Some(layer), TensorClass::FeedForward).0)
        .sum();
    let moved = bytes as f64 * (1.0 / 19.0e9 - 1.0 / 170.0e9);
    assert!((split(10) - split(5) - 10.0 * 4.87e-3 - moved).abs() < 1e-9);
}

#[test]
fn what_fits_is_chosen_and_its_memory_is_within_the_card() {
    let layout = layout("qwen3-30b-a3b");
    for gib in [6, 12, 16] {
        let machine = memories(
            vec![card("CUDA0", Backend::Cuda, Bytes::gib(gib))],
            Bytes::gib(32),
        );
        let constants = priors(&machine, None, false);
        for candidate in best(&layout, &machine, &constants, &ask(Goal::Request)) {
            assert!(candidate.fits(), "{:?}", candidate.misfits);
            let card = &candidate.memory[0];
            assert!(
                card.total() <= Bytes::gib(gib),
                "{}: {}",
                candidate.placement,
                card.total()
            );
        }
    }
}

/// With experts in RAM a larger micro-batch reads them less often: it is worth a layer more of them in RAM.
#[test]
fn the_micro_batch_and_the_experts_in_ram_are_searched_together() {
    let layout = layout("qwen3-30b-a3b");
    let machine = memories(
        vec![card("CUDA0", Backend::Cuda, Bytes::gib(8))],
        Bytes::gib(32),
    );
    // A card of 50 TFLOP/s: what is uploaded for each micro-batch is what takes the time.
    let mut constants = priors(&machine, None, false);
    set(&mut constants, Constant::DeviceCompute(0), 50.0);
    let small = Ask {
        micro_batches: vec![512],
        prompt: TestSpec::prompt(2048),
        ..ask(Goal::Prompt)
    };
    let large = Ask {
        micro_batches: vec![2048],
        ..small.clone()
    };
    let of = |ask: &Ask| best(&layout, &machine, &constants, ask).remove(0);
    let (small, large) = (of(&small), of(&large));
    assert!(large.predicted.pp > 2.0 * small.predicted.pp);
    assert!(large.placement.n_cpu_moe >= small.placement.n_cpu_moe);
}

/// Case C36: `-ncmoe` takes the experts of the first layers, which are all on the first card.
#[test]
fn two_cards_are_judged_each_for_itself_and_planned_with_explicit_rules() {
    let layout = layout("qwen3-30b-a3b");
    let eight = |id| card(id, Backend::Cuda, Bytes::gib(8));
    let machine = memories(vec![eight("CUDA0"), eight("CUDA1")], Bytes::gib(32));
    let constants = priors(&machine, None, false);
    let none = Corrections::default();
    let planner = Planner::new(&layout, &machine, &constants, &none);
    let naive = Placement {
        n_cpu_moe: 24,
        ..Placement::layers(49)
    };
    let judged = planner.judge(&naive, &ContextParams::default(), &ask(Goal::Request));
    assert!(!judged.fits());
    let told = &judged.misfits[0];
    assert!(told.starts_with("device 1 would need "), "{told}");
    assert!(told.ends_with(" of 8.00 GiB"), "{told}");
    let plan = planner.best(&ask(Goal::Request), 3).remove(0);
    assert!(plan.fits() && plan.memory[0].fits() && plan.memory[1].fits());
    let homes = plan.placement.resolve(48, 2);
    let both = homes.layers.contains(&Home::Device(0)) && homes.layers.contains(&Home::Device(1));
    assert!(both, "{}", plan.placement);
}

#[test]
fn a_model_larger_than_ram_streams_and_says_so() {
    let layout = layout("qwen3-8b");
    let machine = memories(Vec::new(), Bytes::gib(3));
    let constants = priors(&machine, None, false);
    let plan = best(&layout, &machine, &constants, &ask(Goal::Generation)).remove(0);
    assert!(plan.streams);
    // All 4.68 GiB of tensors but the embeddings, at the assumed 0.5 GB/s and then at 20 GB/s from RAM.
    let read: f64 = layout
        .tensors
        .iter()
        .filter(|t| t.class != TensorClass::Embedding)
        .map(|t| t.bytes.0 as f64)
        .sum();
    let kv = 36.0 * 2.0 * 1024.0 * 2.0 * 64.0;
    let secs = read / 0.5e9 + (read + kv) / 20e9;
    assert!((1.0 / plan.predicted.tg / secs - 1.0).abs() < 1e-6);
}

/// On two cards of 5 GiB a step of one layer and of two keep the same layers' experts in RAM: it is one neighbour.
#[test]
fn neighbours_are_each_another_placement() {
    let layout = layout("qwen3-30b-a3b");
    let card = |id| card(id, Backend::Cuda, Bytes::gib(5));
    let pair = memories(vec![card("CUDA0"), card("CUDA1")], Bytes::gib(120));
    let constants = priors(&pair, None, false);
    let none = Corrections::default();
    let planner = Planner::new(&layout, &pair, &constants, &none);
    let ask = ask(Goal::Request);
    let plan = planner.best(&ask, 1).remove(0);
    let near = planner.neighbours(&plan.placement, &plan.context, &ask);
    assert!(near.len() > 1);
    for (i, one) in near.iter().enumerate() {
        let is = |other: &Candidate| {
            (&other.placement, &other.context) == (&one.placement, &one.context)
        };
        assert!(
            !is(&plan) && !near[..i].iter().any(is),
            "{:?}",
            one.placement
        );
    }
}

/// A smaller micro-batch leaves room for a layer more; where generation counts it is not taken, since it costs more of the
/// prompt speed than the guard allows. A request weighs both.
/// Captured graphs are as many as tensors in RAM: with one layer there 3 MiB of an 8B, with half of them 50. Every
/// placement used to be charged for half, and a layer that fitted stayed in RAM.
#[test]
fn one_layer_in_ram_is_charged_for_its_own_graphs_alone() {
    let layout = layout("qwen3-8b");
    let one_less = Placement::layers(layout.n_layer());
    let on = |vram: Bytes| memories(vec![card("CUDA0", Backend::Cuda, vram)], Bytes::gib(32));
    let none = Corrections::default();
    let context = ask(Goal::Generation).context;
    let roomy = on(Bytes::gib(24));
    let taken = |placement: &Placement| {
        memory::memory(&layout, placement, &context, &roomy, &none)[0].total()
    };
    let (one, none_in_ram) = (taken(&one_less), taken(&Placement::layers(99)));
    // A simulation of fewer layers is off by a MiB or two.
    let tight = on(Bytes(one.0 + Bytes::mib(4).0));
    assert!(tight.devices[0].usable < none_in_ram);
    let found = best(&layout, &tight, &paper(&tight), &ask(Goal::Generation));
    let layers = found.iter().filter(|c| c.tier == Tier::SplitByLayer);
    let most = layers.filter_map(|c| c.placement.n_gpu_layers).max();
    assert_eq!(most, Some(layout.n_layer()));
}

#[test]
fn generation_is_not_bought_with_slow_prompts() {
    let layout = layout("qwen3-30b-a3b");
    let h200 = memories(
        vec![card("CUDA0", Backend::Cuda, Bytes::gib(8))],
        Bytes::gib(120),
    );
    let mut constants = priors(&h200, None, false);
    set(&mut constants, Constant::HostRead, 36.8);
    set(&mut constants, Constant::DeviceRead(0), 573.0);
    let plan = best(&layout, &h200, &constants, &ask(Goal::Generation)).remove(0);
    assert_eq!(plan.tier, Tier::SplitByClass);
    assert_eq!(plan.context.micro_batch, 512);
}

/// In 620 MiB of the paper's card stock's micro-batch fits by the quick estimate and not exactly: smaller ones are tried then,
/// instead of saying that nothing fits.
#[test]
fn smaller_micro_batches_are_tried_where_none_of_stocks_size_fits_exactly() {
    let layout = layout("qwen3-4b");
    let context = ContextParams {
        context: 8192,
        ..ContextParams::default()
    };
    for mib in (400..=700).step_by(20) {
        let rx580 = memories(
            vec![card("Vulkan0", Backend::Vulkan, Bytes::mib(mib))],
            Bytes::gib(11),
        );
        let constants = paper(&rx580);
        let fits = |goal| {
            let ask = Ask {
                context: context.clone(),
                ..ask(goal)
            };
            let found = best(&layout, &rx580, &constants, &ask);
            found.iter().any(|c| c.tier != Tier::CpuOnly)
        };
        assert_eq!(fits(Goal::Generation), fits(Goal::Request), "{mib} MiB");
    }
}

/// Weights alone would fit; with the cache, 576 MiB of f16, they do not, and of the two only they are on the disk.
#[test]
fn cache_and_buffers_leave_weights_the_rest_of_ram() {
    let layout = layout("qwen3-8b");
    let weights: u64 = layout.tensors.iter().map(|t| t.bytes.0).sum();
    let of = |more| {
        let machine = memories(Vec::new(), Bytes(weights + Bytes::mib(more).0));
        let constants = priors(&machine, None, false);
        best(&layout, &machine, &constants, &ask(Goal::Generation)).remove(0)
    };
    let (tight, roomy) = (of(300), of(2048));
    assert!(tight.streams && tight.fits(), "{:?}", tight.misfits);
    assert!(!roomy.streams);
    assert!(roomy.predicted.tg > 10.0 * tight.predicted.tg);
}

/// Of 373 MiB of weights 205 are repacked, and 526 MiB are caches and buffers: all fits in 4 GiB; in 800 MiB the rest of the
/// weights streams beside the repacked copy; in 700 the copy has no room, and all of them stream as they are in the file.
#[test]
fn weights_are_repacked_where_ram_holds_them_and_stream_where_it_does_not() {
    let layout = layout("qwen3-0.6b");
    let of = |mib| {
        let mut machine = memories(Vec::new(), Bytes::mib(mib));
        machine.host.layout = CpuLayout::without_devices("x86_64");
        let constants = priors(&machine, None, false);
        best(&layout, &machine, &constants, &ask(Goal::Generation)).remove(0)
    };
    let (tight, between, roomy) = (of(700), of(800), of(4096));
    assert!(!between.placement.no_repack && between.streams && between.fits());
    assert!(between.predicted.tg > 1.5 * tight.predicted.tg);
    assert!(
        tight.placement.no_repack && tight.streams,
        "{:?}",
        tight.memory
    );
    assert_eq!(tight.misfits, [""; 0]);
    assert!(!roomy.placement.no_repack && !roomy.streams);
    let args = |tool, flags: &[&str]| {
        let flags = flags.iter().map(|f| (*f).to_owned()).collect();
        let known = Flags {
            tool,
            flags: &flags,
        };
        flags::args(&tight.placement, &tight.context, &layout, known)
    };
    let bench = args(Tool::Bench, &["--repack"]).unwrap();
    assert!(bench.ends_with(&["--repack".to_owned(), "0".to_owned()]));
    let server = args(Tool::Server, &["--repack", "--no-repack"]).unwrap();
    assert!(server.ends_with(&["--no-repack".to_owned()]));
    assert_eq!(
        args(Tool::Bench, &[]),
        Err(RuleError::Repacks("llama-bench"))
    );
}

#[test]
fn flags_are_exact_anchored_and_per_tool() {
    let layout = layout("qwen3-30b-a3b");
    let flags: BTreeSet<String> = ["--n-cpu-moe", "--fit"].map(str::to_owned).into();
    let old = BTreeSet::new();
    let placement = Placement {
        host_tensors: vec![HostTensors {
            class: TensorClass::Experts,
            layers: vec![1, 12],
        }],
        tensor_split: vec![25.0, 24.0],
        ..Placement::layers(49)
    };
    let context = ContextParams::default();
    let of = |placement: &Placement, tool, flags| {
        flags::args(placement, &context, &layout, Flags { tool, flags }).unwrap()
    };
    let rule =
        r"^blk\.(1|12)\.(ffn_down_exps\.weight|ffn_gate_exps\.weight|ffn_up_exps\.weight)$=CPU";
    let bench = of(&placement, Tool::Bench, &flags);
    let expected = [
        "-ngl", "49", "-ts", "25/24", "-ot", rule, "-b", "2048", "-ub", "512", "-ctk", "f16",
        "-ctv", "f16",
    ];
    assert_eq!(bench, expected);
    let server = of(&placement, Tool::Server, &flags);
    assert!(server.windows(2).any(|w| w == ["-ts", "25,24"]));
    assert!(server.windows(2).any(|w| w == ["--fit", "off"]));
    // Layer 1 is neither 11 nor 21: three tensors a layer.
    let found = Rule::new(rule.strip_suffix("=CPU").unwrap(), "CPU", &layout).unwrap();
    assert_eq!(found.tensors, 6);
    let experts = Placement {
        n_cpu_moe: 3,
        ..Placement::layers(49)
    };
    assert!(
        of(&experts, Tool::Bench, &flags)
            .windows(2)
            .any(|w| w == ["-ncmoe", "3"])
    );
    let written_out = of(&experts, Tool::Bench, &old);
    let patterns: Vec<&String> = written_out
        .iter()
        .filter(|a| a.contains("(0|1|2)"))
        .collect();
    assert_eq!(patterns.len(), 1);
}

/// Case C39.
#[test]
fn a_rule_that_matches_nothing_is_refused() {
    let layout = layout("qwen3-4b");
    let wrong = Placement {
        host_tensors: vec![HostTensors {
            class: TensorClass::Experts,
            layers: vec![1],
        }],
        ..Placement::layers(37)
    };
    assert!(matches!(
        flags::rules(&wrong, &layout),
        Err(RuleError::Nothing(_))
    ));
    let safetensors = Rule::new(r"model\.layers\.1\.mlp", "CPU", &layout);
    assert!(matches!(safetensors, Err(RuleError::Nothing(_))));
    assert!(matches!(
        Rule::new("(", "CPU", &layout),
        Err(RuleError::Pattern(_))
    ));
}

#[test]
fn without_a_device_only_the_micro_batch_is_stepped() {
    let layout = layout("qwen3-30b-a3b");
    let machine = memories(Vec::new(), Bytes::gib(32));
    let constants = priors(&machine, None, false);
    let none = Corrections::default();
    let planner = Planner::new(&layout, &machine, &constants, &none);
    let at = Placement::cpu_only();
    let near = planner.neighbours(&at, &ContextParams::default(), &ask(Goal::Request));
    assert_eq!(near.len(), 2);
    assert!(near.iter().all(|c| c.placement == at));
}

/// A model wholly on another machine still sends each token there and fetches what came of it: two crossings of 1 ms.
#[test]
fn a_model_behind_a_network_pays_the_way_there_and_back() {
    let layout = layout("qwen3-4b");
    let none = Corrections::default();
    let seconds = |backend| {
        let machine = memories(vec![card("RPC0", backend, Bytes::gib(16))], Bytes::gib(32));
        let mut constants = priors(&machine, None, false);
        set(&mut constants, Constant::DeviceRead(0), 100.0);
        let planner = Planner::new(&layout, &machine, &constants, &none);
        let context = ContextParams::default();
        let ask = ask(Goal::Generation);
        let judged = planner.judge(&Placement::layers(37), &context, &ask);
        1.0 / judged.predicted.tg
    };
    let apart = seconds(Backend::Rpc) - seconds(Backend::Cuda);
    assert!((apart - 2e-3).abs() < 1e-9, "{apart}");
}
