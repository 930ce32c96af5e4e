//! The rules of measuring through a live server, without one: which requests give which tests, what of an answer counts,
//! how a check and a row of clients are planned and judged.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::time::Duration;

use flux::domain::search::{AbPlan, ClientsPlan, Driver, Method, Objective, Step};
use flux::domain::server::{Completion, LiveRequest, Timings, requests};
use flux::domain::types::{
    Energy, EnergyMethod, Failure, FailureClass, Goal, PlannedRun, RawOutput, RequestShape, Run,
    RunOutcome, Settings, Side, TestEnergy, TestSamples, TestSpec, Timestamp, Verdict,
};

const SHAPE: RequestShape = RequestShape {
    prompt_tokens: 1496,
    generated_tokens: 128,
};

#[test]
fn one_request_gives_all_four_tests_of_a_check() {
    let objective = Objective::live(Goal::Generation, SHAPE);
    let labels: Vec<String> = objective.tests().iter().map(ToString::to_string).collect();
    assert_eq!(
        labels,
        ["pp1496", "pp1496+tg1", "tg128 @ d1496", "pp1496+tg128"]
    );
    let asked = requests(objective.tests()).unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].prompt, asked[0].generated, asked[0].tests.len()),
        (1496, 128, 4)
    );
    let decoded: Vec<TestSpec> = asked[0].decoded().collect();
    assert_eq!(decoded, [TestSpec::generation(128).at_depth(1496)]);
    assert_eq!(asked[0].sent().count(), 3);
}

#[test]
fn llama_benchs_own_tests_take_a_request_each() {
    let shapes = |tests: &[TestSpec]| {
        let asked = requests(tests).unwrap();
        asked
            .iter()
            .map(|r| (r.prompt, r.generated))
            .collect::<Vec<_>>()
    };
    let tests = [
        TestSpec::prompt(512),
        TestSpec::generation(128),
        TestSpec::prompt(2048),
    ];
    // Decoding begins behind a short prompt; a prompt needs one token of an answer.
    assert_eq!(shapes(&tests), [(16, 128), (512, 1), (2048, 1)]);
    assert_eq!(
        shapes(&[TestSpec::generation(64).at_depth(4096)]),
        [(4096, 64)]
    );
    let deep = requests(&[TestSpec::prompt(512).at_depth(4096)]).unwrap_err();
    assert_eq!(deep.class, FailureClass::InvalidArgument);
}

fn asked() -> LiveRequest {
    requests(Objective::live(Goal::Request, SHAPE).tests())
        .unwrap()
        .remove(0)
}

/// The paper's stock server (section 4.1): 9,547 ms to the first token, 19.57 tokens per second after it.
fn answer() -> Completion {
    Completion {
        timings: Timings {
            cache_n: Some(0),
            prompt_n: Some(1496),
            prompt_ms: Some(9500.0),
            predicted_n: Some(128),
            predicted_ms: Some(127.0 / 19.57 * 1e3),
            ..Timings::default()
        },
        first_token: Some(Duration::from_millis(9547)),
        took: Duration::from_millis(16_100),
        ..Completion::default()
    }
}

#[test]
fn an_answer_gives_a_sample_of_each_test() {
    let asked = asked();
    let ns = asked.samples(&answer()).unwrap();
    let rate = |test: TestSpec| {
        let at = asked.tests.iter().position(|t| *t == test).unwrap();
        f64::from(test.tokens()) * 1e9 / ns[at] as f64
    };
    let mixed = |n_gen| TestSpec {
        n_gen,
        ..TestSpec::prompt(1496)
    };
    let near = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 1e-6, "{got} {wanted}");
    near(rate(TestSpec::prompt(1496)), 1496.0 / 9.5);
    near(rate(mixed(1)), 1497.0 / 9.547);
    near(rate(TestSpec::generation(128).at_depth(1496)), 19.57);
    near(rate(mixed(128)), 1624.0 / 16.1);
}

#[test]
fn c09_no_sample_of_what_was_remembered_replayed_or_cut() {
    let class = |change: &dyn Fn(&mut Completion)| {
        let mut answer = answer();
        change(&mut answer);
        asked().samples(&answer).unwrap_err().class
    };
    assert_eq!(
        class(&|a| a.timings.cache_n = Some(1495)),
        FailureClass::PromptFromCache
    );
    assert_eq!(
        class(&|a| a.timings.prompt_n = Some(1400)),
        FailureClass::TooFewTokens
    );
    assert_eq!(
        class(&|a| a.timings.predicted_n = Some(1)),
        FailureClass::TooFewTokens
    );
    assert_eq!(
        class(&|a| a.first_token = None),
        FailureClass::AnswerUnreadable
    );
    // The paper's artefact (section 6): +150 % with every drafted token accepted.
    let drafts = |drafted, accepted| {
        move |a: &mut Completion| {
            a.timings.draft_n = Some(drafted);
            a.timings.draft_n_accepted = Some(accepted);
            a.timings.predicted_ms = Some(127.0 / (2.5 * 19.57) * 1e3);
        }
    };
    assert_eq!(class(&drafts(96, 96)), FailureClass::AnswerReplayed);
    for (drafted, accepted) in [(96, 95), (0, 0), (15, 15)] {
        let mut answer = answer();
        drafts(drafted, accepted)(&mut answer);
        assert!(asked().samples(&answer).is_ok(), "{drafted} {accepted}");
    }
}

#[test]
fn what_cannot_be_measured_is_not_planned() {
    let plan = |prompt_tokens, generated_tokens| {
        let shape = RequestShape {
            prompt_tokens,
            generated_tokens,
        };
        let stock = Settings::stock();
        AbPlan::live(Goal::Generation, stock.clone(), stock, shape)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert_eq!(plan(1496, 32), Ok(()));
    assert_eq!(
        plan(0, 32).unwrap_err(),
        "the prompt length must be at least 1"
    );
    assert_eq!(
        plan(9, 31).unwrap_err(),
        "31 generated tokens give no decode rate: ask for at least 32"
    );
    let clients = |clients| ClientsPlan::new(Settings::stock(), SHAPE, clients, None, None);
    assert!(clients(vec![]).is_err() && clients(vec![0, 2]).is_err());
    assert_eq!(clients(vec![4, 1, 4]).unwrap().clients, [1, 4]);
}

/// A run of a server with these times of a request, milliseconds: first token and whole; joules of its decoding.
fn run(objective: &Objective, clients: u32, first_ms: f64, whole_ms: f64, joules: f64) -> Run {
    let energy = |joules| Energy {
        joules,
        method: EnergyMethod::Counter,
        estimated: false,
    };
    let of = |test: TestSpec| {
        let ms = match (test.n_prompt, test.n_gen) {
            (_, 0 | 1) => first_ms,
            (0, _) => whole_ms - first_ms,
            _ => whole_ms,
        };
        TestSamples {
            test,
            samples_ns: vec![(ms * 1e6) as u64; clients as usize],
            record: serde_json::Value::Null,
            energy: (test.n_prompt == 0).then(|| TestEnergy {
                device: vec![energy(joules); clients as usize],
                package: Vec::new(),
            }),
        }
    };
    let mut tests: Vec<TestSamples> = objective.tests().iter().copied().map(of).collect();
    if clients > 1 {
        tests.push(of(TestSpec {
            n_gen: 128 * clients,
            ..TestSpec::prompt(1496 * clients)
        }));
    }
    Run {
        started_at: Timestamp(0),
        wall_secs: 20.0,
        outcome: RunOutcome::Valid { tests },
        buffers: Vec::new(),
        raw: RawOutput::default(),
        telemetry: None,
    }
}

fn finish<M: Method>(plan: M, mut answer: impl FnMut(&PlannedRun) -> Run) -> M::Outcome {
    let mut driver = Driver::new(plan);
    loop {
        match driver.next() {
            Step::Run(planned) => drop(driver.record(&answer(&planned))),
            Step::Done(outcome) => return *outcome,
        }
    }
}

#[test]
fn every_metric_of_a_check_is_judged_and_the_goals_is_the_verdict() {
    for (goal, primary) in [
        (Goal::Generation, "tg128 @ d1496"),
        (Goal::Prompt, "first token"),
        (Goal::Request, "request"),
        (Goal::Energy, "energy"),
    ] {
        let candidate = Settings::stock().with("graphics-queue", "on");
        let mut plan = AbPlan::live(goal, Settings::stock(), candidate, SHAPE).unwrap();
        plan.processes = Some(4);
        let objective = plan.objective.clone();
        let mut nth = 0.0;
        let outcome = finish(plan, |planned| {
            // A little spread, or nothing could be judged.
            nth += 1.0;
            let wobble = 1.0 + 0.001 * (nth * 0.618_f64).fract();
            match planned.side {
                Some(Side::B) => run(
                    &objective,
                    1,
                    8852.0 * wobble,
                    13_000.0 * wobble,
                    250.0 * wobble,
                ),
                _ => run(
                    &objective,
                    1,
                    9547.0 * wobble,
                    16_100.0 * wobble,
                    310.0 * wobble,
                ),
            }
        });
        let judged = outcome.confirmation.unwrap();
        assert_eq!(
            (judged.primary.as_str(), outcome.verdict),
            (primary, Some(Verdict::Improved))
        );
        let change = |label: &str| judged.metrics[label].confirmed.change_pct;
        let near =
            |got: f64, wanted: f64| assert!((got - wanted).abs() < 0.3, "{goal}: {got} {wanted}");
        // 9547/8852, 6553/4148, 16100/13000 and 310/250.
        near(change("first token"), 7.85);
        near(change("tg128 @ d1496"), 57.98);
        near(change("request"), 23.85);
        near(change("energy"), 24.0);
        // 128 tokens for 310 J.
        let per_joule = judged.metrics["energy"].confirmed.baseline.mean;
        assert!((per_joule - 128.0 / 310.0).abs() < 0.001, "{per_joule}");
    }
}

#[test]
fn clients_come_in_turn_there_and_back_and_a_failed_server_is_told() {
    let plan = ClientsPlan::new(Settings::stock(), SHAPE, vec![1, 2], Some(1), Some(3)).unwrap();
    let objective = plan.objective.clone();
    let (mut order, mut failed) = (Vec::new(), false);
    let outcome = finish(plan, |planned| {
        order.push(planned.clients);
        let mut run = run(
            &objective,
            planned.clients,
            1000.0 * f64::from(planned.clients),
            4000.0,
            1.0,
        );
        if planned.clients == 2 && !std::mem::replace(&mut failed, true) {
            run.outcome = RunOutcome::Failed {
                failure: Failure::new(FailureClass::AnswerBroken, "gone"),
                salvaged: Vec::new(),
            };
        }
        run
    });
    assert_eq!(order, [1, 1, 2, 2, 1, 1, 2], "after the warm-up");
    let [one, two] = &outcome.rows[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!((one.total.n, two.total.n, two.failures.len()), (3, 2, 1));
    // 128 tokens in 4 s; twice as many in the same 4 s; each decodes 128 in 3 and 2 s.
    assert_eq!((one.total.mean, two.total.mean), (32.0, 64.0));
    assert!((one.each.mean - 128.0 / 3.0).abs() < 1e-9 && (two.each.mean - 64.0).abs() < 1e-9);
    assert_eq!(
        (
            one.first_token_ms.mean.round(),
            two.request_secs.mean.round()
        ),
        (1000.0, 4.0)
    );
}
