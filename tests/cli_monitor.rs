//! `flux monitor` as scripts and people use it: lines, CSV, JSON, its ends.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use flux_cli::{Bed, refused};

/// The host's sensors are on every machine; nothing is asserted of others.
fn bed() -> Bed {
    Bed::new("")
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn plain_lines_end_after_the_samples_asked_for() {
    let bed = bed();
    let output = bed
        .flux(&["monitor", "--samples", "3", "--interval", "100"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(
            line.contains("Processor and memory: ") && line.contains("RAM "),
            "{line}"
        );
        assert!(
            line.contains(" · sampling ") && !line.contains('\u{1b}'),
            "{line}"
        );
    }
    // Load is work since the reading before: the first has none.
    assert!(!lines[0].contains("CPU load") && lines[2].contains("CPU load"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("sampling costs p50 ") && said.contains("3 ticks"),
        "{said}"
    );
}

#[test]
fn json_is_a_document_a_line() {
    let bed = bed();
    let output = bed
        .flux(&["monitor", "--json", "--samples", "2", "--interval", "100"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let documents: Vec<Value> = lines(&output.stdout)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(documents.len(), 2);
    let at = |i: usize| documents[i]["at"].as_i64().unwrap();
    assert!(at(1) > at(0));
    for document in &documents {
        assert_eq!(document["schema"], 1);
        assert!(document["sampling_cost_ms"].as_f64().unwrap() > 0.0);
        let readings = document["readings"].as_array().unwrap();
        let ram = readings
            .iter()
            .find(|r| r["metric"] == "ram_used_bytes")
            .unwrap();
        assert_eq!(ram["source"], "host");
        assert!(ram["value"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn csv_goes_to_stdout_or_to_a_file_that_is_never_replaced_unasked() {
    let bed = bed();
    let short = ["--samples", "2", "--interval", "100"];
    let monitor = |args: &[&str]| {
        bed.flux(&[&["monitor"], args, &short].concat())
            .output()
            .unwrap()
    };
    let is_csv = |lines: &[String]| {
        assert_eq!(lines[0], "time,source,metric,value");
        let costs = lines
            .iter()
            .filter(|l| l.contains(",flux,sampling_cost_ms,"));
        assert_eq!(costs.count(), 2);
        for line in &lines[1..] {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), 4, "{line}");
            cells[0].parse::<jiff::Timestamp>().unwrap();
            cells[3].parse::<f64>().unwrap();
        }
    };
    let output = monitor(&["--csv", "-"]);
    assert_eq!(output.status.code(), Some(0));
    is_csv(&lines(&output.stdout));
    let path = bed.fake.scratch().join("readings.csv");
    let file = path.to_str().unwrap();
    let output = monitor(&["--csv", file]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    is_csv(&lines(&fs::read(&path).unwrap()));
    let headline = refused(&monitor(&["--csv", file]), 1);
    assert_eq!(headline, format!("the file exists already: {file}"));
    let output = monitor(&["--csv", file, "--force"]);
    assert_eq!(output.status.code(), Some(0));
    is_csv(&lines(&fs::read(&path).unwrap()));
    refused(&monitor(&["--csv", "-", "--json"]), 2);
    let nowhere = bed.fake.scratch().join("none/readings.csv");
    let headline = refused(&monitor(&["--csv", nowhere.to_str().unwrap()]), 1);
    assert_eq!(headline, format!("cannot write {}", nowhere.display()));
    let folder = bed.fake.scratch().to_str().unwrap().to_owned();
    let headline = refused(&monitor(&["--csv", &folder]), 1);
    assert_eq!(headline, format!("this is a folder: {folder}"));
}

#[test]
fn a_time_ends_it_too() {
    let bed = bed();
    let output = bed
        .flux(&["monitor", "--seconds", "1", "--interval", "100"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let count = lines(&output.stdout).len();
    assert!((1..=11).contains(&count), "{count}");
}

#[test]
fn a_reader_that_goes_ends_it() {
    let bed = bed();
    let mut monitor = bed
        .flux(&["monitor", "--interval", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(monitor.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(!line.is_empty());
    // The pipe is closed now.
    assert_eq!(monitor.wait().unwrap().code(), Some(0));
}

/// Who asked for no end gave none by Ctrl-C; who asked for more than came was cut short.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_it_cleanly() {
    use rustix::process::{Pid, Signal, kill_process};

    let bed = bed();
    for (args, status) in [(&[][..], 0), (&["--samples", "100000"][..], 130)] {
        let args = [&["monitor", "--interval", "100"], args].concat();
        let mut monitor = bed
            .flux(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(monitor.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let pid = Pid::from_child(&monitor);
        kill_process(pid, Signal::INT).unwrap();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert!(rest.is_empty() || rest.ends_with('\n'), "{rest}");
        assert_eq!(monitor.wait().unwrap().code(), Some(status));
        let mut said = String::new();
        monitor
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert!(
            !said.contains("error:") && said.contains("sampling costs"),
            "{said}"
        );
    }
}
