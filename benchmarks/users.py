"""A user table with degrees for benchmarks/links.py, made of the library's own pieces as ``dw.fit`` puts them together.

1. A twentieth of the budget counts degrees alone, in the buckets of a fit, and cuts
   them into groups (``tables.domains``).
2. The rest goes to all pairs of columns (``tables.woven``), weighed by the link
   workloads that each enters: nothing else is looked at here.
3. Degrees are dealt out within the groups (``links.tilt``).
"""

from __future__ import annotations

import math

import numpy as np

from dpweave.links.degrees import bucketed, degrees_of
from dpweave.links.degrees_by_values import deal
from dpweave.plan.relations import ANY_DEGREE
from dpweave.tables.base import Structure, table_model
from dpweave.tables.owned_row_counts import degree_groups, degree_histogram
from dpweave.tables.woven import seen_through_links
from tests.windows import ArrayWindow

COUNTED = 0.05
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
    edges = ANY_DEGREE
    counting = ArrayWindow({DEGREE: bucketed(degrees, edges)}, {DEGREE: len(edges) - 1}, seed=seed)
    (noisy,) = counting.measure([(DEGREE,)], rho=rho * COUNTED)
    noise = math.sqrt(len(codes) / (2 * rho * (1 - COUNTED)))
    groups = degree_groups(noisy, edges, bound=bound, noise=noise, values=max(shape[c] for c in codes))
    fine, counts = degree_histogram(noisy, edges, groups, bound=bound)
    rows = max(int(noisy.counts.sum()), 1)

    seen = seen_through_links(list(codes), DEGREE, others=len(others), k=3)
    table = {**codes, DEGREE: bucketed(degrees, groups)}
    sizes = {c: shape[c] for c in codes} | {DEGREE: len(groups) - 1}
    model = table_model("woven").fit(
        ArrayWindow(table, sizes, seed=seed + 1),
        rho=rho * (1 - COUNTED),
        rows=float(rows),
        structure=Structure(workload=seen, linked=seen),
        progress=lambda _what, _share: None,
    )
    made = dict(model.sample(rows, rng))
    drawn = degrees_of(made[DEGREE], np.array(groups), np.array(fine), counts, rng)
    return made, deal(drawn, made[DEGREE], {c: made[c] for c in codes}, rng), groups
