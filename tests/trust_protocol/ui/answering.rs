//! Every question has one answer, in turn, whatever becomes of the others and of the window.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::sync::atomic::AtomicUsize;

use super::workers::{Last, Question, answer_all};
use crate::in_any_order;
use crate::ports::sync::{Receiver, Sender, bounded};

type Answer = Result<usize, String>;

/// A worker that counts the questions it was asked.
fn worker(
    last: Last,
) -> (
    Sender<Question<(), usize>>,
    Receiver<Answer>,
    Arc<AtomicUsize>,
) {
    let ((ask, questions), (outbox, inbox)) = (bounded(2), bounded(1));
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    shuttle::thread::spawn(move || {
        answer_all(&questions, &(), last, |answer| {
            count.fetch_add(1, Ordering::SeqCst);
            outbox.send(answer.map_err(|error| error.headline)).is_ok()
        });
    });
    (ask, inbox, answered)
}

fn ask(of: &Sender<Question<(), usize>>, number: usize) {
    let question: Question<(), usize> = Box::new(move |()| {
        if number == 1 {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        number
    });
    // A worker whose answers nobody hears may have ended.
    let _ = of.send(question);
}

#[test]
fn a_question_that_panics_is_one_complaint_and_the_next_are_answered() {
    in_any_order(|| {
        let (asking, inbox, _) = worker(Last::Queued);
        let asker = shuttle::thread::spawn(move || (0..4).for_each(|number| ask(&asking, number)));
        let answers: Vec<Answer> = inbox.iter().collect();
        let bug = "Flux hit a bug: on purpose".to_owned();
        assert_eq!(answers, [Ok(0), Err(bug), Ok(2), Ok(3)]);
        asker.join().unwrap();
    });
}

#[test]
fn what_was_ordered_is_done_after_the_window_is_gone() {
    in_any_order(|| {
        let (asking, inbox, answered) = worker(Last::Queued);
        let window = shuttle::thread::spawn(move || drop(inbox));
        (0..4).for_each(|number| ask(&asking, number));
        drop(asking);
        window.join().unwrap();
        while answered.load(Ordering::SeqCst) < 4 {
            shuttle::thread::yield_now();
        }
    });
}

#[test]
fn what_was_only_asked_is_not_answered_for_nobody() {
    in_any_order(|| {
        let (asking, inbox, answered) = worker(Last::UnderWay);
        drop(inbox);
        (0..2).for_each(|number| ask(&asking, number));
        drop(asking);
        assert!(answered.load(Ordering::SeqCst) <= 1);
    });
}
