//! Every exported machine: grouped GPUs, fingerprint fields and hash as snapshots, and the key facts by hand
//! (cases C11, C12, C17–C22).
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use flux::domain::fingerprint::{diff, fingerprint, machine_fields};
use flux::domain::machine::{Gpu, default_gpu, gpus, no_gpu};
use flux::domain::types::{
    Backend, Bytes, DeviceKind, Machine, RenderNodes, Runtime, RuntimeOrigin,
};
use flux::ports::MachineProbe as _;
use flux::probe::{FixtureProbe, MACHINE_FILE, export};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/machines")
        .join(name)
}

fn machine(name: &str) -> Machine {
    FixtureProbe::load(&folder(name)).unwrap().machine()
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder(""))
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.path().is_dir())
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn value(machine: &Machine, field: &str) -> Option<String> {
    let fields = machine_fields(machine);
    fields.into_iter().find(|(n, _)| n == field).map(|(_, v)| v)
}

fn only(found: &[Gpu]) -> &Gpu {
    assert_eq!(found.len(), 1);
    &found[0]
}

#[test]
fn every_machine_reads_as_recorded() {
    for name in names() {
        let machine = machine(&name);
        let found = gpus(&machine);
        // The preferred entry repeats the input; its place in the list says which it is.
        let shown: Vec<serde_json::Value> = found
            .iter()
            .map(|gpu| {
                let mut value = serde_json::to_value(gpu).unwrap();
                value["preferred"] = gpu.preferred.as_ref().map(|e| e.enumeration_index).into();
                value
            })
            .collect();
        let document = serde_json::json!({
            "gpus": shown,
            "default": default_gpu(&found).map(|g| g.name.clone()),
            "no_gpu": no_gpu(&machine, &found),
            "fingerprint": fingerprint(&machine, None),
        });
        insta::assert_json_snapshot!(name, document);
    }
}

#[test]
fn no_two_machines_share_a_fingerprint() {
    let hashes: BTreeSet<String> = names()
        .iter()
        .map(|n| fingerprint(&machine(n), None).hash)
        .collect();
    assert_eq!(hashes.len(), names().len());
}

#[test]
fn the_papers_card_is_a_cut_down_polaris_with_7_75_gib() {
    let found = gpus(&machine("rx580-2048sp"));
    let card = only(&found);
    assert_eq!(card.id(), "1002:6fdf");
    assert_eq!(card.architecture.label(), "Polaris (GCN 4)");
    assert_eq!(
        card.architecture.note.as_deref(),
        Some("cut-down Polaris 20, 2048 shaders")
    );
    assert_eq!(card.product.as_deref(), Some("Radeon RX 580 2048SP"));
    let memory = card.memory.as_ref().unwrap();
    assert_eq!(memory.vram, Bytes(8_321_499_136));
    assert_eq!(memory.vram.to_string(), "7.75 GiB");
    assert_eq!(memory.budget, Some(Bytes(8_310_034_432)));
    // 8321499136 + 268435456
    assert_eq!(memory.sum, Bytes(8_589_934_592));
    assert_eq!(memory.resizable_bar, Some(false));
    assert!(!memory.shared_with_ram && card.usable);
    let entry = card.preferred.as_ref().unwrap();
    assert!(!entry.features.int8_dot_accelerated && !entry.features.fp16);
}

#[test]
fn the_hash_is_what_sha256sum_says_of_the_fields() {
    // printf 'CPU=Intel(R) Core(TM) i5-6500 CPU @ 3.20GHz\nCPU cores=4 cores, 4 threads\nCPU architecture=x86_64\n
    //   RAM size=16 GiB\nOS=Debian GNU/Linux 12\nKernel=6.1\n' | sha256sum
    assert_eq!(
        fingerprint(&machine("none"), None).hash,
        "d91350619f72b924983f37443855fceb02e5e40c9c4ef103a16d8244b2944b08"
    );
}

#[test]
fn a_servers_display_chip_is_listed_and_is_no_gpu() {
    let mut server = machine("none");
    let mut chip = machine("rtx-4070").system_gpus[0].clone();
    (chip.vendor_id, chip.device_id) = (0x1a03, 0x2000);
    server.system_gpus.push(chip);
    let found = gpus(&server);
    assert_eq!(only(&found).kind, DeviceKind::Other);
    assert_eq!(machine_fields(&server), machine_fields(&machine("none")));
    let hints = no_gpu(&server, &found).unwrap().hints;
    assert!(hints.iter().all(|h| !h.contains("ASPEED")), "{hints:?}");
}

#[test]
fn another_polaris_chip_under_the_same_name_is_another_fingerprint() {
    let ours = machine("rx580-2048sp");
    let mut standard = ours.clone();
    standard.vulkan.entries[0].device_id = 0x67df;
    standard.system_gpus[0].device_id = 0x67df;
    let (old, new) = (fingerprint(&ours, None), fingerprint(&standard, None));
    assert_ne!(old.hash, new.hash);
    let changes = diff(&old, &new);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].field, "GPU 1 PCI id");
    assert_eq!(changes[0].old.as_deref(), Some("1002:6fdf"));
    assert_eq!(changes[0].new.as_deref(), Some("1002:67df"));
}

#[test]
fn an_unknown_id_of_a_known_vendor_leaves_the_decision_to_features() {
    let mut unknown = machine("rx580-2048sp");
    unknown.vulkan.entries[0].device_id = 0x7fff;
    let found = gpus(&unknown);
    assert_eq!(found[0].architecture.family, None);
    assert!(found[0].usable && found[0].preferred.is_some());
}

#[test]
fn one_card_under_two_drivers_is_one_gpu_with_the_native_driver_first() {
    let found = gpus(&machine("one-gpu-two-drivers"));
    let card = only(&found);
    assert_eq!(card.name, "AMD Radeon RX 6800 XT");
    assert_eq!(card.architecture.family.as_deref(), Some("RDNA 2"));
    let drivers: Vec<(&str, u32, bool)> = card
        .drivers
        .iter()
        .map(|d| (d.name.as_str(), d.raw_index, d.translation))
        .collect();
    assert_eq!(
        drivers,
        [("AMD proprietary driver", 1, false), ("Dozen", 0, true)]
    );
    // Capabilities come from the native entry: 65536 bytes of shared memory, not Dozen's 32768.
    let entry = card.preferred.as_ref().unwrap();
    assert_eq!(entry.limits.max_shared_memory, 65536);
    assert_eq!(card.memory.as_ref().unwrap().vram, Bytes(17_163_091_968));
    assert_eq!(card.llama_index(), Some(0));
}

#[test]
fn two_identical_cards_each_keep_their_own_translation_entry() {
    let mut two = machine("one-gpu-two-drivers");
    let mut more = two.vulkan.entries.clone();
    more[0].uuid = Some("d8".repeat(16));
    more[1].pci = Some("0000:0c:00.0".parse().unwrap());
    more[1].uuid = Some("0c".repeat(16));
    two.vulkan.entries.extend(more);
    for (index, entry) in (0..).zip(&mut two.vulkan.entries) {
        entry.enumeration_index = index;
    }
    let found = gpus(&two);
    let raw: Vec<Vec<u32>> = found
        .iter()
        .map(|g| g.drivers.iter().map(|d| d.raw_index).collect())
        .collect();
    assert_eq!(raw, [[1, 0], [3, 2]]);
}

#[test]
fn the_five_entry_list_has_two_gpus_and_both_numbers_of_each() {
    let found = gpus(&machine("radv-amdvlk-list"));
    let places: Vec<(DeviceKind, Option<u32>, Option<u32>)> = found
        .iter()
        .map(|g| (g.kind, g.raw_index(), g.llama_index()))
        .collect();
    assert_eq!(
        places,
        [
            (DeviceKind::Discrete, Some(1), Some(0)),
            // Case C18: the integrated GPU is raw 2, compact 1.
            (DeviceKind::Integrated, Some(2), Some(1)),
            (DeviceKind::Software, Some(0), None),
        ]
    );
    let card = &found[0];
    assert_eq!(card.drivers.len(), 2);
    assert_eq!(card.drivers[0].name, "radv");
    assert_eq!(card.drivers[1].llama_index, None);
    assert_eq!(card.memory.as_ref().unwrap().resizable_bar, Some(true));
    assert_eq!(card.kernel_driver.as_deref(), Some("amdgpu"));
    assert_eq!(found[2].drivers.len(), 2, "the same renderer listed twice");
    let fields = machine_fields(&machine("radv-amdvlk-list"));
    assert!(
        !fields
            .iter()
            .any(|(n, v)| n.starts_with("GPU 3") || v.contains("llvmpipe"))
    );
}

#[test]
fn a_better_driver_seen_later_moves_its_gpu_to_the_end_of_llamas_list() {
    let mut list = machine("radv-amdvlk-list");
    list.vulkan.entries.swap(1, 3);
    for (index, entry) in (0..).zip(&mut list.vulkan.entries) {
        entry.enumeration_index = index;
    }
    // Now AMDVLK's card is 1, the integrated GPU 2, RADV's card 3: the card is taken over at the end.
    let found = gpus(&list);
    assert_eq!(
        (found[0].raw_index(), found[0].llama_index()),
        (Some(3), Some(1))
    );
    assert_eq!(
        (found[1].raw_index(), found[1].llama_index()),
        (Some(2), Some(0))
    );
}

#[test]
fn a_laptops_card_comes_before_its_integrated_gpu_whatever_the_memory() {
    let found = gpus(&machine("hybrid-laptop"));
    assert_eq!(found.len(), 2);
    let memory = |g: &Gpu| g.memory.clone().unwrap();
    assert_eq!(default_gpu(&found).unwrap().id(), "10de:27e0");
    assert!(memory(&found[1]).vram > memory(&found[0]).vram);
    assert!(memory(&found[1]).shared_with_ram && !memory(&found[0]).shared_with_ram);
    assert_eq!(memory(&found[0]).resizable_bar, Some(false));
    assert_eq!(memory(&found[1]).resizable_bar, None);
}

#[test]
fn split_device_memory_shows_its_largest_heap_and_its_sum_apart() {
    let found = gpus(&machine("apu-8060s"));
    let memory = only(&found).memory.as_ref().unwrap();
    assert_eq!((memory.vram, memory.sum), (Bytes::gib(64), Bytes::gib(96)));
    assert!(memory.shared_with_ram);
}

#[test]
fn capabilities_of_the_other_cards() {
    let rtx = gpus(&machine("rtx-4070"));
    let card = only(&rtx);
    assert_eq!(card.architecture.family.as_deref(), Some("Ada Lovelace"));
    let features = &card.preferred.as_ref().unwrap().features;
    assert!(features.cooperative_matrix && features.cooperative_matrix2 && features.bfloat16);
    let arc = gpus(&machine("arc-b580"));
    assert_eq!(only(&arc).architecture.label(), "Battlemage (Xe2)");
    assert_eq!(arc[0].memory.as_ref().unwrap().resizable_bar, Some(true));
}

#[test]
fn without_a_gpu_the_reason_and_the_next_step_are_said() {
    let headline = |name: &str| {
        let machine = machine(name);
        let found = gpus(&machine);
        no_gpu(&machine, &found).unwrap().headline
    };
    assert_eq!(
        headline("none"),
        "No usable Vulkan GPU (no Vulkan loader on this machine): CPU only"
    );
    assert_eq!(
        headline("lavapipe"),
        "No usable Vulkan GPU (only a software renderer): CPU only"
    );
    for name in ["none", "lavapipe"] {
        let fields = machine_fields(&machine(name));
        assert!(!fields.iter().any(|(n, _)| n.starts_with("GPU")), "{name}");
    }
    assert!(no_gpu(&machine("rtx-4070"), &gpus(&machine("rtx-4070"))).is_none());
}

#[test]
fn a_gpu_that_only_the_os_lists_is_shown_with_its_driver_package() {
    let mut bare = machine("rtx-4070");
    bare.vulkan.entries.clear();
    bare.host.render_nodes = Some(RenderNodes::Denied);
    let found = gpus(&bare);
    let card = only(&found);
    assert_eq!(card.name, "GeForce RTX 4070");
    assert!(!card.usable && card.kind == DeviceKind::Discrete);
    assert_eq!(
        card.remark.as_deref(),
        Some("no Vulkan driver shows it (kernel driver nvidia)")
    );
    let advice = no_gpu(&bare, &found).unwrap();
    assert_eq!(
        advice.headline,
        "No usable Vulkan GPU (the Vulkan drivers found no device): CPU only, unless the build brings its own \
         backend (CUDA, HIP, SYCL)"
    );
    let hints = advice.hints;
    assert!(hints[0].contains("group render"), "{hints:?}");
    assert!(hints[1].starts_with("GeForce RTX 4070 has no Vulkan driver: install nvidia-driver"));
    // A CUDA build can still use it: it stays part of the machine's identity.
    assert_eq!(value(&bare, "GPU 1 PCI id").as_deref(), Some("10de:2786"));
    assert_eq!(
        value(&bare, "GPU 1 kernel driver version").as_deref(),
        Some("580.95.05")
    );
}

#[test]
fn what_invalidates_a_result_is_a_field_of_its_own() {
    let old = machine("rx580-2048sp");
    assert_eq!(
        value(&old, "GPU 1 driver release").as_deref(),
        Some("22.20.27.09")
    );
    assert_eq!(value(&old, "GPU 1 VRAM").as_deref(), Some("7936 MiB"));
    assert_eq!(value(&old, "RAM size").as_deref(), Some("16 GiB"));
    let mut new = old.clone();
    "26.5.2".clone_into(&mut new.vulkan.entries[0].driver.info);
    new.host.ram_total = Bytes::gib(32);
    let changes = diff(&fingerprint(&old, None), &fingerprint(&new, None));
    let fields: Vec<&str> = changes.iter().map(|c| c.field.as_str()).collect();
    assert_eq!(fields, ["GPU 1 driver release", "RAM size"]);
}

#[test]
fn variables_kept_with_a_build_are_a_field_of_the_fingerprint() {
    let machine = machine("rx580-2048sp");
    let plain = runtime("d");
    let mut with = plain.clone();
    let variable = ("HSA_OVERRIDE_GFX_VERSION".to_owned(), "10.3.0".to_owned());
    with.env.extend([variable]);
    let of = |runtime| fingerprint(&machine, Some(runtime));
    let changes = diff(&of(&plain), &of(&with));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].field, "Runtime environment");
    let new = changes[0].new.as_deref();
    assert_eq!(new, Some("HSA_OVERRIDE_GFX_VERSION=10.3.0"));
}

fn runtime(digest: &str) -> Runtime {
    Runtime {
        name: "b11149".to_owned(),
        dir: PathBuf::from("/home/someone/builds/b11149-vulkan"),
        bench: Some(PathBuf::from(
            "/home/someone/builds/b11149-vulkan/llama-bench",
        )),
        server: None,
        build_number: 0,
        build_commit: "unknown".to_owned(),
        version_text: "version: 0 (unknown)".to_owned(),
        digest: digest.to_owned(),
        backends: BTreeSet::from([Backend::Cpu, Backend::Vulkan]),
        cpu_variant: None,
        devices: Vec::new(),
        bench_flags: BTreeSet::new(),
        server_flags: BTreeSet::new(),
        bench_defaults: std::collections::BTreeMap::new(),
        origin: RuntimeOrigin::Added,
        env: std::collections::BTreeMap::new(),
    }
}

#[test]
fn two_archive_builds_differ_by_their_digest_alone() {
    let machine = machine("none");
    let of = |digest: &str| fingerprint(&machine, Some(&runtime(digest)));
    let changes = diff(&of("aa"), &of("bb"));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].field, "Runtime digest");
    assert_ne!(of("aa").hash, fingerprint(&machine, None).hash);
}

#[test]
fn an_export_comes_back_the_same_without_anyones_paths() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mine");
    let mut original = machine("rtx-4070");
    original.inherited_env.insert(
        "LLAMA_CACHE".to_owned(),
        "/home/someone/.cache/llama".to_owned(),
    );
    let mut build = runtime("aa");
    let variable = ("ROCM_PATH".to_owned(), "/home/someone/rocm".to_owned());
    build.env.extend([variable]);
    let path = export(&original, &[build], &target).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("someone") && text.ends_with("}\n"), "{text}");
    let probe = FixtureProbe::load(&target).unwrap();
    assert_eq!(probe.runtimes()[0].dir, Path::new("b11149-vulkan"));
    let back = probe.machine();
    assert!(back.simulated && back.runtimes.is_empty());
    assert_eq!(back.vulkan, original.vulkan);
    assert_eq!(fingerprint(&back, None), fingerprint(&original, None));
    let again = export(&original, &[], &target).unwrap_err();
    assert!(
        again
            .headline
            .starts_with("the folder to export to is not empty")
    );
}

#[test]
fn a_missing_broken_or_newer_export_is_one_clear_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let error = |text: Option<&str>| {
        if let Some(text) = text {
            fs::write(dir.path().join(MACHINE_FILE), text).unwrap();
        }
        FixtureProbe::load(dir.path()).unwrap_err()
    };
    let missing = error(None);
    assert!(
        missing
            .headline
            .starts_with("the exported machine cannot be read: ")
    );
    assert!(missing.hint.unwrap().contains("flux scan --export"));
    for broken in ["", "{", "[]", "{\"schema\": 1}", "{\"schema\": \"x\"}"] {
        let e = error(Some(broken));
        assert!(
            e.headline.starts_with("not an exported machine: "),
            "{broken}: {e}"
        );
    }
    let newer = error(Some("{\"schema\": 2, \"future\": true}"));
    assert!(
        newer
            .headline
            .contains("newer Flux (schema 2, this one reads up to 1)")
    );
    assert_eq!(newer.hint.as_deref(), Some("update Flux"));
}

proptest! {
    #[test]
    fn changing_readings_never_change_the_fingerprint(
        which in 0usize..9,
        available in any::<u32>(),
        load in proptest::option::of(any::<u32>()),
        battery in proptest::option::of(any::<bool>()),
        budget in proptest::option::of(any::<u32>()),
    ) {
        let all = names();
        let before = machine(&all[which % all.len()]);
        let mut after = before.clone();
        after.host.ram_available = Bytes(available.into());
        after.host.load_1min_centi = load;
        after.host.on_battery = battery;
        after.host.power_plan = load.map(|n| n.to_string());
        after.host.render_nodes = None;
        after.telemetry.clear();
        after.inherited_env.insert("GGML_X".to_owned(), "1".to_owned());
        for heap in after.vulkan.entries.iter_mut().flat_map(|e| &mut e.heaps) {
            heap.budget = budget.map(|b| Bytes(b.into()));
            heap.usage = budget.map(|b| Bytes(b.into()));
        }
        prop_assert_eq!(fingerprint(&before, None), fingerprint(&after, None));
    }

    #[test]
    fn every_entry_belongs_to_exactly_one_gpu(order in Just((0..5usize).collect::<Vec<_>>()).prop_shuffle()) {
        let mut list = machine("radv-amdvlk-list");
        let entries = list.vulkan.entries.clone();
        list.vulkan.entries = order.iter().map(|&i| entries[i].clone()).collect();
        for (index, entry) in (0..).zip(&mut list.vulkan.entries) {
            entry.enumeration_index = index;
        }
        let found = gpus(&list);
        let mut raw: Vec<u32> = found.iter().flat_map(|g| g.drivers.iter().map(|d| d.raw_index)).collect();
        raw.sort_unstable();
        prop_assert_eq!(raw, vec![0, 1, 2, 3, 4]);
        prop_assert_eq!(found.len(), 3);
        prop_assert_eq!(fingerprint(&list, None).hash, fingerprint(&machine("radv-amdvlk-list"), None).hash);
    }
}
