//! Do two sets of settings say the same (case C42)? Greedy answers to fixed prompts, compared place by place by the
//! log-probabilities of their likely tokens. A wrong kernel computes as fast as a right one.

use serde::{Deserialize, Serialize};

use crate::domain::text::count;
use crate::domain::types::Launch;

use super::completion::{
    Completion, CompletionRequest, Prompt, Sampling, TokenLogprob, TokenProbs,
};

/// Tokens of each answer: enough for a wrong cache to show in what is computed from it.
pub const ANSWER_TOKENS: u32 = 32;
/// Likeliest tokens told at each place. Ten hold nearly all that is likelier than `LIKELY` allows.
pub const TOP: u32 = 10;
/// Context of the servers, tokens: the longest prompt at one token per byte, as a tokenizer without merges reads it, its chat
/// template and the answer.
pub const CONTEXT: u32 = 2048;

/// Tokens of at least this probability are compared: less likely ones move at will with rounding, and are seldom said.
const LIKELY: f64 = 0.1;
/// Largest difference of a likely token's log-probability, nats. Flash attention against none, on the CPU, moved one of Gemma
/// 3 270M's (4 bits a weight, the worst case for rounding) by 0.50, a cache of `q8_0` by 0.31, one of `q4_0` by 0.85.
pub const LARGEST: f64 = 1.5;
/// Largest mean over all places of the place's largest difference, nats. The same three: 0.083, 0.074, 0.49.
pub const MEAN: f64 = 0.25;
/// What a smaller KV cache may cost, nats in the mean: a factor of e everywhere is another model, not a rounded one.
pub const SMALLER_MEAN: f64 = 1.0;

/// Types that a KV cache has without loss against stock's own.
const WHOLE_TYPES: [&str; 3] = ["f16", "bf16", "f32"];
const CACHE_FLAGS: [&str; 4] = ["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"];

/// A fixed prompt by its name.
pub type FixedPrompt = (&'static str, &'static str);

/// What is asked: a text longer than a small batch, so that matrix kernels compute it, code, and answers in one word.
pub const PROMPTS: [FixedPrompt; 3] = [
    (
        "prose",
        "The harbour had been quiet since the storm. Two fishing boats lay on their sides in the mud, and nobody had come \
         to set them upright. Anna walked along the wall with her hands in her pockets and counted the lamps that still \
         worked. There were four of them, and the last one flickered. At the end of the wall an old man was mending a net. \
         He did not look up when she came near, but he moved his basket so that she could sit down. For a while neither of \
         them spoke. The tide was coming in, slowly, with a sound like someone turning pages in the next room. \"You are \
         early this year,\" he said at last. She nodded. She had meant to come in the spring, when the road over the hills \
         was dry, but her mother had been ill and the school had asked her to stay until the examinations were over. Now \
         the summer was almost gone. The man tied a knot, bit off the thread and held the net up against the light. It had \
         hundreds of knots, and every one of them was the same. He said that his father had taught him",
    ),
    (
        "code",
        "fn parse_line(line: &str) -> Option<(String, f64)> {\n    let (name, value) = line.split_once('=')?;\n    \
         let value = value.trim().parse().ok()?;\n    Some((name.trim().to_owned(), value))\n}\n\n\
         /// Reads every line of a file into a map; lines that are no pairs are passed over.\n\
         fn parse_all(text: &str) -> HashMap<String, f64> {\n    let mut all = HashMap::new();\n    \
         for line in text.lines() {\n",
    ),
    (
        "facts",
        "Question: What is the capital of France?\nAnswer: Paris\nQuestion: How many legs does a spider have?\nAnswer: 8\n\
         Question: What is 12 plus 30?\nAnswer: 42\nQuestion: Which planet is nearest to the sun?\nAnswer:",
    ),
];

/// The request for a greedy answer to `prompt`, with log-probabilities.
pub fn output_request(prompt: &str) -> CompletionRequest {
    CompletionRequest {
        sampling: Sampling::greedy(),
        n_probs: TOP,
        stream: false,
        ..CompletionRequest::new(Prompt::Text(prompt.to_owned()), ANSWER_TOKENS, 0)
    }
}

/// The places of an answer; `None` where they cannot be compared: fewer than asked for, or numbers that are none.
pub fn places(answer: &Completion) -> Option<&[TokenProbs]> {
    let sound = |p: &TokenProbs| {
        let numbers = std::iter::once(&p.chosen).chain(&p.top);
        p.chosen.logprob.is_finite()
            && p.top.first().is_some_and(|t| t.logprob.is_finite())
            && numbers.into_iter().all(|t| t.logprob <= MAX_LOGPROB)
    };
    let whole = answer.probs.len() == ANSWER_TOKENS as usize && answer.probs.iter().all(sound);
    whole.then_some(&answer.probs)
}

/// A log-probability is 0 at most, but for rounding; a NaN is not even that.
const MAX_LOGPROB: f64 = 1e-3;

/// Where two answers went apart: from there on they say different things, and nothing is compared any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parting {
    /// Token of the answer, from 1.
    pub token: u32,
    /// What the baseline said.
    pub baseline: String,
    /// What the candidate said.
    pub candidate: String,
    /// How much less likely the baseline finds the candidate's token than its own, nats. At least so much where the token is
    /// not among the baseline's likeliest.
    pub gap: f64,
}

/// How one answer compares.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AnswerDifference {
    /// Name of the prompt.
    pub prompt: String,
    /// The server had answered all of them before.
    pub warm: bool,
    /// Places compared: up to the parting, and with it.
    pub places: u32,
    /// Mean over the places of each place's largest difference, nats.
    pub mean: f64,
    /// Largest of them, nats.
    pub largest: f64,
    /// Where the answers went apart.
    pub parting: Option<Parting>,
}

/// Compares a candidate's answer with the baseline's, along the baseline's tokens.
pub fn compare(
    prompt: &str,
    baseline: &[TokenProbs],
    candidate: &[TokenProbs],
) -> AnswerDifference {
    let mut differences = Vec::new();
    let mut parting = None;
    for (a, b) in baseline.iter().zip(candidate) {
        differences.push(one_way(a, b).max(one_way(b, a)));
        if !same(&a.chosen, &b.chosen) {
            let own = a.chosen.logprob;
            parting = Some(Parting {
                token: differences.len() as u32,
                baseline: a.chosen.text.clone(),
                candidate: b.chosen.text.clone(),
                gap: (own - told(a, &b.chosen).unwrap_or_else(|| least(a))).max(0.0),
            });
            break;
        }
    }
    let n = differences.len();
    AnswerDifference {
        prompt: prompt.to_owned(),
        warm: false,
        places: n as u32,
        mean: differences.iter().sum::<f64>() / n.max(1) as f64,
        largest: differences.iter().copied().fold(0.0, f64::max),
        parting,
    }
}

/// The largest difference among the tokens that `of` finds likely. One that `other` does not tell is at most as likely there
/// as its least likely one.
fn one_way(of: &TokenProbs, other: &TokenProbs) -> f64 {
    let likely = of.top.iter().filter(|t| t.logprob >= LIKELY.ln());
    let differences = likely.map(|token| match told(other, token) {
        Some(there) => (token.logprob - there).abs(),
        None => (token.logprob - least(other)).max(0.0),
    });
    differences.fold(0.0, f64::max)
}

/// Ids are compared where the server tells them.
fn same(a: &TokenLogprob, b: &TokenLogprob) -> bool {
    match (a.id, b.id) {
        (Some(a), Some(b)) => a == b,
        _ => a.text == b.text,
    }
}

fn told(place: &TokenProbs, token: &TokenLogprob) -> Option<f64> {
    let found = place.top.iter().find(|t| same(t, token));
    found.map(|t| t.logprob)
}

fn least(place: &TokenProbs) -> f64 {
    let all = place.top.iter().map(|t| t.logprob);
    all.fold(place.chosen.logprob, f64::min)
}

/// What the check came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputStatus {
    /// Nothing could be compared.
    #[default]
    Skipped,
    /// The same, but for rounding.
    Same,
    /// A smaller KV cache says something else, as it must; how much is measured.
    Diverges,
    /// Wrong: it is not saved.
    Differs,
    /// llama-server does not run with these settings: they are not saved.
    NotServed,
}

/// The output check, as documents keep it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputCheck {
    /// What it came to.
    pub status: OutputStatus,
    /// Why, in one sentence.
    pub reason: String,
    /// Mean difference over all places, nats; `None` where nothing was compared.
    pub mean: Option<f64>,
    /// Largest difference, nats.
    pub largest: Option<f64>,
    /// Every answer.
    pub answers: Vec<AnswerDifference>,
}

impl OutputCheck {
    /// Nothing was compared, and why.
    pub fn without(status: OutputStatus, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            ..Self::default()
        }
    }

    /// Judges answers; `smaller` names the reduced types of a KV cache among the settings.
    pub fn of(answers: Vec<AnswerDifference>, smaller: &[String]) -> Self {
        let places: u32 = answers.iter().map(|a| a.places).sum();
        let sum: f64 = answers.iter().map(|a| a.mean * f64::from(a.places)).sum();
        let mean = sum / f64::from(places.max(1));
        let largest = answers.iter().map(|a| a.largest).fold(0.0, f64::max);
        let partings = answers
            .iter()
            .filter_map(|a| Some((a, a.parting.as_ref()?)));
        let widest = partings.max_by(|a, b| a.1.gap.total_cmp(&b.1.gap));
        let rounded =
            mean <= MEAN && largest <= LARGEST && widest.is_none_or(|(_, p)| p.gap <= LARGEST);
        let numbers = format!(
            "log-probabilities differ by {mean:.3} nats in the mean and {largest:.2} at most over {}",
            count(places.into(), "token")
        );
        let parted = widest
            .map(|(answer, p)| parted(answer, p))
            .unwrap_or_default();
        let cache = match smaller {
            [] => String::new(),
            types => format!(" with a KV cache of {}", types.join(" and ")),
        };
        let (status, found) = if rounded {
            let found = format!("the output{cache} is stock's within rounding");
            (OutputStatus::Same, found)
        } else if !smaller.is_empty() && mean <= SMALLER_MEAN {
            let found = format!("the output{cache} diverges from stock's");
            (OutputStatus::Diverges, found)
        } else {
            let found = format!("faster, but the output{cache} differs");
            (OutputStatus::Differs, found)
        };
        let reason = format!("{found}: {numbers}{parted}");
        Self {
            status,
            reason,
            mean: Some(mean),
            largest: Some(largest),
            answers,
        }
    }

    /// May the settings be saved?
    pub const fn passes(&self) -> bool {
        !matches!(self.status, OutputStatus::Differs | OutputStatus::NotServed)
    }

    /// What it came to in a few words: `0.083 nats apart`.
    pub fn brief(&self) -> String {
        match (self.status, self.mean) {
            (OutputStatus::NotServed, _) => "no answer".to_owned(),
            (_, Some(mean)) => format!("{mean:.3} nats apart"),
            (_, None) => "not compared".to_owned(),
        }
    }

    /// The sentence with what becomes of the settings: `faster, but the output differs: not saved (…)`.
    pub fn sentence(&self) -> String {
        match self.reason.split_once(": ") {
            Some((found, why)) if !self.passes() => format!("{found}: not saved ({why})"),
            _ => self.reason.clone(),
        }
    }
}

fn parted(answer: &AnswerDifference, parting: &Parting) -> String {
    format!(
        "; the answer to {} goes another way at token {}, {:?} for {:?}, which stock finds {:.2} nats less likely",
        answer.prompt, parting.token, parting.candidate, parting.baseline, parting.gap
    )
}

/// The reduced types of a KV cache among a server's arguments.
pub fn smaller_cache(launch: &Launch) -> Vec<String> {
    let pairs = launch.args.iter().zip(launch.args.iter().skip(1));
    let types = pairs.filter(|(flag, _)| CACHE_FLAGS.contains(&flag.as_str()));
    let mut smaller: Vec<String> = types
        .map(|(_, value)| value.clone())
        .filter(|value| !WHOLE_TYPES.contains(&value.as_str()))
        .collect();
    smaller.sort_unstable();
    smaller.dedup();
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    fn token(id: u32, logprob: f64) -> TokenLogprob {
        TokenLogprob {
            id: Some(id),
            text: format!("w{id}"),
            logprob,
        }
    }

    /// A place at which the first of these is said.
    fn place(tokens: &[(u32, f64)]) -> TokenProbs {
        let top: Vec<TokenLogprob> = tokens.iter().map(|(id, l)| token(*id, *l)).collect();
        TokenProbs {
            chosen: top[0].clone(),
            top,
        }
    }

    fn answer(shift: f64) -> Vec<TokenProbs> {
        let one = |i: u32| {
            place(&[
                (3 * i, -0.5),
                (3 * i + 1, -1.2 + shift),
                (3 * i + 2, -4.0 - 9.0 * shift),
            ])
        };
        (0..ANSWER_TOKENS).map(one).collect()
    }

    fn judged(a: &[TokenProbs], b: &[TokenProbs], smaller: &[&str]) -> OutputCheck {
        let smaller: Vec<String> = smaller.iter().map(ToString::to_string).collect();
        OutputCheck::of(vec![compare("prose", a, b)], &smaller)
    }

    #[test]
    fn likely_tokens_alone_are_compared_along_the_baselines_answer() {
        let found = compare("prose", &answer(0.0), &answer(0.1));
        // The second token moves by 0.1; the third, of probability 0.018, by 0.9, which is passed over.
        assert!((found.mean - 0.1).abs() < 1e-12 && (found.largest - 0.1).abs() < 1e-12);
        assert_eq!((found.places, found.parting), (32, None));
    }

    #[test]
    fn a_near_tie_ends_the_comparison_and_passes() {
        let (a, mut b) = (answer(0.0), answer(0.0));
        b[4].chosen = b[4].top[1].clone();
        b[5] = place(&[(900, -0.01)]);
        let found = compare("code", &a, &b);
        let parting = found.parting.clone().unwrap();
        assert_eq!((found.places, parting.token), (5, 5));
        assert!((parting.gap - 0.7).abs() < 1e-12, "{parting:?}");
        let check = OutputCheck::of(vec![found], &[]);
        assert_eq!(check.status, OutputStatus::Same);
        assert!(
            check.sentence().ends_with(
                "; the answer to code goes another way at token 5, \"w13\" for \"w12\", which stock finds 0.70 nats less likely"
            ),
            "{}",
            check.sentence()
        );
    }

    #[test]
    fn a_token_that_the_baseline_does_not_expect_is_a_mismatch() {
        let (a, mut b) = (answer(0.0), answer(0.0));
        b[31] = place(&[(900, -0.01), (93, -5.0)]);
        let check = judged(&a, &b, &[]);
        assert_eq!(check.status, OutputStatus::Differs);
        assert!(!check.passes());
        assert!(
            check
                .sentence()
                .starts_with("faster, but the output differs: not saved (log-prob")
        );
    }

    #[test]
    fn a_smaller_cache_reports_what_it_costs() {
        let check = judged(&answer(0.0), &answer(0.4), &["q4_0"]);
        assert_eq!(check.status, OutputStatus::Diverges);
        let said = "the output with a KV cache of q4_0 diverges from stock's: log-probabilities differ by 0.400 nats in the mean";
        assert!(check.sentence().starts_with(said), "{}", check.sentence());
        assert_eq!(
            judged(&answer(0.0), &answer(0.4), &[]).status,
            OutputStatus::Differs
        );
        let same = judged(&answer(0.0), &answer(0.01), &["q8_0"]);
        assert!(same.reason.contains(
            "with a KV cache of q8_0 is stock's within rounding: log-probabilities differ by 0.010"
        ));
        let wrong = judged(&answer(0.0), &answer(-1.1), &["q4_0"]);
        assert_eq!(
            wrong.status,
            OutputStatus::Differs,
            "even for so small a cache"
        );
    }

    #[test]
    fn reduced_types_are_read_off_the_arguments() {
        let launch = |args: &[&str]| Launch {
            args: args.iter().map(ToString::to_string).collect(),
            ..Launch::default()
        };
        assert_eq!(
            smaller_cache(&launch(&["-ctk", "q8_0", "--cache-type-v", "q4_0"])),
            ["q4_0", "q8_0"]
        );
        assert_eq!(
            smaller_cache(&launch(&["-ctk", "f16", "-fa", "on"])),
            [""; 0]
        );
    }

    #[test]
    fn only_whole_answers_of_numbers_are_compared() {
        let whole = |probs| Completion {
            probs,
            ..Completion::default()
        };
        assert!(places(&whole(answer(0.0))).is_some());
        assert!(places(&whole(answer(0.0)[1..].to_vec())).is_none());
        for odd in [f64::NAN, f64::NEG_INFINITY, 0.5] {
            let mut probs = answer(0.0);
            probs[7].chosen.logprob = odd;
            assert!(places(&whole(probs)).is_none(), "{odd}");
        }
    }

    /// A tokenizer without merges reads a byte as a token; a template adds some tokens of its own.
    #[test]
    fn every_prompt_and_its_answer_have_room() {
        for (name, text) in PROMPTS {
            let most = text.len() + ANSWER_TOKENS as usize + 200;
            assert!(most < CONTEXT as usize, "{name}: {most}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_failure_persistence(FileFailurePersistence::WithSource("seeds")))]

        #[test]
        fn an_answer_is_itself(noise in prop::collection::vec(-3.0..3.0_f64, ANSWER_TOKENS as usize)) {
            let a: Vec<TokenProbs> = noise.iter().flat_map(|n| answer(*n)).collect();
            let found = compare("prose", &a, &a);
            prop_assert_eq!((found.mean, found.largest, found.parting), (0.0, 0.0, None));
        }

        #[test]
        fn rounding_passes_whichever_way_it_goes(noise in prop::collection::vec(-0.15..0.15_f64, ANSWER_TOKENS as usize)) {
            let a = answer(0.0);
            let b: Vec<TokenProbs> = noise.iter().enumerate().map(|(i, n)| answer(*n)[i].clone()).collect();
            let (there, back) = (compare("prose", &a, &b), compare("prose", &b, &a));
            prop_assert!((there.mean - back.mean).abs() < 1e-12);
            prop_assert!(there.largest <= 0.15 + 1e-12);
            prop_assert_eq!(OutputCheck::of(vec![there], &[]).status, OutputStatus::Same);
        }

        #[test]
        fn what_the_baseline_never_names_never_passes(at in 0..ANSWER_TOKENS as usize, sure in -0.6..0.0_f64) {
            let (a, mut b) = (answer(0.0), answer(0.0));
            b[at] = place(&[(1000, sure)]);
            for smaller in [&[][..], &["q4_0"][..]] {
                let check = judged(&a, &b, smaller);
                prop_assert!(check.status == OutputStatus::Differs || (!smaller.is_empty() && check.status == OutputStatus::Diverges));
            }
        }
    }
}
