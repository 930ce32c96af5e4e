//! Dots on a line, moved apart where they would hide each other. The same values always give the same picture.

/// Vertical offsets of dots of radius `r` at `xs`, points: 0, then up and down in turn by the dots already there, never
/// beyond `reach`. Dots that find no free place lie on others.
pub(super) fn offsets(xs: &[f32], r: f32, reach: f32) -> Vec<f32> {
    let levels = (reach / (2.0 * r)).floor().max(0.0) as usize;
    let candidates: Vec<f32> = std::iter::once(0.0)
        .chain((1..=levels).flat_map(|n| [-2.0 * r * n as f32, 2.0 * r * n as f32]))
        .collect();
    let mut order: Vec<usize> = (0..xs.len()).collect();
    order.sort_by(|&a, &b| xs[a].total_cmp(&xs[b]).then(a.cmp(&b)));
    // Dots come from left to right, so of every level only the last one can be in the way.
    let mut last = vec![f32::NEG_INFINITY; candidates.len()];
    let mut found = vec![0.0; xs.len()];
    for at in order {
        let free = last.iter().position(|&x| xs[at] - x >= 2.0 * r);
        // The level whose last dot is the farthest hides the least.
        let level = free.unwrap_or_else(|| {
            (0..last.len())
                .min_by(|&a, &b| last[a].total_cmp(&last[b]))
                .unwrap_or(0)
        });
        last[level] = xs[at];
        found[at] = candidates[level];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_move_apart_only_where_they_touch() {
        assert_eq!(offsets(&[10.0, 20.0], 2.0, 8.0), [0.0, 0.0]);
        assert_eq!(offsets(&[10.0, 10.0, 10.0], 2.0, 8.0), [0.0, -4.0, 4.0]);
        // 13.9 touches 10 (nearer than 4 points), 14 no longer does.
        assert_eq!(offsets(&[13.9, 10.0, 14.0], 2.0, 8.0), [-4.0, 0.0, 0.0]);
    }

    #[test]
    fn many_equal_dots_stay_within_reach() {
        let found = offsets(&[5.0; 100], 2.0, 8.0);
        assert_eq!(found.len(), 100);
        assert!(found.iter().all(|y| y.abs() <= 8.0));
        assert!(offsets(&[], 2.0, 8.0).is_empty());
    }
}
