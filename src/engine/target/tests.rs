//! Which device a job measures on. Two GPUs of `hybrid-laptop`: an Intel one at 00:02.0, an NVIDIA one at 01:00.0 whose
//! driver allows 11,862,540,288 bytes.

use super::*;
use crate::domain::settings::VRAM_RESERVE;
use crate::domain::types::RuntimeOrigin;

const INTEL: &str = "Intel(R) UHD Graphics";
const NVIDIA: &str = "NVIDIA GeForce RTX 4080 Laptop GPU";

fn laptop() -> Vec<Gpu> {
    let text = include_str!("../../../tests/fixtures/machines/hybrid-laptop/machine.json");
    machine::gpus(&serde_json::from_str(text).unwrap())
}

fn build(backends: &[Backend], devices: &[(&str, &str)]) -> Runtime {
    let listed = devices.iter().map(|(id, name)| RuntimeDevice {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        total: Bytes::mib(12_000),
        free: Bytes::mib(11_000),
    });
    Runtime {
        name: "build".to_owned(),
        dir: "/opt/llama".into(),
        bench: None,
        server: None,
        build_number: 0,
        build_commit: "unknown".to_owned(),
        version_text: String::new(),
        digest: "d".to_owned(),
        backends: backends.iter().copied().collect(),
        cpu_variant: None,
        devices: listed.collect(),
        bench_flags: std::collections::BTreeSet::default(),
        server_flags: std::collections::BTreeSet::default(),
        bench_defaults: BTreeMap::new(),
        origin: RuntimeOrigin::Added,
        env: BTreeMap::new(),
    }
}

fn vulkan() -> Runtime {
    build(
        &[Backend::Cpu, Backend::Vulkan],
        &[("Vulkan0", INTEL), ("Vulkan1", NVIDIA)],
    )
}

fn chosen(wanted: &str, runtime: &Runtime) -> Result<Target, JobError> {
    choose_target(Some(wanted), runtime, &laptop(), false, VRAM_RESERVE)
}

fn args(target: &Target, tool: Tool) -> Vec<String> {
    target.joined(Launch::default(), tool).args
}

#[test]
fn several_devices_are_listed_as_each_tool_reads_lists() {
    let mut target = chosen("vulkan1, Vulkan0", &vulkan()).unwrap();
    assert_eq!(args(&target, Tool::Bench), ["-dev", "Vulkan1/Vulkan0"]);
    assert_eq!(args(&target, Tool::Server), ["-dev", "Vulkan1,Vulkan0"]);
    let limited: Vec<&String> = target.memory_limits.keys().collect();
    assert_eq!(limited, ["Vulkan0", "Vulkan1"]);
    assert_eq!(
        chosen("Vulkan0/Vulkan7", &vulkan()).unwrap_err().code,
        "no-device"
    );
    target.rpc = vec!["a:1".to_owned(), "b:2".to_owned()];
    assert_eq!(
        args(&target, Tool::Server),
        ["-dev", "Vulkan1,Vulkan0", "--rpc", "a:1,b:2"]
    );
}

#[test]
fn who_shares_the_work_is_counted() {
    let shared = |wanted: Option<&str>, runtime: &Runtime| {
        let target = choose_target(wanted, runtime, &laptop(), false, VRAM_RESERVE).unwrap();
        (target.count(runtime), target.is_shared(runtime))
    };
    assert_eq!(shared(None, &vulkan()), (2, true));
    assert_eq!(shared(Some("Vulkan0,Vulkan1"), &vulkan()), (2, true));
    assert_eq!(shared(Some("Vulkan1"), &vulkan()), (1, false));
    assert_eq!(shared(Some("cpu"), &vulkan()), (0, false));
    assert_eq!(shared(None, &build(&[Backend::Cpu], &[])), (0, false));
    let remote = Target {
        rpc: vec!["a:1".to_owned()],
        ..chosen("Vulkan1", &vulkan()).unwrap()
    };
    assert!(remote.is_shared(&vulkan()));
}

#[test]
fn without_a_wish_the_choice_is_the_runtimes_own() {
    let target = choose_target(None, &vulkan(), &laptop(), false, VRAM_RESERVE).unwrap();
    assert_eq!((target.backend, &target.device), (Backend::Vulkan, &None));
    assert!(
        args(&target, Tool::Bench).is_empty(),
        "stock passes no -dev"
    );
    let limited: Vec<&String> = target.memory_limits.keys().collect();
    assert_eq!(limited, ["Vulkan0", "Vulkan1"]);
}

#[test]
fn what_is_left_free_is_what_was_asked_for() {
    let left = |reserve| {
        let target = choose_target(Some("Vulkan1"), &vulkan(), &laptop(), false, reserve).unwrap();
        target.memory_limits["Vulkan1"]
    };
    assert_eq!(left(VRAM_RESERVE), Bytes(11_862_540_288 - 536_870_912));
    assert_eq!(left(Bytes::gib(1)), Bytes(11_862_540_288 - 1_073_741_824));
    assert_eq!(left(Bytes::gib(64)), Bytes(0));
}

#[test]
fn a_build_without_devices_measures_on_the_cpu_and_limits_no_memory() {
    let target = choose_target(
        None,
        &build(&[Backend::Cpu], &[]),
        &laptop(),
        false,
        VRAM_RESERVE,
    )
    .unwrap();
    assert_eq!(target.backend, Backend::Cpu);
    assert!(target.memory_limits.is_empty());
    // Even one that could use Vulkan: on the real machine what it lists is what it uses.
    let lists_none = build(&[Backend::Cpu, Backend::Vulkan], &[]);
    let target = choose_target(None, &lists_none, &laptop(), false, VRAM_RESERVE).unwrap();
    assert_eq!(target.backend, Backend::Cpu);
}

#[test]
fn a_device_is_named_as_the_runtime_does_or_by_pci_address() {
    for wanted in ["Vulkan1", "vulkan1", "0000:01:00.0"] {
        let target = chosen(wanted, &vulkan()).unwrap();
        assert_eq!(target.device.as_deref(), Some("Vulkan1"), "{wanted}");
        assert_eq!(args(&target, Tool::Bench), ["-dev", "Vulkan1"]);
        // The driver's budget, not the 11,000 MiB the runtime reported, less 512 MiB.
        let limit = Bytes(11_862_540_288 - (512 << 20));
        assert_eq!(target.memory_limits, [("Vulkan1".to_owned(), limit)].into());
    }
    let target = chosen("CPU", &vulkan()).unwrap();
    assert_eq!(target.backend, Backend::Cpu);
    assert_eq!(args(&target, Tool::Bench), ["-dev", "none"]);
}

#[test]
fn a_device_that_is_not_listed_is_refused_with_those_that_are() {
    for wanted in ["Vulkan7", "0000:05:00.0", "RTX"] {
        let error = chosen(wanted, &vulkan()).unwrap_err();
        assert_eq!(error.code, "no-device");
        assert!(error.headline.contains(wanted), "{}", error.headline);
        let hint = error.hint.unwrap();
        assert!(hint.contains("Vulkan0, Vulkan1"), "{hint}");
    }
}

#[test]
fn a_pci_address_is_not_guessed_between_devices_of_one_name() {
    let twins = build(
        &[Backend::Cpu, Backend::Cuda, Backend::Vulkan],
        &[("CUDA0", NVIDIA), ("Vulkan1", NVIDIA)],
    );
    assert_eq!(
        chosen("0000:01:00.0", &twins).unwrap_err().code,
        "no-device"
    );
    assert_eq!(chosen("CUDA0", &twins).unwrap().backend, Backend::Cuda);
}

#[test]
fn on_an_exported_machine_a_build_that_lists_nothing_takes_what_it_would_use_there() {
    let gpus = laptop();
    let backend = |backends: &[Backend]| {
        let target = choose_target(None, &build(backends, &[]), &gpus, true, VRAM_RESERVE).unwrap();
        assert!(target.memory_limits.is_empty() && target.device.is_none());
        target.backend
    };
    // The default GPU is the discrete one, NVIDIA's.
    assert_eq!(
        backend(&[Backend::Cpu, Backend::Cuda, Backend::Vulkan]),
        Backend::Cuda
    );
    assert_eq!(
        backend(&[Backend::Cpu, Backend::Hip, Backend::Vulkan]),
        Backend::Vulkan
    );
    assert_eq!(backend(&[Backend::Cpu, Backend::Hip]), Backend::Cpu);
}

#[test]
fn a_device_of_an_unknown_name_is_the_only_usable_gpu_or_none() {
    let unknown = |gpus: &[Gpu]| {
        let runtime = build(&[Backend::Vulkan], &[("Vulkan0", "some other spelling")]);
        gpu_of(&runtime.devices[0], gpus).map(|g| g.name.clone())
    };
    let gpus = laptop();
    assert_eq!(unknown(&gpus), None, "two could be meant");
    let nvidia: Vec<Gpu> = gpus.into_iter().filter(|g| g.name == NVIDIA).collect();
    assert_eq!(unknown(&nvidia).as_deref(), Some(NVIDIA));
    assert_eq!(unknown(&[]), None);
}
