"""Exchanged links: degrees stay, counts come nearer to the fit, leanings of single rows survive."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.links.degrees import Degrees
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import MAP
from dpweave.links.wiring.exchange_for_counts import exchange_for_counts
from dpweave.measure.cross_workloads import Workload
from dpweave.privacy.window import NoisyMarginal


def sparse(rows: int, rng: np.random.Generator) -> LinkProblem:
    """Children and parents of whom hardly two are alike."""
    left = {"result": rng.integers(0, 4, rows), "x": rng.integers(0, 60, rows), "y": rng.integers(0, 60, rows)}
    right = {"band": rng.integers(0, 3, rows), "z": rng.integers(0, 60, rows), "w": rng.integers(0, 60, rows)}
    shape = {"result": 4, "x": 60, "y": 60, "band": 3, "z": 60, "w": 60}
    return LinkProblem(left, right, shape=shape, links=rows, links_measured=float(rows), kind="one-to-many")


def leaning() -> np.ndarray:
    """Frequencies of (result, band) with even margins and a clear leaning."""
    odds = np.array([[1.6, 1.0, 0.4], [1.2, 1.0, 0.8], [0.8, 1.0, 1.2], [0.4, 1.0, 1.6]])
    return odds / odds.sum()


def counted(pairs: np.ndarray, problem: LinkProblem) -> np.ndarray:
    flat = problem.left["result"][pairs[:, 0]] * 3 + problem.right["band"][pairs[:, 1]]
    return np.bincount(flat, minlength=12).reshape(4, 3)


def strength(counts: np.ndarray) -> float:
    chance = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    return float(np.sqrt((((counts - chance) ** 2) / chance).sum() / counts.sum()))


@pytest.mark.parametrize("same_table", [False, True])
def test_exchanges_keep_degrees_and_reach_the_fit(same_table):
    rng = np.random.default_rng(1)
    problem = sparse(3000, rng)
    if same_table:
        problem = LinkProblem(
            problem.left,
            problem.right,
            shape=problem.shape,
            links=3000,
            links_measured=3000.0,
            kind="one-to-many",
            same_table=True,
        )
    pairs = np.stack([np.arange(3000), np.roll(rng.permutation(3000), 1)], axis=1)
    pairs[pairs[:, 0] == pairs[:, 1], 1] = (pairs[pairs[:, 0] == pairs[:, 1], 1] + 1) % 3000
    made = exchange_for_counts(pairs, problem, {Workload(("result",), ("band",)): (leaning(), 1.0)}, rng=rng)
    assert (made[:, 0] == pairs[:, 0]).all()
    assert (np.bincount(made[:, 1], minlength=3000) == np.bincount(pairs[:, 1], minlength=3000)).all()
    assert strength(counted(made, problem)) == pytest.approx(strength(leaning() * 3000), rel=0.05)
    if same_table:
        assert (made[:, 0] != made[:, 1]).all()


def test_a_leaning_of_single_rows_survives_wiring():
    """Next to no noise where it leans, and weak counts of columns that make every row a type of its own."""
    rng = np.random.default_rng(2)
    rows = 1500
    problem = sparse(rows, rng)
    flat = np.rint(np.full((60, 60), rows / 3600) + rng.normal(0, 5, (60, 60))).astype(np.int64)
    measured = [
        NoisyMarginal(("result", "band"), np.rint(leaning() * rows).astype(np.int64), 1.0),
        NoisyMarginal(("x", "z"), flat, 5.0),
        NoisyMarginal(("y", "w"), flat.T.copy(), 5.0),
    ]
    made = MAP(k=2).wire(problem, measured, rng=rng, degrees=Degrees(right=np.ones(rows, dtype=np.int64)))
    assert np.unique(made[:, 1]).size == rows
    assert strength(counted(made, problem)) == pytest.approx(strength(leaning() * rows), rel=0.03)


def test_nothing_learned_leaves_links_alone():
    rng = np.random.default_rng(3)
    problem = sparse(50, rng)
    pairs = np.stack([np.arange(50), rng.permutation(50)], axis=1)
    assert exchange_for_counts(pairs, problem, {}, rng=rng) is pairs
    assert (
        exchange_for_counts(pairs[:1], problem, {Workload(("result",), ("band",)): (leaning(), 1.0)}, rng=rng).tolist()
        == pairs[:1].tolist()
    )
