//! From an ended llama-bench to the outcome of its run: valid samples of exactly what was asked for, or a failure
//! with its class (paper section 3, rule 2; design section 5; cases C01, C03–C06, C18, C21, C37).

use serde_json::Value;

use crate::domain::bench_record::{Parsed, ProblemKind, Record, parse};
use crate::domain::text::{count, excerpt};
use crate::domain::types::{Failure, FailureClass, RunOutcome, RunRequest, TestSamples, TestSpec};
use crate::runtime::failure::{classify, signal_name};
use crate::runtime::log::LogFacts;
use crate::runtime::process::Ended;

use super::args::labels;

/// Restricts and renumbers Vulkan devices: names listed without it do not apply (case C18).
const VULKAN_LIST: &str = "GGML_VK_VISIBLE_DEVICES";
/// Starts of stdout lines that are no results and no surprise: Markdown's table, banners.
const EXPECTED_NOISE: [&str; 6] = [
    "|",
    "ggml_",
    "load_backend:",
    "WARNING",
    "build:",
    "Device ",
];

/// Judges a process that ended by itself. `is_verbose`: its log was asked for, so buffer lines must be there.
pub(super) fn judge(
    request: &RunRequest,
    ended: &Ended,
    facts: &LogFacts,
    is_verbose: bool,
) -> RunOutcome {
    let parsed = parse(ended.stdout.as_bytes());
    let checked = check_output(request, ended, &parsed)
        .and_then(|()| check_gpu(request, facts, &parsed.records, is_verbose))
        .and_then(|()| check_device(request, facts))
        .and_then(|()| check_effective(request, facts, &parsed.records));
    match checked {
        Ok(()) => RunOutcome::Valid {
            tests: in_order(&request.tests, &parsed.records),
        },
        Err(failure) => RunOutcome::Failed {
            failure,
            salvaged: parsed.salvaged(),
        },
    }
}

fn fail(class: FailureClass, detail: impl Into<String>) -> Result<(), Failure> {
    Err(Failure::new(class, detail))
}

/// Ended well, with exactly the tests asked for and every sample valid.
fn check_output(request: &RunRequest, ended: &Ended, parsed: &Parsed) -> Result<(), Failure> {
    let got: Vec<TestSpec> = parsed.records.iter().map(|r| r.test).collect();
    let is_same_set = sorted(&got) == sorted(&request.tests);
    if !ended.is_success() {
        return Err(if is_same_set && parsed.complete {
            crash_at_exit(ended)
        } else {
            classify(ended)
        });
    }
    if got.is_empty() && parsed.problems.is_empty() {
        return Err(no_results(ended, parsed));
    }
    if !parsed.complete {
        return fail(
            FailureClass::Unparsable,
            format!("the output ends inside a record, after {} whole", got.len()),
        );
    }
    if let Some(problem) = parsed.problems.first() {
        let class = match problem.kind {
            ProblemKind::InvalidSample => FailureClass::InvalidSample,
            ProblemKind::NotARecord => FailureClass::Unparsable,
        };
        return fail(class, problem.message.clone());
    }
    if !is_same_set {
        let (asked, got) = (labels(&request.tests), labels(&got));
        return fail(
            FailureClass::WrongTests,
            format!(
                "tool read the split as two tests, or left one out: asked for {asked}; got {got}"
            ),
        );
    }
    let wanted = request.repetitions as usize;
    match parsed.records.iter().find(|r| r.samples_ns.len() != wanted) {
        Some(r) => fail(
            FailureClass::WrongTests,
            format!(
                "{} came with {}, not {wanted}",
                r.test,
                count(r.samples_ns.len() as u64, "repetition")
            ),
        ),
        None => Ok(()),
    }
}

fn sorted(tests: &[TestSpec]) -> Vec<TestSpec> {
    let mut tests = tests.to_vec();
    tests.sort_unstable();
    tests
}

fn in_order(tests: &[TestSpec], records: &[Record]) -> Vec<TestSamples> {
    let of = |test: &TestSpec| records.iter().find(|r| r.test == *test);
    tests.iter().filter_map(of).map(Record::samples).collect()
}

fn crash_at_exit(ended: &Ended) -> Failure {
    let how = match (ended.signal, ended.exit_code) {
        (Some(signal), _) => signal_name(signal),
        (None, Some(code)) => format!("status {code}"),
        (None, None) => "no status".to_owned(),
    };
    Failure::new(
        FailureClass::CrashAtExit,
        format!("llama-bench printed results but ended with {how}"),
    )
}

/// Status 0 and not one record: an empty table, or something that is no llama-bench.
fn no_results(ended: &Ended, parsed: &Parsed) -> Failure {
    let is_strange = |line: &&String| {
        let line = line.trim();
        !line.is_empty() && !EXPECTED_NOISE.iter().any(|p| line.starts_with(p))
    };
    match parsed.noise_lines.iter().find(is_strange) {
        Some(line) => Failure::new(
            FailureClass::Unparsable,
            format!("no record in the output, but: {}", excerpt(line)),
        ),
        None => classify(ended),
    }
}

/// A GPU run must show the GPU: devices, layers, buffer lines; never the `backends` column (cases C05, C21).
fn check_gpu(
    request: &RunRequest,
    facts: &LogFacts,
    records: &[Record],
    is_verbose: bool,
) -> Result<(), Failure> {
    if !request.gpu_required {
        return Ok(());
    }
    let any = |test: fn(&Record) -> bool| records.iter().any(test);
    let what = if facts.no_usable_gpu {
        "the log says: no usable GPU found"
    } else if any(|r| r.text("devices") == Some("none")) {
        "the record says devices = none"
    } else if any(|r| r.text("gpu_info") == Some("")) {
        "the build saw no GPU: gpu_info is empty"
    } else if any(|r| r.n_gpu_layers() == Some(0)) {
        "the record says n_gpu_layers = 0"
    } else if matches!(facts.offloaded, Some((0, _))) {
        "the log says: offloaded 0 layers to GPU"
    } else if is_verbose && !facts.has_gpu_buffers() {
        "no GPU buffer line in the log"
    } else {
        return Ok(());
    };
    fail(FailureClass::GpuNotUsed, what)
}

/// The device named in the log must be the one asked for, by number and by name (case C18).
fn check_device(request: &RunRequest, facts: &LogFacts) -> Result<(), Failure> {
    let wanted = wanted_devices(&request.launch.args);
    if wanted.is_empty() {
        return Ok(());
    }
    let stray = facts.used.iter().find(|u| !wanted.contains(&u.id.as_str()));
    if let Some(used) = stray {
        return fail(
            FailureClass::WrongDevice,
            format!(
                "asked for {}, ran on {} ({})",
                wanted.join("/"),
                used.id,
                used.name
            ),
        );
    }
    if request.launch.env.contains_key(VULKAN_LIST) {
        return Ok(());
    }
    let listed = request.runtime.devices.iter();
    for device in listed.filter(|d| wanted.contains(&d.id.as_str())) {
        let used = facts.used.iter().find(|u| u.id == device.id);
        let other = match (used, facts.banner.get(&device.id)) {
            (Some(used), _) if used.name != device.name => &used.name,
            // The banner puts the driver in brackets behind the name.
            (None, Some(banner)) if !banner.starts_with(&device.name) => banner,
            _ => continue,
        };
        return fail(
            FailureClass::WrongDevice,
            format!(
                "{} was {} when listed and is {other} now",
                device.id, device.name
            ),
        );
    }
    Ok(())
}

/// Devices named by `-dev` or `--device`; none when it is left to the tool.
fn wanted_devices(args: &[String]) -> Vec<&str> {
    let value = args
        .windows(2)
        .rev()
        .find(|pair| pair[0] == "-dev" || pair[0] == "--device");
    let names = value.map(|pair| pair[1].split('/'));
    names
        .into_iter()
        .flatten()
        .filter(|name| !matches!(*name, "none" | "auto"))
        .collect()
}

/// Every effective value equals the one asked for; fields a build does not print cannot be compared (case C37).
fn check_effective(
    request: &RunRequest,
    facts: &LogFacts,
    records: &[Record],
) -> Result<(), Failure> {
    for record in records {
        for (field, asked) in &request.expect {
            let Some(got) = record.raw.get(field) else {
                continue;
            };
            if canonical(field, asked) != canonical(field, got) {
                return fail(
                    FailureClass::EffectiveMismatch,
                    format!(
                        "asked for {field} = {asked}, the record of {} says {got}",
                        record.test
                    ),
                );
            }
        }
    }
    let layers = request.expect.get("n_gpu_layers").and_then(Value::as_i64);
    if let (Some(layers @ 0..), Some((done, all))) = (layers, facts.offloaded)
        && i64::from(done) != layers.min(i64::from(all))
    {
        return fail(
            FailureClass::EffectiveMismatch,
            format!(
                "asked for {} on the GPU, the log says {done} of {all}",
                count(layers.unsigned_abs(), "layer")
            ),
        );
    }
    Ok(())
}

/// One spelling per value: builds write yes as `true`, 1 or `on`, and numbers also as text (case C02).
fn canonical(field: &str, value: &Value) -> String {
    match value {
        Value::Bool(yes) => u8::from(*yes).to_string(),
        Value::String(text) => {
            let parts = text
                .split('/')
                .map(|part| canonical_word(field, part.trim()));
            parts.collect::<Vec<_>>().join("/")
        }
        other => canonical_word(field, &other.to_string()),
    }
}

fn canonical_word(field: &str, word: &str) -> String {
    match word.to_ascii_lowercase().as_str() {
        "true" | "on" => "1".to_owned(),
        "false" | "off" => "0".to_owned(),
        "auto" if field == "flash_attn" => "-1".to_owned(),
        lower => lower
            .parse::<f64>()
            .map_or_else(|_| word.to_owned(), |n| n.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(field: &str, a: &Value, b: &Value) -> bool {
        canonical(field, a) == canonical(field, b)
    }

    #[test]
    fn c02_values_compare_across_spellings() {
        assert!(same("flash_attn", &json!(1), &json!(true)));
        assert!(same("flash_attn", &json!("on"), &json!(1)));
        assert!(same("flash_attn", &json!("auto"), &json!(-1)));
        assert!(same("n_ubatch", &json!("1024"), &json!(1024)));
        assert!(same("tensor_split", &json!("1/9"), &json!("1.00/9.00")));
        assert!(same("load_mode", &json!("auto"), &json!("auto")));
        assert!(!same("flash_attn", &json!(0), &json!(-1)));
        assert!(!same("type_k", &json!("q8_0"), &json!("f16")));
        assert!(!same("n_gpu_layers", &json!(-1), &json!(99)));
    }

    #[test]
    fn the_wanted_devices_are_read_off_the_arguments() {
        let args = ["-fa", "on", "-dev", "Vulkan0/Vulkan1"].map(String::from);
        assert_eq!(wanted_devices(&args), ["Vulkan0", "Vulkan1"]);
        assert!(wanted_devices(&["-dev".into(), "none".into()]).is_empty());
    }
}
