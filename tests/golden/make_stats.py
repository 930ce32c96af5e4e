#!/usr/bin/env python3
"""Writes stats.json, the golden values of tests/stats_golden.rs.

    python3 tests/golden/make_stats.py     (needs SciPy and NumPy)

Welch comes from scipy.stats.ttest_ind. Fieller's interval is found independently of the closed form: the two ratios at
which the t statistic of b - ratio*a equals its quantile, by bracketing root search. The trend-free rule comes from an
explicit design matrix solved by numpy.linalg.lstsq, its degrees of freedom from the hat matrix.
"""
import itertools
import json
import pathlib

import numpy as np
from scipy import optimize, stats

HERE = pathlib.Path(__file__).parent
H200 = HERE.parent / "fixtures" / "h200"
LEVEL = 0.975


def label(record):
    p, g, d = record["n_prompt"], record["n_gen"], record["n_depth"]
    name = f"pp{p}" if g == 0 else f"tg{g}" if p == 0 else f"pp{p}+tg{g}"
    return name + (f" @ d{d}" if d else "")


def rates(record):
    tokens = record["n_prompt"] + record["n_gen"]
    return np.array([tokens * 1e9 / ns for ns in record["samples_ns"]])


def read(name):
    return [json.loads(line) for line in (H200 / name).read_text().splitlines()]


def ratio_roots(a, b, va, vb, cov, df):
    """Percent changes r with |b - r*a| = t * sd(b - r*a), one on each side of b/a."""
    t = stats.t.ppf(LEVEL, df)

    def excess(r):
        return (b - r * a) ** 2 - t * t * (vb - 2 * r * cov + r * r * va)

    centre = b / a
    step = 1e-6
    found = []
    for sign in (-1, 1):
        width = step
        while excess(centre + sign * width) < 0:
            width *= 2
            if width > 1e6:
                return None
        found.append(optimize.brentq(excess, centre, centre + sign * width, xtol=1e-16, rtol=1e-15))
    return [100 * (r - 1) for r in found]


def welch(a, b):
    if len(a) < 2 or len(b) < 2:
        return None
    test = stats.ttest_ind(b, a, equal_var=False)
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    m = len(a) + len(b) - 2
    pooled = np.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / m)
    return {
        "t": test.statistic,
        "df": test.df,
        "p": test.pvalue,
        "ci95_pct": ratio_roots(a.mean(), b.mean(), va, vb, 0.0, test.df),
        "hedges_g": (b.mean() - a.mean()) / pooled * (1 - 3 / (4 * m - 1)),
    }


def trend_free(a, b):
    """a, b: lists of (position, value)."""
    rows = [(1.0, 0.0, x) for x, _ in a] + [(0.0, 1.0, x) for x, _ in b]
    design = np.array(rows)
    design[:, 2] -= design[:, 2].mean()
    y = np.array([v for _, v in a] + [v for _, v in b])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    left = (y - design @ beta) ** 2
    inverse = np.linalg.inv(design.T @ design)
    lost = np.diag(design @ inverse @ design.T)
    n, free, error = [], [], []
    for part in (slice(0, len(a)), slice(len(a), None)):
        n.append(len(left[part]))
        free.append(n[-1] - lost_within(design, part))
        error.append(left[part].sum() / free[-1] / n[-1])
    assert abs(sum(free) - (len(y) - lost.sum())) < 1e-9
    df = sum(error) ** 2 / sum(e * e / f for e, f in zip(error, free))
    pooled = left.sum() / sum(free)
    slope = pooled * inverse[2, 2]
    xa, xb = (np.mean(design[: len(a), 2]), np.mean(design[len(a) :, 2]))
    va, vb, cov = error[0] + slope * xa**2, error[1] + slope * xb**2, slope * xa * xb
    t = (beta[1] - beta[0]) / np.sqrt(va + vb - 2 * cov)
    return {
        "change_pct": 100 * (beta[1] / beta[0] - 1),
        "t": t,
        "df": df,
        "p": 2 * stats.t.sf(abs(t), df),
        "ci95_pct": ratio_roots(beta[0], beta[1], va, vb, cov, df),
    }


def lost_within(design, part):
    """Degrees of freedom an arm gives up: its own mean, and its share of the slope by leverage about its mean."""
    x = design[:, 2].copy()
    for arm in (0, 1):
        of = design[:, arm] == 1
        x[of] -= x[of].mean()
    return 1 + (x[part] ** 2).sum() / (x**2).sum()


def dense():
    """Every ordered pair of runs that share a test, on repetition rates; and the four stock runs against each, on run means."""
    by_run = {}
    for record in read("qwen3-4b-dense.jsonl"):
        by_run.setdefault(record["run"], {})[label(record)] = rates(record)
    pairs = []
    for a, b in itertools.permutations(by_run, 2):
        for test in by_run[a]:
            if test in by_run[b]:
                found = welch(by_run[a][test], by_run[b][test])
                pairs.append({"a": a, "b": b, "test": test, "welch": found})
    return pairs


def groups():
    """Stock runs 1 to 4 against sets of other runs, run means."""
    means = {}
    for record in read("qwen3-4b-dense.jsonl"):
        means.setdefault(record["run"], {})[label(record)] = rates(record).mean()
    stock = ["stock1", "stock2", "stock3", "stock4"]
    out = []
    for b in (["mmq", "cublas", "fa1"], ["ub128", "ub256", "ub1024", "ub2048"], ["fa0", "kvq8", "nographs"], stock[1:]):
        for a, b in ((stock, b), (b, stock)):
            for test in ("pp512", "tg128"):
                found = welch(np.array([means[r][test] for r in a]), np.array([means[r][test] for r in b]))
                out.append({"a": a, "b": b, "test": test, "welch": found})
    return out


def interleaved():
    out = []
    for file in sorted(H200.glob("ab-*.A.jsonl")):
        name = file.name[3:-8]
        for test in ("tg128", "pp512"):
            arms = []
            for side in "AB":
                records = [r for r in read(f"ab-{name}.{side}.jsonl") if label(r) == test]
                arms.append([(r["position"], rates(r).mean()) for r in records])
            a, b = arms
            plain = welch(np.array([v for _, v in a]), np.array([v for _, v in b]))
            # The second form breaks the balance, so that the slope's error counts.
            cut = trend_free(a, b[:-1])
            out.append({"name": name, "test": test, "welch": plain, "trend_free": trend_free(a, b), "trend_free_cut": cut})
    return out


def student():
    rows = []
    for df in [1.0, 1.3, 1.97, 2.0, 2.5, 3.04, 4.449, 5.2666, 7.7, 10.0, 13.5, 21.0, 33.3, 64.1, 100.0, 150.7, 200.0]:
        for t in [0.01, 0.5, 1.0, 2.0, 3.3, 6.0, 15.0, 80.0]:
            rows.append({"df": df, "t": t, "p": 2 * stats.t.sf(t, df)})
        for p in [0.6, 0.9, 0.95, 0.975, 0.995, 0.9995]:
            rows.append({"df": df, "prob": p, "quantile": stats.t.ppf(p, df)})
    return rows


def lines(values):
    return "[\n" + ",\n".join(json.dumps(v) for v in values) + "\n]"


if __name__ == "__main__":
    parts = {"student": student(), "pairs": dense(), "groups": groups(), "interleaved": interleaved()}
    text = "{\n" + ",\n".join(f'"{k}": {lines(v)}' for k, v in parts.items()) + "\n}\n"
    (HERE / "stats.json").write_text(text)
