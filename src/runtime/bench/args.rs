//! A run's argument list for llama-bench, from the flags this very binary's `--help` names (cases C02, C06).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::domain::types::{Failure, FailureClass, RunRequest, TestSpec};
use crate::domain::windows_path::ForBench;

/// The argument list, and the tests in the order llama-bench will run them.
pub(super) struct Plan {
    pub(super) args: Vec<OsString>,
    /// Where it must be started, if that matters.
    pub(super) folder: Option<PathBuf>,
    /// Why it may not find the model.
    pub(super) doubt: Option<&'static str>,
    pub(super) order: Vec<TestSpec>,
    /// Progress lines were asked for: repetitions can be timed.
    pub(super) has_progress: bool,
}

/// Writes `request` out.
///
/// # Errors
/// llama-bench runs every length at every depth; a test set that is no such product needs several processes.
pub(super) fn plan(request: &RunRequest, verbose: bool) -> Result<Plan, Failure> {
    let order = tool_order(&request.tests);
    let wanted: BTreeSet<TestSpec> = request.tests.iter().copied().collect();
    if wanted.is_empty()
        || wanted.len() != request.tests.len()
        || order.len() != wanted.len()
        || request.tests.iter().any(|t| t.tokens() == 0)
    {
        return Err(Failure::new(
            FailureClass::InvalidArgument,
            format!(
                "one llama-bench process cannot run exactly these tests: {}",
                labels(&request.tests)
            ),
        ));
    }
    let flags = &request.runtime.bench_flags;
    let has_progress = flags.contains("--progress");
    let model = ForBench::of(&request.model);
    let mut args: Vec<OsString> = vec!["-m".into(), model.argument.into()];
    args.extend(["-o", "jsonl", "-r"].map(OsString::from));
    args.push(request.repetitions.to_string().into());
    if has_progress {
        args.push("--progress".into());
    }
    args.extend(test_args(&request.tests).into_iter().map(OsString::from));
    args.extend(request.launch.args.iter().map(OsString::from));
    if verbose && flags.contains("--verbose") {
        args.push("-v".into());
    }
    Ok(Plan {
        args,
        folder: model.folder,
        doubt: model.doubt,
        order,
        has_progress,
    })
}

/// Labels in a row, for people.
pub(super) fn labels<'a>(tests: impl IntoIterator<Item = &'a TestSpec>) -> String {
    let labels: Vec<String> = tests.into_iter().map(ToString::to_string).collect();
    labels.join(", ")
}

fn unique<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Prompt lengths, generation lengths and pairs, each at depth 0.
type Kinds = (Vec<TestSpec>, Vec<TestSpec>, Vec<TestSpec>);

fn kinds(tests: &[TestSpec]) -> Kinds {
    let of = |wanted: fn(TestSpec) -> bool| {
        let picked = tests.iter().map(|t| t.at_depth(0));
        unique(picked.filter(move |t| wanted(*t)))
    };
    (
        of(|t| t.n_gen == 0),
        of(|t| t.n_prompt == 0),
        of(|t| t.n_prompt > 0 && t.n_gen > 0),
    )
}

/// llama-bench's loops: depths outside; inside prompt lengths, then generation lengths, then pairs.
fn tool_order(tests: &[TestSpec]) -> Vec<TestSpec> {
    let (prompts, generations, pairs) = kinds(tests);
    let depths = unique(tests.iter().map(|t| t.n_depth));
    let at = |depth: u32| {
        let all = prompts.iter().chain(&generations).chain(&pairs);
        all.map(move |t| t.at_depth(depth)).collect::<Vec<_>>()
    };
    depths.into_iter().flat_map(at).collect()
}

/// `-p 512,1024 -n 128`, with `-pg` and `-d` where needed; a length of 0 runs nothing.
fn test_args(tests: &[TestSpec]) -> Vec<String> {
    let (prompts, generations, pairs) = kinds(tests);
    let list = |values: Vec<u32>| {
        let text: Vec<String> = values.iter().map(u32::to_string).collect();
        if text.is_empty() {
            "0".to_owned()
        } else {
            text.join(",")
        }
    };
    let mut args = vec![
        "-p".to_owned(),
        list(prompts.iter().map(|t| t.n_prompt).collect()),
        "-n".to_owned(),
        list(generations.iter().map(|t| t.n_gen).collect()),
    ];
    for pair in pairs {
        args.extend([
            "-pg".to_owned(),
            format!("{},{}", pair.n_prompt, pair.n_gen),
        ]);
    }
    let depths = unique(tests.iter().map(|t| t.n_depth));
    if depths != [0] {
        args.extend(["-d".to_owned(), list(depths)]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_share_one_process_and_absent_kinds_are_switched_off() {
        let pp = TestSpec::prompt;
        let tg = TestSpec::generation;
        assert_eq!(
            test_args(&[pp(512), tg(128), pp(2048)]).join(" "),
            "-p 512,2048 -n 128"
        );
        assert_eq!(test_args(&[tg(64)]).join(" "), "-p 0 -n 64");
        assert_eq!(
            test_args(&[pp(512), pp(512).at_depth(4096)]).join(" "),
            "-p 512 -n 0 -d 0,4096"
        );
    }

    #[test]
    fn the_tools_order_is_depth_then_prompt_then_generation() {
        let pp = TestSpec::prompt(32);
        let tg = TestSpec::generation(8);
        // Seen with `-p 32 -n 8 -d 0,16 --progress`: prompt, generation, prompt at 16, generation at 16.
        assert_eq!(
            tool_order(&[tg, pp, pp.at_depth(16), tg.at_depth(16)]),
            [pp, tg, pp.at_depth(16), tg.at_depth(16)]
        );
    }
}
