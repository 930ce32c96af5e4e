//! What the machine's state is told as.

use super::*;
use crate::domain::types::{Driver, Features, Heap, Host, Limits, VulkanEntry, VulkanReport};

fn quiet_machine() -> Machine {
    Machine {
        schema: Machine::SCHEMA,
        vulkan: VulkanReport {
            status: VulkanStatus::Ready {
                instance_version: "1.3.0".to_owned(),
            },
            entries: vec![card(&[(8192, false), (256, true)])],
        },
        system_gpus: vec![],
        host: Host {
            logical_cores: 12,
            ram_total: Bytes::gib(16),
            ram_available: Bytes::gib(12),
            on_battery: Some(false),
            power_plan: Some("performance".to_owned()),
            load_1min_centi: Some(10),
            ..Host::default()
        },
        telemetry: vec![],
        runtimes: vec![],
        inherited_env: std::collections::BTreeMap::new(),
        llama_configs: Vec::new(),
        simulated: false,
    }
}

fn card(heaps: &[(u64, bool)]) -> VulkanEntry {
    VulkanEntry {
        enumeration_index: 0,
        name: "RX 580".to_owned(),
        kind: DeviceKind::Discrete,
        vendor_id: 0x1002,
        device_id: 0x6fdf,
        pci: None,
        uuid: None,
        api_version: "1.3.217".to_owned(),
        driver: Driver {
            id: 1,
            id_name: String::new(),
            name: String::new(),
            info: String::new(),
            version_raw: 0,
            version: String::new(),
        },
        heaps: heaps
            .iter()
            .map(|&(mib, host_visible)| Heap {
                size: Bytes::mib(mib),
                budget: None,
                usage: None,
                device_local: true,
                host_visible,
            })
            .collect(),
        queue_families: vec![],
        limits: Limits::default(),
        features: Features::default(),
    }
}

fn codes(machine: &Machine, facts: &Facts) -> Vec<String> {
    findings(machine, facts)
        .into_iter()
        .map(|f| f.code)
        .collect()
}

fn with(change: impl FnOnce(&mut Machine)) -> Vec<String> {
    let mut machine = quiet_machine();
    machine.vulkan.entries = vec![card(&[(8192, true)])];
    change(&mut machine);
    codes(&machine, &Facts::default())
}

#[test]
fn a_quiet_machine_has_nothing_to_say() {
    assert!(with(|_| ()).is_empty());
}

#[test]
fn each_reading_has_its_finding() {
    assert_eq!(with(|m| m.host.on_battery = Some(true)), ["battery"]);
    assert_eq!(
        with(|m| m.host.power_plan = Some("Balanced".to_owned())),
        ["power-plan"]
    );
    for (plan, slow) in [
        ("performance (profile low-power)", true),
        ("powersave (profile balanced)", true),
        ("performance (profile balanced-performance)", false),
    ] {
        let found = with(|m| m.host.power_plan = Some(plan.to_owned()));
        assert_eq!(!found.is_empty(), slow, "{plan}");
    }
    assert_eq!(with(|m| m.host.load_1min_centi = Some(241)), ["load"]);
    assert!(with(|m| m.host.load_1min_centi = Some(240)).is_empty());
    assert_eq!(with(|m| m.host.ram_available = Bytes::gib(1)), ["ram"]);
    assert_eq!(
        with(|m| m.vulkan.entries[0].kind = DeviceKind::Software),
        ["software-gpu"]
    );
    assert_eq!(
        with(|m| m.vulkan.status = VulkanStatus::NoLoader {
            detail: String::new()
        }),
        ["no-vulkan"]
    );
    assert_eq!(
        with(|m| {
            m.inherited_env
                .insert("GGML_VK_DISABLE_F16".to_owned(), "1".to_owned());
        }),
        ["inherited-env"]
    );
}

#[test]
fn a_classic_window_means_no_resizable_bar_and_no_window_means_unknown() {
    assert_eq!(
        with(|m| m.vulkan.entries = vec![card(&[(8192, false), (256, true)])]),
        ["resizable-bar"]
    );
    assert!(with(|m| m.vulkan.entries = vec![card(&[(8192, false)])]).is_empty());
}

#[test]
fn facts_about_this_process_come_worst_first() {
    let facts = Facts {
        shader_cache_disabled: Some("true".to_owned()),
        shader_cache_unwritable: Some("/home/x/.cache/mesa_shader_cache".to_owned()),
        data_dir_unwritable: Some("/data".to_owned()),
        model_needs: Some(Bytes::gib(12)),
        ..Facts::default()
    };
    let mut machine = quiet_machine();
    machine.vulkan.entries = vec![card(&[(8192, true)])];
    machine.host.render_nodes = Some(RenderNodes::Denied);
    assert_eq!(
        codes(&machine, &facts),
        [
            "dri-permission",
            "data-dir",
            "ram-model",
            "shader-cache-disabled",
            "shader-cache-unwritable"
        ]
    );
}

#[test]
fn a_shader_cache_switch_that_is_off_is_no_finding() {
    let facts = Facts {
        shader_cache_disabled: Some("0".to_owned()),
        ..Facts::default()
    };
    let mut machine = quiet_machine();
    machine.vulkan.entries.clear();
    assert!(codes(&machine, &facts).is_empty());
}

#[test]
fn secrets_are_known_by_their_names() {
    assert!(is_secret("LLAMA_API_KEY") && is_secret("LLAMA_ARG_HF_TOKEN"));
    assert!(!is_secret("GGML_VK_DISABLE_F16"));
}
