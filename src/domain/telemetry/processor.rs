//! Whose time the processor's time was: of Flux and its processes, or of others.

/// Less of the processor's time than this says nothing, clock ticks: usually a second of one core. The kernel counts whole
/// ticks, and some of them late.
const LEAST_TICKS: u64 = 100;

/// What the processor's cores have done since the system began, in the kernel's clock ticks, all cores added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorTime {
    /// All of it.
    pub total: u64,
    /// At work for anybody, other virtual machines of the host among them.
    pub busy: u64,
    /// At work for Flux, or for those of its processes that have ended.
    pub own: u64,
}

impl ProcessorTime {
    /// What kept the processor busy beside Flux since `before`, percent of all cores; none of its processes may be running
    /// at either moment. `None` where too little time has passed to say.
    pub fn others_since(self, before: Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total)?;
        let busy = self.busy.checked_sub(before.busy)?;
        let own = self.own.checked_sub(before.own)?;
        (total >= LEAST_TICKS).then(|| 100.0 * busy.saturating_sub(own) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: ProcessorTime = ProcessorTime {
        total: 10_000,
        busy: 4_000,
        own: 1_000,
    };

    fn after(total: u64, busy: u64, own: u64) -> Option<f64> {
        let now = ProcessorTime {
            total: BEFORE.total + total,
            busy: BEFORE.busy + busy,
            own: BEFORE.own + own,
        };
        now.others_since(BEFORE)
    }

    #[test]
    fn what_is_busy_and_not_our_own_is_of_others() {
        // Four cores for 5 s at 100 ticks a second, three of them ours, one of somebody else.
        assert_eq!(after(2_000, 2_000, 1_500), Some(25.0));
        assert_eq!(after(2_000, 1_500, 1_500), Some(0.0));
        // Counted late by a tick: not less than nothing.
        assert_eq!(after(2_000, 1_499, 1_500), Some(0.0));
        assert_eq!(after(99, 99, 0), None, "too short to say");
        assert_eq!(
            BEFORE.others_since(ProcessorTime {
                own: 2_000,
                ..BEFORE
            }),
            None
        );
    }
}
