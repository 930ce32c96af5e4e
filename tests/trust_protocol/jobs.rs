//! Jobs, their events, their cancels and their ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flux::domain::types::Timestamp;
use flux::engine::message::{Event, EventKind, JobId, Occupies, Outcome};
use flux::ports::{Clock, NoticeLevel};
use serde_json::Value;
use shuttle::rand::{Rng as _, thread_rng};

use crate::engine::job::{Ended, JobContext};
use crate::engine::jobs::Jobs;
use crate::engine::watch::Watch;
use crate::in_any_order;
use crate::ports::CancelMode;
use crate::ports::sync::Receiver;

/// Every look at it is a second later: no progress comes too soon after another.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

type Work = Box<dyn FnOnce(&mut JobContext) -> Result<Value, Ended> + Send>;

fn start(jobs: &mut Jobs, occupies: Occupies, work: Work) -> JobId {
    let clock = Arc::new(Ticking(AtomicU64::new(0)));
    jobs.start(occupies, clock, Watch::default(), work).unwrap()
}

/// Says this many things, some of which may be lost; a cancel ends it.
fn talk(times: u64) -> Work {
    Box::new(move |context| {
        for done in 0..times {
            if context.cancel.is_cancelled() {
                return Err(Ended::Cancelled {
                    kept_runs: 0,
                    session: None,
                });
            }
            context.progress(done, times, None, "talking");
            context.notice(NoticeLevel::Info, "said", done.to_string());
        }
        Ok(Value::from(times))
    })
}

/// Goes on until it is cancelled.
fn endless() -> Work {
    talk(u64::MAX)
}

fn panicking(after: u64) -> Work {
    Box::new(move |context| {
        for _ in 0..after {
            context.notice(NoticeLevel::Info, "said", "");
        }
        // Without the words and the backtrace of a panic hook, thousands of times.
        std::panic::resume_unwind(Box::new("on purpose"))
    })
}

/// Events by job, whose numbers rise by one and whose end is the last.
#[derive(Default)]
struct Heard {
    all: BTreeMap<JobId, Vec<EventKind>>,
    ended: usize,
}

impl Heard {
    fn one(&mut self, event: Event) {
        let of_job = self.all.entry(event.job).or_default();
        assert_eq!(event.seq, of_job.len() as u64);
        let is_over = matches!(of_job.last(), Some(EventKind::Finished(_)));
        assert!(!is_over, "after its end: {:?}", event.kind);
        self.ended += usize::from(matches!(event.kind, EventKind::Finished(_)));
        of_job.push(event.kind);
    }

    /// Hears until so many jobs have ended.
    fn until_ended(&mut self, jobs: usize, events: &Receiver<Event>) {
        while self.ended < jobs {
            self.one(events.recv().unwrap());
        }
    }

    /// Hears what comes until nobody can send any more.
    fn rest(mut self, events: &Receiver<Event>) -> BTreeMap<JobId, Vec<EventKind>> {
        events.into_iter().for_each(|event| self.one(event));
        self.all
    }
}

/// How a job ended, which it must have.
fn outcome(events: &[EventKind]) -> &Outcome {
    match events.last() {
        Some(EventKind::Finished(outcome)) => outcome,
        other => panic!("not ended: {other:?}"),
    }
}

/// Notices of a job, none of which may be lost.
fn said(events: &[EventKind]) -> Vec<String> {
    let texts = events.iter().filter_map(|kind| match kind {
        EventKind::Notice(notice) => Some(notice.text.clone()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn events_are_numbered_none_is_lost_and_each_job_has_one_end() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(2);
        let mut heard = Heard::default();
        let first = start(&mut jobs, Occupies::Nothing, talk(4));
        let second = start(&mut jobs, Occupies::Measuring, talk(3));
        heard.until_ended(1, &events);
        let third = start(&mut jobs, Occupies::Nothing, talk(1));
        heard.until_ended(3, &events);
        drop(jobs);
        let all = heard.rest(&events);
        for (job, times) in [(first, 4), (second, 3), (third, 1)] {
            let result = Value::from(times);
            assert_eq!(*outcome(&all[&job]), Outcome::Done { result });
            let texts: Vec<String> = (0..times).map(|n: u64| n.to_string()).collect();
            assert_eq!(said(&all[&job]), texts);
        }
    });
}

#[test]
fn a_cancel_always_comes_to_an_end_and_is_never_softened() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(2);
        let mut heard = Heard::default();
        let job = start(&mut jobs, Occupies::Measuring, endless());
        let modes = [CancelMode::AfterSample, CancelMode::Now];
        let first = modes[thread_rng().gen_range(0..2)];
        jobs.cancel(job, first);
        jobs.cancel(job, CancelMode::AfterSample);
        jobs.cancel(JobId(99), CancelMode::Now);
        heard.until_ended(1, &events);
        drop(jobs);
        let all = heard.rest(&events);
        assert!(matches!(outcome(&all[&job]), Outcome::Cancelled { .. }));
    });
}

#[test]
fn a_cancel_now_stays_one_beside_a_gentler_one() {
    in_any_order(|| {
        let token = crate::ports::CancelToken::new();
        let gentle = token.clone();
        let other = shuttle::thread::spawn(move || gentle.cancel(CancelMode::AfterSample));
        token.cancel(CancelMode::Now);
        assert!(token.is_now() && token.is_cancelled());
        other.join().unwrap();
        assert!(token.is_now() && token.is_cancelled());
    });
}

#[test]
fn a_panic_is_one_failed_job_and_the_others_go_on() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(1);
        let mut heard = Heard::default();
        let good = start(&mut jobs, Occupies::Nothing, talk(2));
        let after = thread_rng().gen_range(0..3);
        let bad = start(&mut jobs, Occupies::Measuring, panicking(after));
        heard.until_ended(2, &events);
        jobs.is_free_for(Occupies::Measuring).unwrap();
        let next = start(&mut jobs, Occupies::Measuring, talk(1));
        heard.until_ended(3, &events);
        drop(jobs);
        let all = heard.rest(&events);
        let Outcome::Failed { error } = outcome(&all[&bad]) else {
            panic!("not failed");
        };
        assert_eq!(error.code, "panicked");
        assert_eq!(error.headline, "Flux hit a bug in this job: on purpose");
        for job in [good, next] {
            assert!(matches!(outcome(&all[&job]), Outcome::Done { .. }));
        }
    });
}

#[test]
fn who_has_seen_the_end_of_a_measurement_may_begin_the_next_and_nobody_before() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(2);
        let first = start(&mut jobs, Occupies::Measuring, talk(1));
        // Refused for as long as it may still measure; a refusal says why.
        if let Err(error) = jobs.is_free_for(Occupies::Serving) {
            assert_eq!(error.code, "busy");
        }
        for event in &events {
            assert_eq!(event.job, first);
            if matches!(event.kind, EventKind::Finished(_)) {
                break;
            }
        }
        jobs.is_free_for(Occupies::Measuring).unwrap();
        let second = start(&mut jobs, Occupies::Measuring, talk(1));
        assert!(second > first);
        drop(events);
    });
}

#[test]
fn two_measurements_are_never_under_way_at_once() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(4);
        let reader = shuttle::thread::spawn(move || Heard::default().rest(&events));
        let measuring = Arc::new(shuttle::sync::atomic::AtomicUsize::new(0));
        let mut begun = 0;
        for _ in 0..4 {
            if jobs.is_free_for(Occupies::Measuring).is_ok() {
                begun += 1;
                let count = Arc::clone(&measuring);
                let work: Work = Box::new(move |context| {
                    assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two measure");
                    context.notice(NoticeLevel::Info, "said", "");
                    count.fetch_sub(1, Ordering::SeqCst);
                    Ok(Value::Null)
                });
                start(&mut jobs, Occupies::Measuring, work);
            }
            shuttle::thread::yield_now();
        }
        drop(jobs);
        let all = reader.join().unwrap();
        assert!(begun >= 1 && all.len() <= begun);
        for events in all.values() {
            // The end itself may be cut off by the engine's own, a panic not.
            let failed = matches!(
                events.last(),
                Some(EventKind::Finished(Outcome::Failed { .. }))
            );
            assert!(!failed, "{events:?}");
        }
    });
}

#[test]
fn an_engine_that_is_dropped_ends_its_jobs_though_nobody_reads() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(1);
        start(&mut jobs, Occupies::Measuring, endless());
        start(&mut jobs, Occupies::Nothing, endless());
        start(&mut jobs, Occupies::Nothing, panicking(2));
        drop(jobs);
        drop(events);
    });
}

#[test]
fn a_reader_that_is_gone_ends_the_jobs_quietly() {
    in_any_order(|| {
        let (mut jobs, events) = Jobs::telling(1);
        start(&mut jobs, Occupies::Measuring, endless());
        let reader = shuttle::thread::spawn(move || drop((events.recv(), events)));
        while jobs.is_free_for(Occupies::Measuring).is_err() {
            shuttle::thread::yield_now();
        }
        reader.join().unwrap();
    });
}
