//! Whole-tuner study: simulated sessions on a machine whose truth is known (the paper's Figure 2).
//!
//! `cargo test --release --test tuner_study -- --ignored --nocapture` runs 1,000 sessions of each kind; CI runs 100.

use flux::domain::search::TunePlan;
use flux::domain::types::Settings;

#[path = "support/sim.rs"]
mod sim;

use sim::{Noise, Truth, rx580_plan, tune};

/// What a batch of sessions came to.
#[derive(Debug, Default)]
struct Tally {
    sessions: u32,
    saved: u32,
    worse_than_stock: u32,
    within_two_percent: u32,
    found: u32,
    most_processes: usize,
    processes: usize,
}

fn study(
    name: &str,
    sessions: u32,
    plan: &TunePlan,
    truth: &Truth,
    wanted: &[(&str, &str)],
) -> Tally {
    let best = best_of_grid(plan, truth);
    let mut tally = Tally::default();
    for seed in 0..sessions {
        let (runs, outcome) = tune(plan, truth.clone(), Noise::STUDY, u64::from(seed));
        tally.sessions += 1;
        tally.most_processes = tally.most_processes.max(runs.len());
        tally.processes += runs.len();
        let rate = outcome
            .winner
            .as_ref()
            .map_or(truth.stock.1, |w| truth.rates(w).1);
        if let Some(winner) = &outcome.winner {
            tally.saved += 1;
            tally.worse_than_stock += u32::from(rate < 0.99 * truth.stock.1);
            let holds = |(d, v): &(&str, &str)| winner.0.get(*d).is_some_and(|w| w == v);
            tally.found += u32::from(wanted.iter().all(holds));
        }
        tally.within_two_percent += u32::from(rate >= 0.98 * best);
    }
    let mean = tally.processes as f64 / f64::from(sessions);
    report(&format!(
        "{name}: {tally:?}, {mean:.1} processes on average"
    ));
    tally
}

#[expect(clippy::print_stdout, reason = "the study's table is for people")]
fn report(line: &str) {
    println!("{line}");
}

/// Generation rate of the best settings of the full grid. Effects multiply, so each dimension's best value is in it,
/// and a planted pair is tried on top.
fn best_of_grid(plan: &TunePlan, truth: &Truth) -> f64 {
    let mut grid = vec![Settings::stock()];
    for dimension in &plan.offer.dimensions {
        let mut wider = grid.clone();
        for value in &dimension.values {
            let moves = truth
                .single
                .contains_key(&format!("{}={}", dimension.id, value.id));
            let paired = truth
                .together
                .iter()
                .any(|(all, _)| all.contains(&format!("{}={}", dimension.id, value.id)));
            if moves || paired {
                let set = |s: &Settings| s.with(&dimension.id, &value.id);
                wider.extend(grid.iter().map(set).filter(|s| plan.offer.check(s).is_ok()));
            }
        }
        grid = wider;
    }
    grid.iter().map(|s| truth.rates(s).1).fold(0.0, f64::max)
}

fn planted() -> Truth {
    Truth::neutral(187.0, 22.81).pair(&["async=off", "fa-sparse=off"], 1.0, 1.08)
}

fn planted_on_top() -> Truth {
    Truth::rx580().pair(&["nodes-per-submit=400", "multi-add=off"], 1.0, 1.08)
}

fn all(sessions: u32) {
    let plan = rx580_plan();
    let nothing = study("A/A", sessions, &plan, &Truth::neutral(187.0, 22.81), &[]);
    assert!(
        nothing.saved * 100 <= sessions,
        "A/A sessions saved a profile: {nothing:?}"
    );
    assert!(nothing.most_processes <= 80);

    let real = study(
        "RX 580",
        sessions,
        &plan,
        &Truth::rx580(),
        &[("graphics-queue", "on")],
    );
    assert_eq!(real.worse_than_stock, 0, "{real:?}");
    assert_eq!(
        real.found, sessions,
        "the graphics queue was missed: {real:?}"
    );
    assert_eq!(real.within_two_percent, sessions, "{real:?}");
    assert!(real.most_processes <= 80);

    let pair = [("async", "off"), ("fa-sparse", "off")];
    let pair = study("planted pair", sessions, &plan, &planted(), &pair);
    assert_eq!(pair.worse_than_stock, 0, "{pair:?}");
    assert!(pair.most_processes <= 80);
    assert_eq!(
        pair.found, sessions,
        "the planted pair was missed: {pair:?}"
    );

    let both = [
        ("graphics-queue", "on"),
        ("nodes-per-submit", "400"),
        ("multi-add", "off"),
    ];
    let both = study(
        "planted pair beside the graphics queue",
        sessions,
        &plan,
        &planted_on_top(),
        &both,
    );
    assert_eq!(both.worse_than_stock, 0, "{both:?}");
    assert!(both.most_processes <= 80);
    assert_eq!(
        both.found, sessions,
        "the planted pair was missed: {both:?}"
    );
}

#[test]
fn a_hundred_sessions_of_each_kind() {
    all(100);
}

#[test]
#[ignore = "1,000 sessions of each kind: minutes in a release build"]
fn tuner_study() {
    all(1000);
}
