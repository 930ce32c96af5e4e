//! The paper's card with a 12B model it cannot hold (paper section 5.4). The rates are the paper's; no process runs.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::Path;

use flux::domain::types::{Bytes, FailureClass, Goal, RunRequest};
use flux::engine::message::{Command, Outcome};
use flux::engine::plan::PlanRequest;
use flux::engine::plan::bench::BenchDocument;
use serde_json::Value;

use super::bench_runs;
use super::scripted_engine::{Answer, Asked, Desk, finished};

/// Stock generation of the scripted runner, tokens per second.
pub const STOCK_TG: f64 = 20.0;
pub const QUEUE: &str = "GGML_VK_ALLOW_GRAPHICS_QUEUE";

pub fn value<'a>(request: &'a RunRequest, flag: &str) -> Option<&'a str> {
    let args = &request.launch.args;
    let at = args.iter().position(|a| a == flag)?;
    args.get(at + 1).map(String::as_str)
}

/// Generation of the 12B on the paper's card by its placement, tokens per second; `None` does not fit. The paper gives
/// 36 and 34 layers; all feed-forward rules were slower there, and the CPU alone slowest.
pub fn paper_rate(request: &RunRequest) -> Option<f64> {
    let layers: u32 = value(request, "-ngl")?.parse().unwrap();
    match (layers, value(request, "-ot")) {
        (0, _) => Some(2.6),
        (_, Some(_)) => Some(5.6),
        (34, _) => Some(6.93),
        (35, _) => Some(7.3),
        (36, _) => Some(7.68),
        (37.., _) => None,
        _ => Some(6.0),
    }
}

/// The paper's machine: the 12B as above; where everything is offloaded the graphics queue gives 68.3 %, where layers run
/// on the CPU it costs 7.8 %.
pub fn on_the_paper_card(asked: &Asked<'_>) -> Answer {
    let request = asked.request;
    let queue = request.launch.env.contains_key(QUEUE);
    let is_small = request.model.ends_with("qwen3-4b.gguf");
    match paper_rate(request) {
        _ if is_small => Answer::Rated(1.0, if queue { 1.683 } else { 1.0 }),
        Some(rate) => Answer::Rated(1.0, rate / STOCK_TG * if queue { 0.922 } else { 1.0 }),
        None => Answer::Fails(FailureClass::OutOfMemory),
    }
}

pub fn desk(script: impl Fn(&Asked<'_>) -> Answer + Send + Sync + 'static) -> Desk {
    let mut desk = Desk::new(script);
    desk.moves_to("rx580-2048sp");
    desk.lists(&[bench_runs::CARD]);
    desk
}

pub fn done(desk: &Desk, command: Command) -> Value {
    let (mut engine, events) = desk.engine();
    let job = engine.submit(command).unwrap();
    match finished(&events, job) {
        Outcome::Done { result } => result,
        other => panic!("not done: {other:?}"),
    }
}

/// Under as much memory as the paper's desktop left: 36 layers fit.
pub fn planned(desk: &Desk, model: &Path, goal: Goal, limit: Option<Bytes>) -> BenchDocument {
    let request = PlanRequest {
        goal,
        vram_limit: limit,
        ..PlanRequest::new(model.to_owned())
    };
    let plan = done(desk, Command::Plan(Box::new(request)));
    serde_json::from_value(plan["bench"].clone()).unwrap()
}

pub fn pressed(desk: &Desk, model: &Path) -> BenchDocument {
    planned(desk, model, Goal::Generation, Some(Bytes::mib(6400)))
}
