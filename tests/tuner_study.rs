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

/// Of 1,000 sessions at least this many find a planted pair, alone or beside the paper's effects.
const PAIR_FOUND_PER_MILLE: u32 = 995;

/// Nothing does anything: at most one session in a hundred saves a profile.
fn nothing_to_find(sessions: u32) {
    let truth = Truth::neutral(187.0, 22.81);
    let tally = study("A/A", sessions, &rx580_plan(), &truth, &[]);
    assert!(tally.saved * 100 <= sessions, "{tally:?}");
    assert!(tally.most_processes <= 80, "{tally:?}");
}

/// The paper's card: the graphics queue is found in all, and nothing saved is worse than stock or far from the best.
fn the_papers_card(sessions: u32) {
    let wanted = [("graphics-queue", "on")];
    let tally = study("RX 580", sessions, &rx580_plan(), &Truth::rx580(), &wanted);
    assert_eq!(tally.found, sessions, "{tally:?}");
    assert_eq!(tally.worse_than_stock, 0, "{tally:?}");
    assert_eq!(tally.within_two_percent, sessions, "{tally:?}");
    assert!(tally.most_processes <= 80, "{tally:?}");
}

/// Two settings worth 8 % together and nothing alone (found in 998 of 1,000).
fn a_planted_pair(sessions: u32) {
    let truth = Truth::neutral(187.0, 22.81).pair(&["async=off", "fa-sparse=off"], 1.0, 1.08);
    let wanted = [("async", "off"), ("fa-sparse", "off")];
    let tally = study("planted pair", sessions, &rx580_plan(), &truth, &wanted);
    assert!(
        tally.found * 1000 >= sessions * PAIR_FOUND_PER_MILLE,
        "{tally:?}"
    );
    assert_eq!(tally.worse_than_stock, 0, "{tally:?}");
    assert!(tally.most_processes <= 80, "{tally:?}");
}

/// The same beside a setting worth 67 % and several harmful ones, with the second value of a dimension in the pair (found
/// in 995 of 1,000).
fn a_pair_beside_the_papers_effects(sessions: u32) {
    let pair = ["nodes-per-submit=400", "multi-add=off"];
    let truth = Truth::rx580().pair(&pair, 1.0, 1.08);
    let wanted = [
        ("graphics-queue", "on"),
        ("nodes-per-submit", "400"),
        ("multi-add", "off"),
    ];
    let tally = study(
        "pair on the RX 580",
        sessions,
        &rx580_plan(),
        &truth,
        &wanted,
    );
    assert!(
        tally.found * 1000 >= sessions * PAIR_FOUND_PER_MILLE,
        "{tally:?}"
    );
    assert_eq!(tally.worse_than_stock, 0, "{tally:?}");
    assert!(tally.most_processes <= 80, "{tally:?}");
}

#[test]
fn a_hundred_sessions_with_nothing_to_find() {
    nothing_to_find(100);
}

#[test]
fn a_hundred_sessions_on_the_papers_card() {
    the_papers_card(100);
}

#[test]
fn a_hundred_sessions_with_a_planted_pair() {
    a_planted_pair(100);
}

#[test]
fn a_hundred_sessions_with_a_pair_beside_the_papers_effects() {
    a_pair_beside_the_papers_effects(100);
}

#[test]
#[ignore = "1,000 sessions: for a release build"]
fn tuner_study_nothing_to_find() {
    nothing_to_find(1000);
}

#[test]
#[ignore = "1,000 sessions: for a release build"]
fn tuner_study_the_papers_card() {
    the_papers_card(1000);
}

#[test]
#[ignore = "1,000 sessions: for a release build"]
fn tuner_study_a_planted_pair() {
    a_planted_pair(1000);
}

#[test]
#[ignore = "1,000 sessions: for a release build"]
fn tuner_study_a_pair_beside_the_papers_effects() {
    a_pair_beside_the_papers_effects(1000);
}
