//! When to leave a GPU alone so that it can fall asleep (case C27): a driver takes every reading for use, and one that is
//! read four times a second never sleeps.

/// Without work for so long, seconds, a GPU may be about to sleep.
const IDLE_SECS: f64 = 10.0;
/// It is left alone for so long, seconds: twice what drivers wait for.
const REST_SECS: f64 = 10.0;
/// One that did not fall asleep then is held awake by a screen or a program; it is tried again after so long, seconds.
const HELD_SECS: f64 = 300.0;

/// What a GPU did lately, by monotonic seconds.
#[derive(Debug, Clone, Default)]
pub struct Rest {
    idle_since: Option<f64>,
    rests_until: Option<f64>,
    held_until: f64,
}

impl Rest {
    /// It is not to be read now.
    pub fn rests(&mut self, now: f64) -> bool {
        match self.rests_until {
            Some(until) if now < until => true,
            Some(_) => {
                *self = Self {
                    held_until: now + HELD_SECS,
                    ..Self::default()
                };
                false
            }
            None => false,
        }
    }

    /// It was read; a load that is not known counts as work.
    pub fn read(&mut self, now: f64, load_pct: Option<f64>) {
        if load_pct != Some(0.0) || now < self.held_until {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now - since >= IDLE_SECS {
            self.rests_until = Some(now + REST_SECS);
        }
    }

    /// It sleeps, or is measured: what was known is over.
    pub fn over(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it was read, every quarter of a second from `from` to `to`.
    fn reads(rest: &mut Rest, from: f64, to: f64, load: Option<f64>) -> Vec<bool> {
        let ticks = ((to - from) * 4.0) as u32;
        (0..ticks)
            .map(|tick| {
                let now = from + f64::from(tick) / 4.0;
                let read = !rest.rests(now);
                if read {
                    rest.read(now, load);
                }
                read
            })
            .collect()
    }

    fn all(reads: &[bool], wanted: bool) -> bool {
        reads.iter().all(|read| *read == wanted)
    }

    #[test]
    fn ten_idle_seconds_earn_ten_of_rest_and_one_that_is_held_awake_is_not_tried_again_soon() {
        let mut rest = Rest::default();
        assert!(all(&reads(&mut rest, 0.0, 10.25, Some(0.0)), true));
        assert!(all(&reads(&mut rest, 10.25, 20.0, Some(0.0)), false));
        assert!(all(&reads(&mut rest, 20.0, 330.25, Some(0.0)), true));
        assert!(all(&reads(&mut rest, 330.25, 340.0, Some(0.0)), false));
    }

    #[test]
    fn a_gpu_at_work_or_of_unknown_load_never_rests() {
        for load in [Some(3.0), None] {
            assert!(all(&reads(&mut Rest::default(), 0.0, 60.0, load), true));
        }
        let mut rest = Rest::default();
        reads(&mut rest, 0.0, 9.0, Some(0.0));
        rest.read(9.0, Some(50.0));
        assert!(all(&reads(&mut rest, 9.25, 19.25, Some(0.0)), true));
    }

    #[test]
    fn a_measurement_ends_the_rest_at_once() {
        let mut rest = Rest::default();
        reads(&mut rest, 0.0, 12.0, Some(0.0));
        assert!(rest.rests(12.0));
        rest.over();
        assert!(!rest.rests(12.25));
    }
}
