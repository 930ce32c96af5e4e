//! llama-bench output as records: JSONL or a JSON array, whatever stands around it, whichever build wrote it (design
//! section 5, cases C01, C02, C03, C45). Complete objects of a broken document are salvaged as evidence.

use serde_json::Value;

use crate::domain::types::{TestSamples, TestSpec};

/// Words that stand for "no number" in the wild, besides JSON's `null`.
const NOT_A_NUMBER: [&str; 9] = [
    "-infinity",
    "infinity",
    "-inf",
    "inf",
    "-nan",
    "nan",
    "null",
    "none",
    "na",
];

/// One test of one process, as llama-bench printed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The test.
    pub test: TestSpec,
    /// Nanoseconds of every repetition, in order; at least one, all positive.
    pub samples_ns: Vec<u64>,
    /// Commit of the build (`unknown` when built from an archive).
    pub build_commit: String,
    /// Number of the build; 0 when it reports none.
    pub build_number: u64,
    /// The record as it came, unknown fields included.
    pub raw: Value,
}

/// Why an object of the output is no usable record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// A sample is missing, not finite or not positive: the run failed (case C03).
    InvalidSample,
    /// A complete object that lacks what every llama-bench record has.
    NotARecord,
}

/// An object of the output that is no usable record.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Class.
    pub kind: ProblemKind,
    /// The test, where the object still tells it.
    pub test: Option<TestSpec>,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The object, as evidence; `None` for a bare `null`.
    pub raw: Option<Value>,
}

/// Everything found in one output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// Usable records, in order.
    pub records: Vec<Record>,
    /// Objects that are not usable: a run with one of them failed.
    pub problems: Vec<Problem>,
    /// No object was cut and an opened array was closed.
    pub complete: bool,
    /// Lines that belong to no object: banners, warnings.
    pub noise_lines: Vec<String>,
}

impl Parsed {
    /// Every complete object, usable or not, for the log of a failed run.
    pub fn salvaged(&self) -> Vec<Value> {
        let good = self.records.iter().map(|r| r.raw.clone());
        good.chain(self.problems.iter().filter_map(|p| p.raw.clone()))
            .collect()
    }
}

/// Reads llama-bench output. Bytes that are no UTF-8 are replaced: they never stop the numbers (case C45).
pub fn parse(output: &[u8]) -> Parsed {
    let text = String::from_utf8_lossy(output);
    let mut parsed = Parsed {
        complete: true,
        ..Parsed::default()
    };
    let mut array_open = false;
    let mut rest = text.trim_start_matches('\u{feff}');
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        let Some(first) = rest.chars().next() else {
            break;
        };
        rest = match first {
            '[' if opens_records(&rest[1..]) => {
                array_open = true;
                &rest[1..]
            }
            ']' if array_open => {
                array_open = false;
                &rest[1..]
            }
            '{' => object(rest, &mut parsed),
            _ => other_line(rest, &mut parsed),
        };
    }
    parsed.complete &= !array_open;
    parsed
}

/// Does an array of records begin here? `[1] 4711 segmentation fault` does not.
fn opens_records(after: &str) -> bool {
    let next = after.trim_start();
    next.is_empty() || next.starts_with(['{', ']']) || next.starts_with("null")
}

/// Takes the object at the start of `text`; returns what follows it.
fn object<'a>(text: &'a str, parsed: &mut Parsed) -> &'a str {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = stream.next() {
        let rest = &text[stream.byte_offset()..];
        accept(value, parsed);
        return rest;
    }
    if let Some(end) = object_end(text)
        && let Ok(value) = serde_json::from_str(&with_nulls(&text[..end]))
    {
        accept(value, parsed);
        return &text[end..];
    }
    if text[1..].trim_start().starts_with('"') {
        parsed.complete = false;
    }
    noise_line(text, parsed)
}

fn accept(value: Value, parsed: &mut Parsed) {
    match Record::from_value(value) {
        Ok(record) => parsed.records.push(record),
        Err(problem) => parsed.problems.push(problem),
    }
}

/// A line that is no object: a bare `null` is a test that failed, anything else is noise.
fn other_line<'a>(text: &'a str, parsed: &mut Parsed) -> &'a str {
    let line = text.lines().next().unwrap_or_default();
    let word = line.trim_end_matches(|c: char| c.is_whitespace() || c == ',' || c == ']');
    if !NOT_A_NUMBER.contains(&word.to_ascii_lowercase().as_str()) {
        return noise_line(text, parsed);
    }
    parsed.problems.push(Problem {
        kind: ProblemKind::InvalidSample,
        test: None,
        message: format!("llama-bench printed {word} in place of a record: that test failed"),
        raw: None,
    });
    &text[word.len()..]
}

fn noise_line<'a>(text: &'a str, parsed: &mut Parsed) -> &'a str {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    parsed.noise_lines.push(line.trim_end().to_owned());
    rest
}

/// Byte after the brace that closes the object at the start of `text`.
fn object_end(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' if !in_string => depth += 1,
            '}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The object with bare `nan`, `inf`, `NA`, `NULL` outside strings written as JSON's `null`.
fn with_nulls(object: &str) -> String {
    let mut out = String::with_capacity(object.len());
    let mut in_string = false;
    let mut word = String::new();
    let mut previous = ' ';
    for c in object.chars() {
        let quote = c == '"' && !(in_string && previous == '\\');
        if !in_string && (c.is_ascii_alphabetic() || c == '-') {
            word.push(c);
            continue;
        }
        if NOT_A_NUMBER.contains(&word.to_ascii_lowercase().as_str()) {
            out.push_str("null");
        } else {
            out.push_str(&word);
        }
        word.clear();
        out.push(c);
        in_string ^= quote;
        previous = if previous == '\\' && c == '\\' {
            ' '
        } else {
            c
        };
    }
    out.push_str(&word);
    out
}

impl Record {
    /// Reads one record; unknown fields are kept in `raw`, missing ones asked for by name are `None`.
    ///
    /// # Errors
    /// A [`Problem`] when a needed field is missing or a sample is not a positive number.
    pub fn from_value(raw: Value) -> Result<Self, Problem> {
        let count = |field: &str| match raw.get(field) {
            None => Some(0),
            Some(v) => whole(v).and_then(|n| u32::try_from(n).ok()),
        };
        let counts = (count("n_prompt"), count("n_gen"), count("n_depth"));
        let (Some(n_prompt), Some(n_gen), Some(n_depth)) = counts else {
            return Err(not_a_record(raw, "a test size is not a whole number"));
        };
        let test = TestSpec {
            n_prompt,
            n_gen,
            n_depth,
        };
        if test.tokens() == 0 {
            return Err(not_a_record(raw, "it names neither n_prompt nor n_gen"));
        }
        let Some(build_commit) = raw.get("build_commit").and_then(Value::as_str) else {
            return Err(not_a_record(raw, "build_commit is missing"));
        };
        let build_commit = build_commit.to_owned();
        let Some(printed) = raw.get("samples_ns") else {
            return Err(not_a_record(raw, "samples_ns is missing"));
        };
        let samples_ns = match valid_samples(printed).and_then(|s| rates_valid(&raw).map(|()| s)) {
            Ok(samples) => samples,
            Err(what) => {
                return Err(Problem {
                    kind: ProblemKind::InvalidSample,
                    test: Some(test),
                    message: format!("the record of {test} has {what}: that run failed"),
                    raw: Some(raw),
                });
            }
        };
        let build_number = raw.get("build_number").and_then(whole);
        Ok(Self {
            test,
            samples_ns,
            build_commit,
            build_number: build_number.and_then(|n| n.try_into().ok()).unwrap_or(0),
            raw,
        })
    }

    /// The samples with their raw record, the form in which a run keeps them.
    pub fn samples(&self) -> TestSamples {
        TestSamples {
            test: self.test,
            samples_ns: self.samples_ns.clone(),
            record: self.raw.clone(),
            energy: None,
        }
    }

    /// A field as a whole number: from an integer, a boolean (0, 1) or digits in a string; `None` where missing (case C02).
    pub fn int(&self, field: &str) -> Option<i64> {
        self.raw.get(field).and_then(whole)
    }

    /// A field as yes or no: from a boolean, an integer (0 is no) or a string of either; `None` where missing (case C02).
    pub fn flag(&self, field: &str) -> Option<bool> {
        match self.raw.get(field)?.as_str() {
            Some("true" | "on") => Some(true),
            Some("false" | "off") => Some(false),
            _ => self.int(field).map(|n| n != 0),
        }
    }

    /// A field as text; `None` where missing or no string.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.raw.get(field)?.as_str()
    }

    /// Flash attention: −1 auto, 0 off, 1 on; older builds print a boolean.
    pub fn flash_attn(&self) -> Option<i64> {
        self.int("flash_attn")
    }

    /// Memory mapping of the model: `use_mmap` of older builds, else told by `load_mode`; `None` when automatic or missing.
    pub fn use_mmap(&self) -> Option<bool> {
        self.flag("use_mmap")
            .or_else(|| match self.text("load_mode")? {
                "auto" => None,
                mode => Some(mode.contains("mmap")),
            })
    }

    /// Layers on the GPU: −1 (all) or a count.
    pub fn n_gpu_layers(&self) -> Option<i64> {
        self.int("n_gpu_layers")
    }

    /// The build in words, because stock is not the same thing across builds: `8cf427ff (5163)`.
    pub fn build(&self) -> String {
        format!("{} ({})", self.build_commit, self.build_number)
    }
}

fn not_a_record(raw: Value, what: &str) -> Problem {
    Problem {
        kind: ProblemKind::NotARecord,
        test: None,
        message: format!("an object of the output is no llama-bench record: {what}"),
        raw: Some(raw),
    }
}

/// A whole number however a build writes it.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(yes) => Some(i64::from(*yes)),
        Value::Number(n) => n.as_i64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

fn valid_samples(printed: &Value) -> Result<Vec<u64>, String> {
    let list = printed.as_array().ok_or("no list of samples")?;
    if list.is_empty() {
        return Err("no samples".to_owned());
    }
    list.iter()
        .enumerate()
        .map(|(at, v)| {
            let ns = v.as_u64().filter(|ns| *ns > 0);
            ns.ok_or_else(|| format!("sample {} of {} = {v} ns", at + 1, list.len()))
        })
        .collect()
}

/// The printed rates are not used, but a non-finite or non-positive one tells of a failed test (case C03).
fn rates_valid(raw: &Value) -> Result<(), String> {
    let listed = raw.get("samples_ts").and_then(Value::as_array);
    let rates = raw
        .get("avg_ts")
        .into_iter()
        .chain(listed.into_iter().flatten());
    for rate in rates {
        if !rate.as_f64().is_some_and(|r| r.is_finite() && r > 0.0) {
            return Err(format!("a rate of {rate} t/s"));
        }
    }
    Ok(())
}
