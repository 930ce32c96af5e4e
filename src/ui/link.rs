//! The app's side of its workers: jobs run in the engine, questions on two named threads, answers come back as messages.
//! Nothing that may take time happens on the thread that draws.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use eframe::egui::Context;

use crate::engine::message::{Command, Event, EventKind, JobError, JobId};
use crate::engine::telemetry::Tick;
use crate::engine::{Engine, Ports};
use crate::ports::CancelMode;

use super::files::{Answer, Choice, Files};
use super::sensors::{Frames, Sensors};
use super::state::AppState;
use super::workers::{self, Last, answer_all};

/// Messages waiting for the next frame; a worker that is ahead by so many waits.
const INBOX: usize = 512;
/// Questions waiting for a worker; more is a fault of the page that asks.
const QUESTIONS: usize = 64;

/// How long a closing window waits for answers under way.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Said where no file dialog can be shown.
const NO_DIALOG: &str = "This system shows no file dialog (install xdg-desktop-portal or zenity); models and llama.cpp folders can be typed";

/// What an answer does to the state, on the thread that draws.
type Apply = Box<dyn FnOnce(&mut AppState, &Link) + Send>;
/// Asked of the ports on a worker.
type Question = workers::Question<Ports, Apply>;

/// What arrives for the next frame.
pub enum Message {
    /// Of a job.
    Event(Event),
    /// To a question.
    Answer(Apply),
    /// Of the sensors, in order.
    Readings(Vec<Tick>),
}

/// Which thread answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// The store: answers in milliseconds.
    Store,
    /// Machine, runtimes, model folders, files: may take seconds.
    System,
}

/// The workers. Dropping it ends every job and waits for its last child, then for the answers under way.
pub struct Link {
    engine: Engine,
    store: Sender<Question>,
    system: Sender<Question>,
    inbox: Receiver<Message>,
    _workers: Workers,
    outbox: Sender<Message>,
    asked: Arc<AtomicUsize>,
    frames: Arc<Frames>,
    sensors: Option<Sensors>,
    files: Arc<dyn Files>,
}

/// Hears when every worker has ended; dropped after the senders and the inbox, which ends them.
struct Workers(Receiver<()>);

impl Drop for Workers {
    fn drop(&mut self) {
        // What was ordered is stored, and the database is closed. A folder that hangs must not hold up the window.
        let _ = self.0.recv_timeout(LAST_ANSWERS);
    }
}

impl Link {
    /// Starts the workers over `ports`; `files` asks the user for files.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(ports: Ports, files: Arc<dyn Files>) -> Result<Self, JobError> {
        let (outbox, inbox) = bounded(INBOX);
        let asked = Arc::new(AtomicUsize::new(0));
        let frames: Arc<Frames> = Arc::default();
        let (at_work, over) = bounded::<()>(0);
        let worker = |name: &str, last: Last| {
            let (sender, questions) = bounded::<Question>(QUESTIONS);
            let (ports, outbox) = (ports.clone(), outbox.clone());
            let (frames, at_work) = (Arc::clone(&frames), at_work.clone());
            spawn(name, move || {
                answer_all(&questions, &ports, last, |answered| {
                    let apply = answered.unwrap_or_else(complaint);
                    let heard = outbox.send(Message::Answer(apply)).is_ok();
                    frames.now();
                    heard
                });
                drop((ports, at_work));
            })
            .map(|()| sender)
        };
        let store = worker("ui-store", Last::Queued)?;
        let system = worker("ui-system", Last::UnderWay)?;
        let (engine, events) = Engine::new(ports);
        let (told, shown) = (outbox.clone(), Arc::clone(&frames));
        spawn("ui-events", move || forward(&events, &told, &shown))?;
        Ok(Self {
            engine,
            store,
            system,
            _workers: Workers(over),
            inbox,
            outbox,
            asked,
            frames,
            sensors: None,
            files,
        })
    }

    /// Frames are asked of this context from now on.
    pub fn wake(&self, ctx: &Context) {
        self.frames.wake(ctx);
    }

    /// Reads the sensors so often from now on; `keep` stores what is read while a session is measured.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn watch(&mut self, interval: Duration, keep: bool) -> Result<(), JobError> {
        let ticks = self.engine.watch(interval, keep)?;
        let (sensors, work) = Sensors::over(ticks, interval, Arc::clone(&self.frames));
        spawn("ui-sensors", work)?;
        self.sensors = Some(sensors);
        Ok(())
    }

    /// Says whether someone looks at the sensors: only then do readings ask for frames.
    pub fn look_at_sensors(&self, looked_at: bool) {
        self.frames.look_at_sensors(looked_at);
    }

    /// The ports, for what is no question: the data folder's name, the shapes one can synthesise.
    pub fn ports(&self) -> &Ports {
        self.engine.ports()
    }

    /// Asks `question` on a worker and hands its answer to `apply` before a later frame.
    pub fn ask<T: Send + 'static>(
        &self,
        worker: Worker,
        question: impl FnOnce(&Ports) -> T + Send + 'static,
        apply: impl FnOnce(&mut AppState, &Self, T) + Send + 'static,
    ) {
        let asked: Question = Box::new(move |ports| {
            let answer = question(ports);
            Box::new(move |state, link| apply(state, link, answer))
        });
        let to = match worker {
            Worker::Store => &self.store,
            Worker::System => &self.system,
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        if to.try_send(asked).is_err() {
            self.asked.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(
                ?worker,
                "a question was dropped: the worker is busy or gone"
            );
        }
    }

    /// Lets the user choose a file or folder; `apply` hears of it unless the dialog was dismissed.
    pub fn choose(
        &self,
        what: Choice,
        apply: impl FnOnce(&mut AppState, &Self, PathBuf) + Send + 'static,
    ) {
        let (outbox, frames) = (self.outbox.clone(), Arc::clone(&self.frames));
        let asked = Arc::clone(&self.asked);
        let chosen = Box::new(move |answer: Answer| {
            asked.fetch_add(1, Ordering::SeqCst);
            let apply: Apply = Box::new(move |state, link| match answer {
                Answer::Path(path) => apply(state, link, path),
                Answer::NoDialog => state.complain(NO_DIALOG),
            });
            if outbox.send(Message::Answer(apply)).is_ok() {
                frames.now();
            }
        });
        self.files.choose(what, chosen);
    }

    /// Starts a job.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn start_job(&mut self, command: Command) -> Result<JobId, JobError> {
        self.engine.submit(command)
    }

    /// Asks a job to stop.
    pub fn cancel(&self, job: JobId, mode: CancelMode) {
        self.engine.cancel(job, mode);
    }

    /// What arrived since the last frame, without waiting.
    pub fn arrived(&self) -> Vec<Message> {
        let mut arrived: Vec<Message> = self.inbox.try_iter().collect();
        self.settle(&arrived);
        let sensed = self.sensors.as_ref().and_then(Sensors::arrived);
        arrived.extend(sensed.map(Message::Readings));
        arrived
    }

    /// Waits for readings; `None` after `patience`. For tests.
    pub fn sense(&self, patience: Duration) -> Option<Message> {
        let sensed = self.sensors.as_ref()?.wait(patience);
        sensed.map(Message::Readings)
    }

    /// Waits for the next message; `None` after `patience`. For tests, which have no frames to wait for.
    pub fn wait(&self, patience: Duration) -> Option<Message> {
        let message = self.inbox.recv_timeout(patience).ok()?;
        self.settle(std::slice::from_ref(&message));
        Some(message)
    }

    /// Questions without an answer yet.
    pub fn unanswered(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn settle(&self, messages: &[Message]) {
        let answers = messages
            .iter()
            .filter(|m| matches!(m, Message::Answer(_)))
            .count();
        self.asked.fetch_sub(answers, Ordering::SeqCst);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), JobError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    // It ends when the link drops its sender; nothing of it has to be waited for.
    thread
        .map(drop)
        .map_err(|e| JobError::new("thread", format!("no thread could be started: {e}")))
}

/// What a question that panicked does to the state.
fn complaint(error: JobError) -> Apply {
    Box::new(move |state, _| state.complain(error.headline))
}

/// Hands events on and asks for frames: at once where a job ends, else no sooner than the screen's pace allows.
fn forward(events: &Receiver<Event>, outbox: &Sender<Message>, frames: &Frames) {
    for event in events {
        let ends = matches!(event.kind, EventKind::Finished(_));
        if outbox.send(Message::Event(event)).is_err() {
            return;
        }
        if ends {
            frames.now();
        } else {
            frames.soon();
        }
    }
}
