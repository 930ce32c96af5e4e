//! The planner's evidence: bandwidths, placements, fits.

use flux::domain::placement::bandwidth::{Bandwidth, BandwidthProfile, Path, Streaming};
use flux::domain::types::*;
use flux::ports::*;
use flux::store::SqliteStore;
use serde_json::json;

use crate::sample::*;

fn other() -> Fingerprint {
    Fingerprint {
        hash: "ef".repeat(32),
        fields: vec![("cpu".to_owned(), "another".to_owned())],
    }
}

fn profile(at: i64) -> BandwidthProfile {
    BandwidthProfile {
        measured_at: Timestamp(at),
        paths: vec![Bandwidth {
            path: Path::DeviceCopy,
            device: Some("it's a \"GPU\" – №1".to_owned()),
            samples: vec![0.1 + 0.2, 169.4e9, f64::from(u32::MAX) * 1.000_000_1],
            bytes: 1 << 31,
            threads: 1,
        }],
        streaming: Some(Streaming::of(1 << 28, vec![[2.0, 1.0, 2.12]])),
        notices: vec!["the page cache may have helped".to_owned()],
    }
}

/// Stores one of everything and reads it back; the session 1 exists.
pub fn round_trip(store: &SqliteStore) {
    let of = new_session().fingerprint;
    let first = store.append_bandwidth(&of, &profile(20)).unwrap();
    // The newest by the order of storing: a clock may be set back.
    assert!(store.append_bandwidth(&of, &profile(10)).unwrap() > first);
    store.append_bandwidth(&other(), &profile(30)).unwrap();
    assert_eq!(store.bandwidth(&of.hash).unwrap(), Some(profile(10)));
    assert_eq!(store.bandwidth(&other().hash).unwrap(), Some(profile(30)));
    assert_eq!(store.fingerprint(&other().hash).unwrap(), Some(other()));

    let placement = |session, model: &str, tier: u32| NewPlacement {
        session,
        at: Timestamp(7),
        fingerprint: of.clone(),
        model_digest: model.to_owned(),
        document: json!({"tier": tier, "predicted": {"tg": 12.25}, "measured": null}),
    };
    let planned = store.append_placement(&placement(None, "a", 1)).unwrap();
    let measured = store.append_placement(&placement(Some(1), "b", 2)).unwrap();
    let stored = |id, new: NewPlacement| StoredPlacement {
        id,
        session: new.session,
        at: new.at,
        model_digest: new.model_digest,
        document: new.document,
    };
    let (a, b) = (
        stored(planned, placement(None, "a", 1)),
        stored(measured, placement(Some(1), "b", 2)),
    );
    assert_eq!(store.placements(&of.hash, None).unwrap(), [b, a.clone()]);
    assert_eq!(store.placements(&of.hash, Some("a")).unwrap(), [a]);
    assert_eq!(store.placements(&other().hash, None).unwrap(), []);
    assert!(
        store
            .append_placement(&placement(Some(99), "a", 1))
            .is_err()
    );

    let old = store
        .append_fit(&of, Timestamp(1), &json!({"s": 1}))
        .unwrap();
    let new = store
        .append_fit(&of, Timestamp(2), &json!({"s": 2}))
        .unwrap();
    let fits = store.fits(&of.hash).unwrap();
    let seen: Vec<_> = fits
        .iter()
        .map(|f| (f.id, f.at, f.document["s"].as_i64()))
        .collect();
    assert_eq!(
        seen,
        [(new, Timestamp(2), Some(2)), (old, Timestamp(1), Some(1))]
    );
    assert_eq!(store.fits(&other().hash).unwrap(), []);
}

#[test]
fn what_the_planner_needs_reads_back_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = measuring(dir.path());
    store.begin_session(&new_session()).unwrap();
    round_trip(&store);
    let mut unstorable = profile(40);
    unstorable.paths[0].samples.push(f64::NAN);
    let of = new_session().fingerprint;
    assert!(store.append_bandwidth(&of, &unstorable).is_err());
    assert_eq!(store.bandwidth(&of.hash).unwrap(), Some(profile(10)));
}
