//! Readings over time: what a chart shows of them loses no peak and hides no gap.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use flux::domain::telemetry::{HOST, Metric, Reading, Ring, Rings, SeriesId, Summary};
use flux::domain::types::Timestamp;
use proptest::prelude::*;

fn ring(capacity: usize, points: &[(i64, f64)]) -> Ring {
    let mut ring = Ring::new(capacity, 250);
    for &(at, value) in points {
        ring.push(Timestamp(at), value);
    }
    ring
}

#[test]
fn an_hour_at_four_a_second_is_kept_and_older_readings_give_way() {
    let series = SeriesId {
        source: HOST.to_owned(),
        metric: Metric::CpuLoad,
    };
    let mut rings = Rings::new(250);
    for tick in 0..20_000_i64 {
        let reading = Reading {
            series: series.clone(),
            at: Timestamp(tick * 250),
            value: tick as f64,
        };
        rings.extend([&reading]);
    }
    assert_eq!(rings.series().collect::<Vec<_>>(), [&series]);
    let summary = rings.get(&series).unwrap();
    let summary = summary
        .summary(Timestamp(i64::MIN), Timestamp(i64::MAX))
        .unwrap();
    // The last 14,400 of 20,000: 5,600 to 19,999.
    assert_eq!(
        (summary.min, summary.max, summary.last),
        (5_600.0, 19_999.0, 19_999.0)
    );
    assert!((summary.mean - 12_799.5).abs() < 1e-6);
    let other = SeriesId {
        metric: Metric::RamUsed,
        ..series
    };
    assert!(rings.get(&other).is_none());
}

#[test]
fn columns_keep_a_peak_and_leave_a_gap() {
    // Every 250 ms, a peak of one reading, then two seconds of nothing.
    let points = [
        (1_000, 5.0),
        (1_250, 90.0),
        (1_500, 6.0),
        (1_750, 7.0),
        (3_750, 8.0),
        (4_000, 4.0),
    ];
    let ring = ring(100, &points);
    let columns = ring.columns(Timestamp(1_000), Timestamp(4_000), 3);
    let seen: Vec<_> = columns
        .iter()
        .map(|c| (c.t.0, c.min, c.max, c.joined))
        .collect();
    assert_eq!(
        seen,
        [
            (1_500, 5.0, 90.0, false),
            (3_500, 8.0, 8.0, false),
            (4_500, 4.0, 4.0, true)
        ]
    );
    // Columns narrower than the readings come are no gap.
    let fine = ring.columns(Timestamp(1_000), Timestamp(1_750), 750);
    let joined: Vec<bool> = fine.iter().map(|c| c.joined).collect();
    assert_eq!(joined, [false, true, true, true]);
    assert_eq!(
        ring.summary(Timestamp(1_250), Timestamp(1_750)),
        Some(Summary {
            min: 6.0,
            mean: (90.0 + 6.0 + 7.0) / 3.0,
            max: 90.0,
            last: 7.0
        })
    );
    assert_eq!(ring.summary(Timestamp(2_000), Timestamp(3_000)), None);
    assert!(
        ring.columns(Timestamp(2_000), Timestamp(3_000), 9)
            .is_empty()
    );
    assert!(
        ring.columns(Timestamp(4_000), Timestamp(1_000), 9)
            .is_empty()
    );
}

proptest! {
    #[test]
    fn columns_are_what_a_plain_walk_finds(
        points in prop::collection::vec((-5_000_i64..5_000, -1e6_f64..1e6), 0..200),
        from in -6_000_i64..6_000,
        span in 0_i64..8_000,
        n in 0_usize..300,
        capacity in 1_usize..250,
    ) {
        let ring = ring(capacity, &points);
        let kept = &points[points.len().saturating_sub(capacity)..];
        let inside: Vec<f64> = kept
            .iter()
            .filter(|(at, _)| (from..=from + span).contains(at))
            .map(|(_, value)| *value)
            .collect();
        let (from, to) = (Timestamp(from), Timestamp(from.saturating_add(span)));
        let columns = ring.columns(from, to, n);
        prop_assert!(columns.len() <= n.max(1) + 1);
        prop_assert!(columns.is_sorted_by(|a, b| a.t < b.t));
        prop_assert!(columns.iter().all(|c| c.min <= c.max));
        let lowest = inside.iter().copied().reduce(f64::min);
        let highest = inside.iter().copied().reduce(f64::max);
        prop_assert_eq!(columns.iter().map(|c| c.min).reduce(f64::min), lowest);
        prop_assert_eq!(columns.iter().map(|c| c.max).reduce(f64::max), highest);
        // A column shows nothing that is not there.
        for column in &columns {
            prop_assert!(inside.contains(&column.min) && inside.contains(&column.max));
        }
        match ring.summary(from, to) {
            None => prop_assert!(inside.is_empty()),
            Some(summary) => {
                let mean = inside.iter().sum::<f64>() / inside.len() as f64;
                prop_assert!((summary.mean - mean).abs() < 1e-6);
                prop_assert_eq!(Some(summary.min), lowest);
                prop_assert_eq!(Some(summary.max), highest);
                prop_assert_eq!(Some(&summary.last), inside.last());
            }
        }
    }

    #[test]
    fn columns_stay_where_they_are_as_the_window_moves(
        points in prop::collection::vec((0_i64..10_000, -1e3_f64..1e3), 1..200),
        start in 0_i64..1_000,
        shift in 0_i64..1_000,
    ) {
        let mut points = points;
        points.sort_by_key(|(at, _)| *at);
        let ring = ring(200, &points);
        let columns = |from| ring.columns(Timestamp(from), Timestamp(from + 8_000), 100);
        let (here, there) = (columns(start), columns(start + shift));
        // 80 ms wide; those at the ends are cut.
        let whole = |t: i64| t - 40 >= start + shift && t + 40 <= start + 8_000;
        for column in here.iter().filter(|c| whole(c.t.0)) {
            let same = there.iter().find(|c| c.t == column.t).unwrap();
            prop_assert_eq!((same.min, same.max), (column.min, column.max));
        }
    }
}
