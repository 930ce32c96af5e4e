//! The statistics against values that `SciPy` and an independent Fieller made (`tests/golden/make_stats.py`), to 1e-9
//! relative, over real runs on an H200; and properties that hold whatever the values.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;

use flux::domain::bench_record::{Record, parse};
use flux::domain::stats::{
    Ordered, compare, confirm, fieller, hedges_g, two_sided_p, upper_quantile, welch,
};
use flux::domain::types::{Comparison, Verdict};
use proptest::prelude::*;
use serde_json::Value;

/// Agreement asked for.
const RELATIVE: f64 = 1e-9;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/stats.json")).unwrap()
}

fn records(file: &str) -> Vec<Record> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/h200/");
    let parsed = parse(&fs::read(format!("{root}{file}")).unwrap());
    assert!(parsed.complete && parsed.problems.is_empty() && parsed.noise_lines.is_empty());
    parsed.records
}

#[track_caller]
fn close(got: f64, want: &Value, what: &str) {
    let want = want.as_f64().unwrap();
    assert!(
        (got - want).abs() <= RELATIVE * want.abs(),
        "{what}: {got:e}, SciPy has {want:e}"
    );
}

#[track_caller]
fn same(got: &Comparison, want: &Value, what: &str) {
    close(got.t.unwrap(), &want["t"], what);
    close(got.df.unwrap(), &want["df"], what);
    close(got.p.unwrap(), &want["p"], what);
    let interval = got.ci95_pct.unwrap();
    close(interval[0], &want["ci95_pct"][0], what);
    close(interval[1], &want["ci95_pct"][1], what);
}

fn find<'r>(records: &'r [Record], run: &Value, test: &Value) -> &'r Record {
    records
        .iter()
        .find(|r| r.raw["run"] == *run && r.test.to_string() == *test)
        .unwrap()
}

#[test]
fn student_t_equals_scipy() {
    for row in golden()["student"].as_array().unwrap() {
        let df = row["df"].as_f64().unwrap();
        if let Some(t) = row["t"].as_f64() {
            let p = two_sided_p(t, df).unwrap();
            close(p, &row["p"], &format!("p of t {t} at df {df}"));
        } else {
            let probability = row["prob"].as_f64().unwrap();
            let quantile = upper_quantile(probability, df).unwrap();
            let what = format!("quantile {probability} at df {df}");
            close(quantile, &row["quantile"], &what);
        }
    }
}

#[test]
fn every_pair_of_real_runs_equals_scipy_on_its_repetitions() {
    let records = records("qwen3-4b-dense.jsonl");
    let golden = golden();
    let pairs = golden["pairs"].as_array().unwrap();
    assert!(pairs.len() > 500);
    for pair in pairs {
        let rates = |side: &str| find(&records, &pair[side], &pair["test"]).samples().rates();
        let (a, b) = (rates("a"), rates("b"));
        let what = format!("{} → {}, {}", pair["a"], pair["b"], pair["test"]);
        let Some(want) = pair["welch"].as_object() else {
            assert_eq!((welch(&a, &b), fieller(&a, &b)), (None, None), "{what}");
            continue;
        };
        let got = welch(&a, &b).unwrap();
        close(got.t, &want["t"], &what);
        close(got.df, &want["df"], &what);
        close(got.p, &want["p"], &what);
        let interval = fieller(&a, &b).unwrap();
        close(interval[0], &want["ci95_pct"][0], &what);
        close(interval[1], &want["ci95_pct"][1], &what);
        close(hedges_g(&a, &b).unwrap(), &want["hedges_g"], &what);
    }
}

#[test]
fn groups_of_real_runs_equal_scipy_on_run_means() {
    let records = records("qwen3-4b-dense.jsonl");
    for group in golden()["groups"].as_array().unwrap() {
        let means = |side: &str| -> Vec<f64> {
            let runs = group[side].as_array().unwrap().iter();
            runs.map(|run| find(&records, run, &group["test"]).samples().mean_rate())
                .collect()
        };
        let what = format!("{} → {}, {}", group["a"], group["b"], group["test"]);
        same(&compare(&means("a"), &means("b")), &group["welch"], &what);
    }
}

#[test]
fn interleaved_runs_equal_scipy_with_and_without_their_trend() {
    for case in golden()["interleaved"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let arm = |side: &str| -> Vec<Ordered> {
            records(&format!("ab-{name}.{side}.jsonl"))
                .iter()
                .filter(|r| r.test.to_string() == case["test"])
                .map(|r| Ordered {
                    position: r.raw["position"].as_f64().unwrap(),
                    value: r.samples().mean_rate(),
                })
                .collect()
        };
        let (a, b) = (arm("A"), arm("B"));
        let values = |runs: &[Ordered]| runs.iter().map(|r| r.value).collect::<Vec<_>>();
        let what = format!("{name} {}", case["test"]);
        same(&compare(&values(&a), &values(&b)), &case["welch"], &what);
        same(&confirm(&a, &b), &case["trend_free"], &what);
        let cut = confirm(&a, &b[..3]);
        same(&cut, &case["trend_free_cut"], &what);
        close(cut.change_pct, &case["trend_free_cut"]["change_pct"], &what);
    }
}

/// By hand: a = 10, 12, 14 (mean 12, s² 4), b = 20, 20, 26 (mean 22, s² 12): t = 10/√(16/3), df = (16/3)²/((16/9 + 144/9)/2),
/// pooled s² = 8, g = 10/√8·(1 − 3/15).
#[test]
fn a_small_case_by_hand() {
    let (a, b) = ([10.0, 12.0, 14.0], [20.0, 20.0, 26.0]);
    let got = welch(&a, &b).unwrap();
    assert!((got.t - 10.0 / (16.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    assert!((got.df - 3.2).abs() < 1e-12);
    assert!((hedges_g(&a, &b).unwrap() - 10.0 / 8.0_f64.sqrt() * 0.8).abs() < 1e-12);
}

fn rates() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(90.0..110.0_f64, 3..9)
}

fn in_order(a: &[f64], b: &[f64]) -> [Vec<Ordered>; 2] {
    let ordered = |values: &[f64], odd: usize| {
        let place = |i: usize| (2 * i + (i + odd) % 2) as f64;
        let run = |(i, &value)| Ordered {
            position: place(i),
            value,
        };
        values.iter().enumerate().map(run).collect()
    };
    [ordered(a, 0), ordered(b, 1)]
}

fn near(x: Option<f64>, y: Option<f64>) -> bool {
    match (x, y) {
        (Some(x), Some(y)) => (x - y).abs() <= 1e-7 * (1.0 + x.abs()),
        (x, y) => x == y,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn swapping_the_arms_flips_the_sign_alone(a in rates(), b in rates()) {
        let (there, back) = (compare(&a, &b), compare(&b, &a));
        prop_assert!(near(there.t, back.t.map(|t| -t)));
        prop_assert!(near(there.hedges_g, back.hedges_g.map(|g| -g)));
        prop_assert!(near(there.df, back.df) && near(there.p, back.p));
        prop_assert!(there.verdict != Verdict::Improved || back.change_pct < 0.0);
    }

    #[test]
    fn the_unit_of_rates_does_not_matter(a in rates(), b in rates(), scale in 1e-3..1e6_f64) {
        let scaled = |v: &[f64]| v.iter().map(|x| x * scale).collect::<Vec<_>>();
        let (one, other) = (compare(&a, &b), compare(&scaled(&a), &scaled(&b)));
        prop_assert!(near(one.t, other.t) && near(one.hedges_g, other.hedges_g));
        prop_assert!(near(one.ci95_pct.map(|c| c[0]), other.ci95_pct.map(|c| c[0])));
        prop_assert_eq!(one.verdict, other.verdict);
    }

    #[test]
    fn the_interval_holds_the_change_and_the_verdict_follows_it(a in rates(), b in rates()) {
        let [ordered_a, ordered_b] = in_order(&a, &b);
        for got in [compare(&a, &b), confirm(&ordered_a, &ordered_b)] {
            let [low, high] = got.ci95_pct.unwrap();
            prop_assert!(low < got.change_pct && got.change_pct < high);
            prop_assert_eq!(got.verdict == Verdict::Improved, low > 1.0);
            prop_assert_eq!(got.verdict == Verdict::Regressed, high < -1.0);
        }
    }

    #[test]
    fn a_linear_trend_changes_nothing_in_a_confirmation(a in rates(), b in rates(), slope in -0.5..0.5_f64) {
        let [a, b] = in_order(&a, &b);
        let tilted = |runs: &[Ordered]| -> Vec<Ordered> {
            runs.iter()
                .map(|r| Ordered { value: r.value + slope * r.position, ..*r })
                .collect()
        };
        let (flat, tilt) = (confirm(&a, &b), confirm(&tilted(&a), &tilted(&b)));
        prop_assert!(near(flat.t, tilt.t) && near(flat.df, tilt.df) && near(flat.p, tilt.p));
    }

    #[test]
    fn an_invalid_sample_is_never_judged(a in rates(), b in rates(), at in 0..3_usize, bad in 0..5_usize) {
        let mut b = b;
        b[at] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0][bad];
        let [ordered_a, ordered_b] = in_order(&a, &b);
        for got in [compare(&a, &b), compare(&b, &a), confirm(&ordered_a, &ordered_b)] {
            prop_assert_eq!(got.verdict, Verdict::Inconclusive);
            prop_assert!(got.reason.contains("not a positive number"));
            prop_assert_eq!((got.t, got.ci95_pct), (None, None));
        }
    }
}
