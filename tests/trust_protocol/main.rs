//! The protocol of style B2 under thousands of orders of events: the engine's own sources, built with shuttle's threads,
//! flags and channels in place of the system's. A schedule that fails is printed and can be replayed.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(dead_code, reason = "the sources hold more than the protocol")]

mod engine;
mod jobs;
mod ports;
mod process;
mod ui;

/// Orders tried in each test, of each kind.
const ORDERS: usize = 1500;
/// Changes of thread in orders that have few of them.
const CHANGES: usize = 3;

/// At random, and with few changes of thread, which find rarer bugs (Burckhardt et al., ASPLOS 2010).
fn in_any_order(what: impl Fn() + Send + Sync + Clone + 'static) {
    in_fair_order(what.clone());
    shuttle::check_pct(what, ORDERS, CHANGES);
}

/// At random alone, where a thread without an end of its own would keep the others from ever going on.
fn in_fair_order(what: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(what, ORDERS);
}
