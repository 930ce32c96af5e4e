//! Tunings that end without a profile, each saying why.

use flux::domain::text::capitalised;
use flux::domain::types::FailureClass;
use flux::ports::Store as _;

use crate::scripted_engine::{Answer, Desk};
use crate::started;

#[test]
fn a_finalist_that_turns_out_slower_is_not_offered() {
    let desk = Desk::new(|run| match (run.on(), run.screens()) {
        (true, true) => Answer::Valid,
        (true, false) => Answer::Rated(1.0, 0.8),
        _ => Answer::Rated(1.0, 1.0),
    });
    let mut stage = started(&desk);
    stage.until_ended();
    stage.until("Tune again");
    assert!(!stage.shows("Save profile"));
    // 0.8 of stock is 20 % less.
    stage.must_show("Regressed: ");
    stage.must_show("Flash attention on: −20.0 % (95 % CI ");
    stage.must_show("no profile saved");
    stage.must_show("Slower");
}

#[test]
fn a_gain_that_costs_the_other_metric_is_not_offered() {
    let desk = Desk::new(|run| {
        if run.on() {
            Answer::Rated(0.8, 1.3)
        } else {
            Answer::Rated(1.0, 1.0)
        }
    });
    let mut stage = started(&desk);
    stage.until_ended();
    assert!(!stage.shows("Save profile"));
    // A title that says "improved" would be read as one.
    assert!(!stage.shows("Improved: "));
    stage.must_show("Not saved: faster in one metric, slower in another");
    stage.must_show("rejected: prompt speed got worse");
    stage.must_show("May be faster, and is not saved");
}

#[test]
fn a_gain_lost_in_noise_stays_undecided() {
    let desk = Desk::new(|run| {
        // Weyl's sequence: even over ±8 %, in no rhythm of the runs.
        let noise = 0.16 * ((f64::from(run.number) * 0.618_034).fract() - 0.5);
        Answer::Rated(1.0, (1.0 + noise) * if run.on() { 1.04 } else { 1.0 })
    });
    let mut stage = started(&desk);
    stage.until_ended();
    assert!(!stage.shows("Save profile"));
    stage.must_show("Inconclusive: no difference could be shown");
    stage.must_show("Not decided");
    stage.must_show("12 + 12 runs");
    stage.must_show("Measure again with more processes per arm");
}

#[test]
fn candidates_that_fail_are_shown_with_their_class() {
    let desk = Desk::new(|run| {
        if run.screens() {
            Answer::Fails(FailureClass::OutOfMemory)
        } else {
            Answer::Rated(1.0, 1.0)
        }
    });
    let mut stage = started(&desk);
    stage.until_ended();
    assert!(!stage.shows("Save profile"));
    stage.must_show("Nothing beat stock in screening: stock stays");
    stage.must_show("out of memory");
}

#[test]
fn where_stock_fails_nothing_runs_and_the_advice_is_shown() {
    let class = FailureClass::OutOfMemory;
    let desk = Desk::new(move |_| Answer::Fails(class));
    let mut stage = started(&desk);
    stage.until_ended();
    stage.must_show(&capitalised(class.advice()));
    stage.must_show("Back to the start");
    let end = desk.store.session(1).unwrap().unwrap().end.unwrap();
    stage.must_show(&capitalised(end.result["headline"].as_str().unwrap()));
    stage.click("Back to the start");
    stage.must_show("Tune a model");
    assert!(
        !stage.shows("A tuning was broken off"),
        "it would end the same way"
    );
}
