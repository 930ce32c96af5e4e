//! Do two sets of settings say the same (case C42)? Greedy answers to fixed prompts, compared place by place by the
//! log-probabilities of their likely tokens. A wrong kernel computes as fast as a right one.

use serde::{Deserialize, Serialize};

use crate::domain::types::Launch;

use super::completion::{
    Completion, CompletionRequest, Prompt, Sampling, TokenLogprob, TokenProbs,
};

/// Tokens of each answer: enough for a wrong cache to show in what is computed from it.
pub const ANSWER_TOKENS: u32 = 32;
/// Likeliest tokens told at each place. Ten hold nearly all that is likelier than [`LIKELY`].
pub const TOP: u32 = 10;
/// Context of the servers, tokens: the longest prompt and its answer three times over.
pub const CONTEXT: u32 = 1024;

/// Tokens of at least this probability are compared: below it, rounding moves log-probabilities at will, and nobody reads
/// the token.
const LIKELY: f64 = 0.01;
/// Largest difference of a likely token's log-probability, nats: a factor of two. Another order of summation moved none of
/// Gemma 3 270M's by more than a quarter of it.
pub const LARGEST: f64 = 0.7;
/// Largest mean over all places of the place's largest difference, nats; rounding stays at a tenth of it.
pub const MEAN: f64 = 0.15;
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
            "log-probabilities differ by {mean:.3} nats in the mean and {largest:.2} at most over {places} tokens"
        );
        let parted = widest
            .map(|(answer, p)| parted(answer, p))
            .unwrap_or_default();
        let (status, reason) = if rounded {
            (
                OutputStatus::Same,
                format!("the output is stock's within rounding: {numbers}{parted}"),
            )
        } else if !smaller.is_empty() && mean <= SMALLER_MEAN {
            let types = smaller.join(" and ");
            let reason = format!(
                "the output diverges from stock's, the price of a KV cache of {types}: {numbers}{parted}"
            );
            (OutputStatus::Diverges, reason)
        } else {
            (
                OutputStatus::Differs,
                format!("faster, but the output differs: {numbers}{parted}"),
            )
        };
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

    /// The sentence with what becomes of the settings.
    pub fn sentence(&self) -> String {
        let saved = if self.passes() { "" } else { ": not saved" };
        format!("{}{saved}", self.reason)
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
