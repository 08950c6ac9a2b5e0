"""A user table with degrees for benchmarks/links.py, made of the library's own pieces.

1. A tenth of the budget counts degrees alone, in doubling buckets up to a million (``tables.domains``).
2. Degrees are split in two at their noisy mean: of all single cuts that at the mean has the largest covariance with the
   degree itself, so its noisy counts tell most about sums of degrees.
3. The rest goes to all pairs of columns (``tables.woven``), weighed by the link workloads that each enters.
4. Degrees are dealt out within the two groups (``links.tilt``).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dpweave.links.degrees import bucketed, buckets, decode, whole
from dpweave.links.projection import project_capped_simplex
from dpweave.links.tilt import deal
from dpweave.links.workload import cross_workloads
from dpweave.tables.base import Structure, table_model
from dpweave.tables.domains import degree_groups, degree_histogram
from tests.windows import ArrayWindow

COUNTED = 0.1
"""Share of the table's budget for the distribution of degrees."""
DEGREE = "degree"


def synthetic_users(
    codes: dict[str, np.ndarray],
    degrees: np.ndarray,
    shape: dict[str, int],
    others: list[str],
    *,
    bound: int,
    rho: float,
    seed: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, tuple[int, ...]]:
    """Columns of synthetic users with the group of their degree, their degrees, and the edges of the groups.

    ``others`` are the columns of the other side, which say how many link workloads a set of user columns enters.
    """
    rng = np.random.default_rng(seed)
    edges = buckets(1 << 20, growth=2.0)
    counting = ArrayWindow({DEGREE: bucketed(degrees, edges)}, {DEGREE: len(edges) - 1}, seed=seed)
    (noisy,) = counting.measure([(DEGREE,)], rho=rho * COUNTED)
    fine, counts = degree_histogram(noisy, edges, degree_groups(noisy, edges, bound=bound))
    rows = max(int(noisy.counts.sum()), 1)
    pool = whole(rows * project_capped_simplex(counts / rows, total=1.0), rows, rng)
    drawn = np.sort(decode(np.repeat(np.arange(len(pool)), pool), fine, rng))
    cut = (0, round(float(drawn.mean())), int(fine[-1]))

    table = {**codes, DEGREE: bucketed(degrees, cut)}
    sizes = {c: shape[c] for c in codes} | {DEGREE: 2}
    entered = Counter(w.left for w in cross_workloads(list(codes), others, k=3))
    structure = Structure(workload={(*columns, DEGREE): float(n) for columns, n in entered.items()})
    model = table_model("woven").fit(
        ArrayWindow(table, sizes, seed=seed + 1),
        rho=rho * (1 - COUNTED),
        rows=float(rows),
        structure=structure,
        progress=lambda _what, _share: None,
    )
    made = dict(model.sample(rows, rng))
    wanted = np.zeros(rows, dtype=np.int64)
    for group in (0, 1):
        at = np.flatnonzero(made[DEGREE] == group)
        inside = drawn[bucketed(drawn, cut) == group]
        quantile = (np.arange(len(at)) + 0.5) / max(len(at), 1)
        wanted[at] = inside[(quantile * len(inside)).astype(np.int64)] if len(inside) else cut[group]
    return made, deal(wanted, made[DEGREE], {c: made[c] for c in codes}, rng), cut
