//! Reported situations around llama-bench runs, by number (`cases.md`), each through the real runner.
#![cfg(feature = "test-support")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;

use std::path::PathBuf;

use bench_runs::{CARD, CARD_TOML, failed, failed_as, is_alone, request, run, run_scripted, valid};
use fake_runtime::FakeRuntime;
use flux::domain::types::{FailureClass, RunRequest};
use serde_json::json;

fn doing(act: &str) -> String {
    format!("[[behaviour]]\ndo = {act}\n")
}

fn args(request: &mut RunRequest, args: &[&str]) {
    request.launch.args = args.iter().map(|a| (*a).to_owned()).collect();
}

#[test]
fn c01_noise_around_the_document_is_tolerated() {
    let run = run_scripted(&(doing("\"noise\"") + &doing("\"array\"")));
    assert_eq!(valid(&run).len(), 2);
    assert!(run.raw.stdout.contains("WARNING: radv"));
}

#[cfg(unix)]
#[test]
fn c01_a_crash_after_a_complete_document_is_a_failed_run() {
    let run = run_scripted(&(doing("\"array\"") + &doing("\"crash-after-output\"")));
    let detail = failed_as(&run, FailureClass::CrashAtExit);
    assert_eq!(detail, "llama-bench printed results but ended with SIGSEGV");
    assert_eq!(failed(&run).1, 2, "kept as evidence");
    assert_eq!(run.raw.signal, Some(11));
}

#[test]
fn c02_effective_values_compare_across_builds() {
    let fake = FakeRuntime::new(&doing("{ effective = { flash_attn = true } }"));
    let mut request = request(&fake);
    args(&mut request, &["-fa", "on"]);
    request.expect.insert("flash_attn".into(), json!(1));
    // A field an older build does not print cannot be compared.
    request.expect.insert("some_newer_field".into(), json!("x"));
    valid(&run(&request));
}

#[test]
fn c03_a_cut_document_is_salvaged_and_failed() {
    let run = run_scripted(&doing("\"truncated\""));
    let (failure, salvaged) = failed(&run);
    assert_eq!(failure.class, FailureClass::ExitStatus);
    assert_eq!(salvaged, 1);
}

#[test]
fn c03_nan_is_a_failed_run_not_a_slow_one() {
    let run = run_scripted(&doing("\"print-nan\""));
    failed_as(&run, FailureClass::InvalidSample);
}

#[test]
fn c04_a_header_without_rows_is_no_results() {
    let run = run_scripted(&doing("\"header-only\""));
    failed_as(&run, FailureClass::NoResults);
}

#[test]
fn c04_a_header_before_a_lost_device_has_the_devices_class() {
    let run = run_scripted(&(doing("\"device-lost\"") + &doing("\"header-only\"")));
    let detail = failed_as(&run, FailureClass::DeviceLostTimeout);
    assert!(!detail.is_empty());
}

#[test]
fn c05_the_backends_column_proves_nothing() {
    // The record says backends = Vulkan, as a build without any device does.
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    let stock = run(&request);
    assert_eq!(valid(&stock)[0].record["backends"], "Vulkan");
    request.gpu_required = true;
    failed_as(&run(&request), FailureClass::GpuNotUsed);

    let fake = FakeRuntime::new(CARD_TOML);
    let mut request = bench_runs::request(&fake);
    request.gpu_required = true;
    valid(&run(&request));
    args(&mut request, &["-ngl", "0"]);
    failed_as(&run(&request), FailureClass::GpuNotUsed);
}

#[test]
fn c06_a_split_read_as_two_tests_is_a_failed_run() {
    let fake = FakeRuntime::new(CARD_TOML);
    let mut request = request(&fake);
    args(&mut request, &["-ts", "1,9"]);
    let run_of = run(&request);
    let detail = failed_as(&run_of, FailureClass::WrongTests);
    assert!(
        detail.starts_with("tool read the split as two tests"),
        "{detail}"
    );
    args(&mut request, &["-ts", "1/9"]);
    valid(&run(&request));
}

/// Started again under a parent that has the variable.
#[test]
fn c10_an_inherited_switch_never_reaches_the_baseline() {
    const SWITCH: &str = "GGML_VK_ALLOW_GRAPHICS_QUEUE";
    let inherited = [(SWITCH, "0"), ("LLAMA_ARG_THREADS", "7")];
    if !is_alone(
        "c10_an_inherited_switch_never_reaches_the_baseline",
        &inherited,
    ) {
        return;
    }
    assert!(std::env::var_os(SWITCH).is_some());
    let fake = FakeRuntime::new("");
    let mut request = request(&fake);
    let stock = run(&request);
    assert_eq!(valid(&stock)[0].record["fake_env"], json!([]));
    request.launch.env.insert(SWITCH.into(), "1".into());
    let candidate = run(&request);
    assert_eq!(valid(&candidate)[0].record["fake_env"], json!([SWITCH]));
}

#[test]
fn c13_c14_c15_lost_devices_are_told_apart() {
    let class = |lines: &str| {
        let script = doing(&format!("{{ abort = '''{lines}''' }}"));
        failed(&run_scripted(&script)).0.class
    };
    assert_eq!(
        class(
            "radv/amdgpu: Not enough memory for command submission.\nvk::Queue::submit: ErrorDeviceLost"
        ),
        FailureClass::MemoryOverCommit
    );
    assert_eq!(
        class("vk::Device::waitForFences: ErrorDeviceLost"),
        FailureClass::DeviceLostTimeout
    );
    assert_eq!(
        class("vk::PhysicalDevice::createDevice: ErrorDeviceLost"),
        FailureClass::DeviceCreation
    );
}

#[test]
fn c16_the_buffers_of_a_run_are_known() {
    let fake = FakeRuntime::new(CARD_TOML);
    let mut request = request(&fake);
    request.log_buffers = true;
    let run = run(&request);
    let card = run.buffers.iter().find(|b| b.device == "Vulkan0").unwrap();
    assert!((card.total().as_mib() - (2375.91 + 72.0 + 301.75)).abs() < 1e-6);
}

#[test]
fn c18_another_card_under_the_same_number_is_a_failed_run() {
    let other = CARD_TOML.replace("RX 580 2048SP", "RX 6600");
    for log_buffers in [false, true] {
        let fake = FakeRuntime::new(&other);
        let mut request = request(&fake);
        request.log_buffers = log_buffers;
        args(&mut request, &["-dev", CARD.0]);
        let run_of = run(&request);
        let detail = failed_as(&run_of, FailureClass::WrongDevice);
        assert!(detail.contains("RX 6600"), "{detail}");
    }
    let fake = FakeRuntime::new(CARD_TOML);
    let mut request = request(&fake);
    args(&mut request, &["-dev", CARD.0]);
    valid(&run(&request));
}

#[test]
fn c21_a_gpu_run_on_the_cpu_is_a_failed_run() {
    let fake = FakeRuntime::new(&(doing("\"no-gpu\"") + CARD_TOML));
    let mut request = request(&fake);
    valid(&run(&request));
    request.gpu_required = true;
    let run = run(&request);
    let detail = failed_as(&run, FailureClass::GpuNotUsed);
    assert!(detail.contains("no usable GPU found"), "{detail}");
}

#[test]
fn c37_other_effective_settings_are_a_failed_run() {
    let fake = FakeRuntime::new(&doing("{ effective = { n_gpu_layers = 20 } }"));
    let mut request = request(&fake);
    args(&mut request, &["-ngl", "37"]);
    request.expect.insert("n_gpu_layers".into(), json!(37));
    let run = run(&request);
    let detail = failed_as(&run, FailureClass::EffectiveMismatch);
    assert_eq!(
        detail,
        "asked for n_gpu_layers = 37, the record of pp512 says 20"
    );
}

#[test]
fn c37_layers_lowered_behind_the_record_are_seen_in_the_log() {
    let fake = FakeRuntime::new(&("layers = 20\n".to_owned() + CARD_TOML));
    let mut request = request(&fake);
    request.log_buffers = true;
    args(&mut request, &["-ngl", "20"]);
    request.expect.insert("n_gpu_layers".into(), json!(20));
    valid(&run(&request));
    request.expect.insert("n_gpu_layers".into(), json!(12));
    failed_as(&run(&request), FailureClass::EffectiveMismatch);
}

#[test]
fn c40_a_cold_first_repetition_is_kept() {
    let run = run_scripted("first_factor = 0.5\n");
    let rates = valid(&run)[0].rates();
    assert_eq!(rates.len(), 3);
    assert!((rates[0] - 93.5).abs() < 1e-3);
    assert!((rates[1] - 187.0).abs() < 1e-3);
}

#[test]
fn c44_spaces_quotes_and_signs_reach_the_tool_unharmed() {
    let name = "it's a \"model\" & 100% (v1) #2.gguf";
    let fake = FakeRuntime::in_folder("AI LLMS, it's mine", "");
    let mut request = request(&fake);
    request.model = PathBuf::from("some folder").join(name);
    let run = run(&request);
    let seen = &valid(&run)[0].record["model_filename"];
    assert_eq!(seen.as_str(), request.model.to_str());
}

#[test]
fn c45_bytes_that_are_no_utf8_do_not_stop_the_numbers() {
    let run = run_scripted(&doing("\"non-utf8\""));
    assert_eq!(valid(&run).len(), 2);
    assert!(run.raw.stdout.contains('\u{fffd}'));
}
