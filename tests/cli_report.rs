//! `flux report` on sessions of every kind: the numbers of `flux show`, in a file that needs nothing and gives nothing away.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use flux::domain::redact::Redaction;
use flux::domain::text::clean;
use flux::domain::types::FailureClass;
use flux::engine::evidence::{Evidence, evidence};
use flux::ports::CancelMode;
use flux::report::{self, Format, Paths, html};
use html5gum::{Token, Tokenizer};
use proptest::prelude::*;
use serde_json::Value;

use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document, refused};
use scripted_engine::{Answer, Desk, Gate, finished};

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The page's tags in order, as a browser reads them. Panics on what a browser would have to repair, fetch or run.
fn check(page: &str) -> Vec<String> {
    /// Open and never closed in HTML.
    const VOID: &str = "meta";
    const ACTIVE: [&str; 8] = [
        "script", "link", "img", "iframe", "object", "embed", "form", "base",
    ];
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (mut open, mut tags) = (Vec::new(), Vec::new());
    for Ok(token) in Tokenizer::new(page) {
        match token {
            Token::StartTag(tag) => {
                let name = text(&tag.name);
                assert!(!ACTIVE.contains(&name.as_str()), "<{name}>");
                for attribute in tag.attributes.keys() {
                    let attribute = text(attribute);
                    let is_active = attribute.starts_with("on")
                        || ["href", "src", "xlink:href"].contains(&attribute.as_str());
                    assert!(!is_active, "<{name} {attribute}>");
                }
                if !tag.self_closing && name != VOID {
                    open.push(name.clone());
                }
                tags.push(name);
            }
            Token::EndTag(tag) => {
                let name = text(&tag.name);
                assert_eq!(open.pop(), Some(name.clone()), "</{name}>");
            }
            Token::String(words) => {
                let in_style = open.last().is_some_and(|name| name == "style");
                let words = text(&words);
                assert!(!in_style || !(words.contains("url(") || words.contains("@import")));
            }
            Token::Doctype(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    tags
}

/// Every number with a fraction that `flux show` prints of samples and changes.
fn numbers(shown: &str) -> Vec<&str> {
    let lines = shown
        .lines()
        .filter(|line| line.contains(" t/s") || line.contains("95 % CI"));
    let words = lines.flat_map(|line| line.split([' ', '(', ')', ',']));
    words
        .filter(|word| word.contains('.') && word.parse::<f64>().is_ok())
        .collect()
}

#[test]
fn a_winner_is_reported_with_the_numbers_of_show() {
    let bed = Bed::new(FLASH_WINS);
    let result = document(&mut bed.tune(ONLY_FLASH));
    assert_eq!(result["verdict"], "improved");
    let page = output(&mut bed.flux(&["report", "1", "-o", "-"]));
    check(&page);
    let shown = output(&mut bed.flux(&["show", "1"]));
    let numbers = numbers(&shown);
    assert!(numbers.len() > 40, "{shown}");
    for number in numbers {
        assert!(page.contains(number), "{number} of\n{shown}");
    }
    let head = page.find("<h1>Flash attention on: +").unwrap();
    assert!(head < page.find("<svg").unwrap(), "the verdict comes first");
    for part in [
        "<h2>Flash attention on against stock</h2>",
        "Confirmation, in the order it ran",
        "<h3>Every run, tg128</h3>",
        "<h2>Screening</h2>",
        "<h2>Why these settings</h2>",
        "<h2>Candidates, best first</h2>",
        "<h2>Machine</h2>",
        "<h2>Fingerprint</h2>",
        "<h2>Commands</h2>",
        "<summary>Raw output</summary>",
        "<h2>How the verdict is reached</h2>",
        "prefers-color-scheme:light",
        "@media print",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// The elements of an image, as a strict reader of XML finds them; nothing in it fetches or runs.
fn elements(image: &str) -> BTreeSet<String> {
    let tree = roxmltree::Document::parse(image).unwrap();
    let mut found = BTreeSet::new();
    for element in tree.descendants().filter(roxmltree::Node::is_element) {
        let name = element.tag_name().name();
        for attribute in element.attributes() {
            let attribute = attribute.name();
            let is_active = attribute.starts_with("on") || attribute == "href";
            assert!(!is_active, "<{name} {attribute}>");
        }
        found.insert(name.to_owned());
    }
    let drawn = [
        "circle", "polyline", "rect", "style", "svg", "text", "title",
    ];
    let is_drawn = |name: &String| drawn.contains(&name.as_str());
    assert!(found.iter().all(is_drawn), "{found:?}");
    found
}

#[test]
fn its_charts_are_one_image() {
    let bed = Bed::tuned();
    let image = output(&mut bed.flux(&["report", "1", "--chart", "-o", "-"]));
    elements(&image);
    let shown = document(&mut bed.flux(&["show", "1", "--json"]));
    let comparison = &shown["session"]["end"]["result"]["confirmation"]["metrics"]["tg128"];
    let change = comparison["change_pct"].as_f64().unwrap();
    for part in [
        "Flash attention on against stock",
        "Every run, tg128",
        "session 1",
        &format!("+{change:.0}"),
    ] {
        assert!(image.contains(part), "{part} of\n{image}");
    }
    let home = bed.fake.scratch().display().to_string();
    assert!(!image.contains(&home));
}

#[test]
fn what_was_never_measured_has_no_chart() {
    let desk = Desk::new(|_| Answer::Fails(FailureClass::OutOfMemory));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    let mut evidence = evidence(1, &desk.ports).unwrap();
    evidence.runs.clear();
    let refusal = report::document(&evidence, Format::Chart, None, &Paths::Full).unwrap_err();
    assert_eq!(
        refusal.headline,
        "session 1 has no chart: nothing was measured"
    );
}

#[test]
fn a_file_is_written_once_and_home_is_a_tilde() {
    let bed = Bed::new(FLASH_WINS);
    document(&mut bed.tune(ONLY_FLASH));
    let dir = tempfile::tempdir().unwrap();
    let report = |args: &[&str]| {
        let mut command = bed.flux(&["report", "1"]);
        command.current_dir(dir.path()).args(args);
        command
    };
    output(&mut report(&[]));
    let file = dir.path().join("flux-session-1.html");
    let page = fs::read_to_string(&file).unwrap();
    let home = bed.fake.scratch().display().to_string();
    assert!(page.contains("~/tiny.gguf") && !page.contains(&home));
    fs::write(&file, "mine").unwrap();
    let error = refused(&report(&[]).output().unwrap(), 1);
    assert!(error.contains("flux-session-1.html"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    output(&mut report(&["--force", "--full-paths"]));
    assert!(fs::read_to_string(&file).unwrap().contains(&home));
    refused(&report(&["-o", "no/such/folder.html"]).output().unwrap(), 1);
    refused(&bed.flux(&["report", "99"]).output().unwrap(), 1);
}

#[test]
fn no_winner_is_a_report_too() {
    // Nothing is faster, and the machine is too restless to say more.
    let bed = Bed::new("process_sd = 0.2\nrepetition_sd = 0.05\n");
    let mut ab = bed.flux(&["ab", "stock", "flash-attn=on", "--processes", "4", "--json"]);
    ab.arg("--runtime")
        .arg(bed.fake.dir())
        .arg("-m")
        .arg(&bed.model);
    assert_eq!(document(&mut ab)["verdict"], "inconclusive");
    let page = output(&mut bed.flux(&["report", "1", "-o", "-"]));
    check(&page);
    assert!(page.contains("<h1>flash-attn=on against stock: "), "{page}");
    assert!(page.contains("? inconclusive</span>") && page.contains("<h3>Every run, tg128</h3>"));
}

/// The report of a scripted session, however far it came.
fn scripted(desk: &Desk) -> String {
    let evidence = evidence(1, &desk.ports).unwrap();
    let page = html(&evidence, &Paths::Shortened(Redaction::default())).unwrap();
    check(&page);
    page
}

#[test]
fn hostile_names_are_shown_and_do_nothing() {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    let mut evidence = evidence(1, &desk.ports).unwrap();
    evidence.session.begun.model.name = "<script>alert(\"1\")</script>\u{202e}".to_owned();
    evidence.session.begun.runtime.name = "' onload='x\u{1b}[2J".to_owned();
    evidence.runs[0].run.raw.stderr = "</pre><img src=x>\u{0}\n/home/anna/a.gguf".to_owned();
    let page = html(&evidence, &Paths::Shortened(Redaction::default())).unwrap();
    check(&page);
    assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\u{202e}"));
    assert!(page.contains("&#39; onload=&#39;x\\u{1b}[2J"), "{page}");
    assert!(page.contains("&lt;/pre&gt;&lt;img src=x&gt;\\u{0}\n~/a.gguf"));
    assert!(!page.contains(['\u{1b}', '\u{202e}', '\u{0}']) && !page.contains("anna"));
}

/// Every text of the evidence that may be any text, by its place.
fn texts(evidence: &Value) -> Vec<String> {
    fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(at.to_owned()),
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    leaves(item, &format!("{at}/{n}"), found);
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    leaves(field, &format!("{at}/{}", key.replace('/', "~1")), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    leaves(evidence, "", &mut found);
    // Words of a fixed list, dates and addresses are refused.
    found.retain(|place| {
        let mut other = evidence.clone();
        *other.pointer_mut(place).unwrap() = "zz".into();
        serde_json::from_value::<Evidence>(other).is_ok()
    });
    found
}

fn with(evidence: &Value, places: &[String], text: &str) -> Evidence {
    let mut other = evidence.clone();
    for place in places {
        *other.pointer_mut(place).unwrap() = text.into();
    }
    serde_json::from_value(other).unwrap()
}

fn page_with(evidence: &Value, places: &[String], text: &str) -> String {
    html(&with(evidence, places, text), &Paths::Full).unwrap()
}

fn image_with(evidence: &Value, places: &[String], text: &str) -> String {
    let evidence = with(evidence, places, text);
    report::document(&evidence, Format::Chart, None, &Paths::Full).unwrap()
}

/// Whatever stands in any of its texts: the same tags as with a word, nothing that a browser repairs, every character
/// seen.
#[test]
fn no_text_of_a_session_is_markup() {
    let desk = Desk::new(|_| Answer::Valid);
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    let mut evidence = evidence(1, &desk.ports).unwrap();
    // One run of each stage says all.
    let mut stages = Vec::new();
    evidence.runs.retain(|run| {
        let stage = run.planned.stage;
        !stages.contains(&stage) && {
            stages.push(stage);
            true
        }
    });
    let evidence = serde_json::to_value(evidence).unwrap();
    let places = texts(&evidence);
    assert!(places.len() > 40, "{places:?}");
    // A chart's label that is too long for its place is cut, and its whole text is its title.
    let tags = |text: &str| {
        let mut tags = check(&page_with(&evidence, &places, text));
        tags.retain(|tag| tag != "title");
        tags
    };
    let plain = tags("zz");
    assert!(plain.len() > 200, "{}", plain.len());
    let drawn = elements(&image_with(&evidence, &places, "zz"));
    let part = prop_oneof![
        "[<>&\"'`=/!-]",
        Just("<script>".to_owned()),
        Just("</pre></td>-->".to_owned()),
        Just("<![CDATA[".to_owned()),
        Just("&lt;&#0;&amp".to_owned()),
        Just("\u{202e}\u{1b}[2J\u{0}\u{7f}\u{9b}".to_owned()),
        ".",
    ];
    let text = prop::collection::vec(part, 1..12).prop_map(|parts| format!("z{}z", parts.concat()));
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    };
    proptest!(config, |(text in text)| {
        let page = page_with(&evidence, &places, &text);
        let image = image_with(&evidence, &places, &text);
        prop_assert_eq!(&tags(&text), &plain);
        prop_assert_eq!(&elements(&image), &drawn);
        let is_seen = |c: char| c == '\n' || clean(c.encode_utf8(&mut [0; 4])).chars().eq([c]);
        prop_assert!(page.chars().all(is_seen) && image.chars().all(is_seen));
    });
}

#[test]
fn where_everything_failed_the_report_says_so() {
    let desk = Desk::new(|_| Answer::Fails(FailureClass::OutOfMemory));
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    finished(&events, job);
    let page = scripted(&desk);
    assert!(page.contains("<h1>Failed: "), "{page}");
    assert!(page.contains("out of memory") && page.contains("Out of memory: scripted"));
    assert!(!page.contains("<h2>Why these settings</h2>"));
}

#[test]
fn a_session_that_goes_on_is_reported_as_far_as_it_came() {
    let gate = Gate::new(8);
    let desk = Desk::new(gate.script());
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    gate.pass(|| {
        let page = scripted(&desk);
        assert!(
            page.contains("<h1>Not finished: no result, 8 runs kept</h1>"),
            "{page}"
        );
        assert!(page.contains("<h2>Screening</h2>"));
        engine.cancel(job, CancelMode::AfterSample);
    });
    finished(&events, job);
    let page = scripted(&desk);
    assert!(
        page.contains("<h1>Cancelled: no result, 9 runs kept</h1>"),
        "{page}"
    );
    assert!(
        page.contains("flux tune --resume 1 goes on with it"),
        "{page}"
    );
}
