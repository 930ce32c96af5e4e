//! Readings on their way to the screen: a thread keeps them until a frame takes them, and asks for frames only while
//! someone looks. What goes on by itself never asks for more than four frames a second (style B2).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Select, Sender, bounded};
use eframe::egui::Context;

use crate::domain::telemetry::Rings;
use crate::engine::telemetry::Tick;

/// Shortest time between two frames that events and readings ask for, milliseconds: with those that egui adds by itself
/// there are at most four a second, which do not disturb what is measured.
const FRAME_MS: u64 = 300;

/// Frames asked for by workers.
pub struct Frames {
    ctx: OnceLock<Context>,
    begun: Instant,
    /// The newest frame planned, milliseconds after `begun`.
    planned: AtomicU64,
    looked_at: AtomicBool,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            ctx: OnceLock::new(),
            begun: Instant::now(),
            planned: AtomicU64::new(0),
            looked_at: AtomicBool::new(false),
        }
    }
}

impl Frames {
    /// Frames are asked of this context from now on.
    pub fn wake(&self, ctx: &Context) {
        let _ = self.ctx.set(ctx.clone());
    }

    /// A frame at once: the user waits for what arrived.
    pub fn now(&self) {
        if let Some(ctx) = self.ctx.get() {
            ctx.request_repaint();
        }
    }

    /// A frame as soon as the pace allows.
    pub fn soon(&self) {
        let Some(ctx) = self.ctx.get() else { return };
        let now = self.begun.elapsed().as_millis() as u64;
        let planned = self.planned.load(Ordering::SeqCst);
        let next = next_frame(planned, now);
        self.planned.store(next, Ordering::SeqCst);
        // Never zero, for which egui draws two frames.
        ctx.request_repaint_after(Duration::from_millis((next - now).max(1)));
    }

    /// Whether readings ask for frames.
    pub fn look_at_sensors(&self, looked_at: bool) {
        self.looked_at.store(looked_at, Ordering::SeqCst);
    }
}

/// The frame planned already, or the next there may be after it; all in milliseconds.
fn next_frame(planned: u64, now: u64) -> u64 {
    if now <= planned {
        planned
    } else {
        (planned + FRAME_MS).max(now)
    }
}

/// The app's end of the sensors.
pub struct Sensors(Receiver<Vec<Tick>>);

impl Sensors {
    /// Over the ticks of a sampler, with the work of the thread that keeps them: an hour's at most.
    pub fn over(
        ticks: Receiver<Tick>,
        interval: Duration,
        frames: Arc<Frames>,
    ) -> (Self, impl FnOnce() + Send + 'static) {
        // Nothing waits in the channel: a frame takes all that the thread has, or nothing.
        let (out, taken) = bounded(0);
        let interval_ms = interval.as_millis().max(1) as usize;
        let most = Rings::HOUR_MS as usize / interval_ms;
        (Self(taken), move || gather(&ticks, &out, &frames, most))
    }

    /// What was read since it was asked last, without waiting.
    pub fn arrived(&self) -> Option<Vec<Tick>> {
        self.0.try_recv().ok()
    }

    /// The same, waited for; `None` after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<Vec<Tick>> {
        self.0.recv_timeout(patience).ok()
    }
}

/// Keeps ticks until they are taken, the oldest giving way; ends with the sampler or with the app.
fn gather(ticks: &Receiver<Tick>, out: &Sender<Vec<Tick>>, frames: &Frames, most: usize) {
    let mut kept: VecDeque<Tick> = VecDeque::new();
    loop {
        let mut select = Select::new();
        let heard = select.recv(ticks);
        if !kept.is_empty() {
            select.send(out);
        }
        let ready = select.select();
        if ready.index() == heard {
            let Ok(tick) = ready.recv(ticks) else { return };
            if kept.len() == most {
                kept.pop_front();
            }
            kept.push_back(tick);
            if frames.looked_at.load(Ordering::SeqCst) {
                frames.soon();
            }
        } else if ready.send(out, std::mem::take(&mut kept).into()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::domain::types::Timestamp;

    use super::*;

    fn tick(at: i64) -> Tick {
        Tick {
            at: Timestamp(at),
            readings: Vec::new(),
            cost: Duration::ZERO,
            absent: Arc::default(),
        }
    }

    #[test]
    fn frames_keep_their_distance_however_many_are_asked_for() {
        let mut planned = 0;
        let mut all = Vec::new();
        for now in [300, 301, 400, 550, 551, 552, 2000, 2001] {
            planned = next_frame(planned, now);
            all.push(planned);
        }
        assert_eq!(all, [300, 600, 600, 600, 600, 600, 2000, 2300]);
    }

    #[test]
    fn ticks_wait_for_the_app_in_order() {
        let (ticks, receiver) = bounded(8);
        let (out, taken) = bounded(0);
        for at in 0..5 {
            ticks.send(tick(at)).unwrap();
        }
        let frames = Frames::default();
        thread::scope(|scope| {
            scope.spawn(|| gather(&receiver, &out, &frames, 3));
            let mut seen: Vec<i64> = Vec::new();
            while seen.last() != Some(&4) {
                seen.extend(taken.recv().unwrap().iter().map(|t| t.at.0));
            }
            assert!(seen.is_sorted());
            drop(ticks);
        });
    }

    #[test]
    fn readings_ask_for_frames_only_while_someone_looks() {
        let ctx = Context::default();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        ctx.set_request_repaint_callback(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let before = asked.load(Ordering::SeqCst);
        let sense = |looked_at: bool| {
            let frames = Frames::default();
            frames.wake(&ctx);
            frames.look_at_sensors(looked_at);
            let (ticks, receiver) = bounded(8);
            let (out, _taken) = bounded(0);
            ticks.send(tick(1)).unwrap();
            drop(ticks);
            gather(&receiver, &out, &frames, 3);
            asked.load(Ordering::SeqCst) - before
        };
        assert_eq!(sense(false), 0);
        assert!(sense(true) > 0);
    }
}
