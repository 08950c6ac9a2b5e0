"""A user table with degrees for benchmarks/links.py: columns woven one after the other, as relations to their values."""

from __future__ import annotations

import numpy as np

from dpweave.links.base import LinkProblem
from dpweave.links.degrees import Degrees, whole
from dpweave.links.map import MAP
from dpweave.links.projection import project_capped_simplex
from tests.windows import ArrayWindow

SHARES = {"gender": 0.03, "age": 0.12, "occupation": 0.35, "degree": 0.5}
FIRST = 0.4
"""Share of a column's budget for its own distribution; the rest is for how it depends on the columns before."""


def woven_users(codes: dict[str, np.ndarray], shape: dict[str, int], *, rho: float, seed: int) -> dict[str, np.ndarray]:
    """Synthesise the columns of ``codes``, each shrunk towards independence of those before it by the link learner."""
    rng = np.random.default_rng(seed)
    rows = len(next(iter(codes.values())))
    window = ArrayWindow(codes, shape, seed=seed)
    made: dict[str, np.ndarray] = {}
    for column, share in SHARES.items():
        spend = rho * share
        (own,) = window.measure([(column,)], rho=spend * FIRST if made else spend)
        # The nearest distribution: clipping alone would leave the noise of empty buckets in.
        counts = whole(rows * project_capped_simplex(own.counts / rows, total=1.0), rows, rng)
        if not made:
            made[column] = rng.permutation(np.repeat(np.arange(shape[column]), counts))
            continue
        problem = LinkProblem(
            dict(made),
            {column: np.arange(shape[column])},
            shape={c: shape[c] for c in (*made, column)},
            links=rows,
            links_measured=rows,
            kind="one-to-many",
        )
        found = MAP(2).learn(
            window, problem, rho=spend * (1 - FIRST), rng=rng, progress=lambda *_: None, degrees=Degrees(right=counts)
        )
        made[column] = np.empty(rows, dtype=np.int64)
        made[column][found.pairs[:, 0]] = found.pairs[:, 1]
    return made
