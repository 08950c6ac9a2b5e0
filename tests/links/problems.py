"""Problems of every kind, on synthetic rows that differ from the real ones in number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.link_method import Kind, LinkProblem
from tests.links.random_relations import Relation, random_relation
from tests.windows import ArrayWindow

if TYPE_CHECKING:
    from dpweave.arrays import IntArray

KINDS: tuple[tuple[Kind, bool], ...] = (
    ("many-to-many", False),
    ("many-to-many", True),
    ("one-to-many", False),
    ("one-to-many", True),
    ("one-to-one", False),
    ("one-to-one", True),
)
"""Kinds of relation, each between two tables and of a table with itself."""


def problem_of(
    kind: Kind, *, same_table: bool, seed: int = 0, left_rows: int = 70, right_rows: int = 50
) -> LinkProblem:
    rng = np.random.default_rng(seed)
    right_rows = left_rows if same_table else right_rows
    shape = {"l0": 2, "l1": 3, "l2": 2, "r0": 2, "r1": 2, "r2": 4}
    if same_table:
        shape |= {"r1": 3, "r2": 2}
    left = {c: rng.integers(0, shape[c], left_rows) for c in ("l0", "l1", "l2")}
    right = {c: rng.integers(0, shape[c], right_rows) for c in ("r0", "r1", "r2")}
    if same_table:
        right = {"r" + c[1:]: codes for c, codes in left.items()}
    links = {"many-to-many": min(150, left_rows), "one-to-many": left_rows, "one-to-one": min(left_rows, right_rows)}[
        kind
    ]
    return LinkProblem(left, right, shape, links=links, links_measured=400.0, kind=kind, same_table=same_table)


def window_for(
    problem: LinkProblem, *, seed: int = 1, links: int = 400, planted: float = 30.0, l1: float = 2.0
) -> ArrayWindow:
    """A window on other, real, rows with the same columns and a planted preference."""
    relation = real_relation(problem, seed=seed, links=links, planted=planted)
    return ArrayWindow(relation.view(), relation.shape, l1=l1, l2=l1 / np.sqrt(2), seed=seed)


def real_relation(problem: LinkProblem, *, seed: int, links: int, planted: float) -> Relation:
    sizes = [tuple(problem.shape[c] for c in side) for side in (problem.left, problem.right)]
    return random_relation(
        seed=seed,
        left_rows=90,
        right_rows=80,
        links=links,
        left_shape=sizes[0],
        right_shape=sizes[1],
        planted=planted,
    )


def assert_kind_is_kept(problem: LinkProblem, pairs: IntArray) -> None:
    assert pairs.shape == (problem.links, 2)
    assert (pairs >= 0).all()
    assert (pairs[:, 0] < problem.left_rows).all()
    assert (pairs[:, 1] < problem.right_rows).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs), "a pair occurs twice"
    if problem.bars_self:
        assert (pairs[:, 0] != pairs[:, 1]).all(), "a row is linked to itself"
    if problem.kind == "one-to-many":
        assert sorted(pairs[:, 0]) == list(range(problem.left_rows)), "a child has not exactly one parent"
    if problem.kind == "one-to-one":
        assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs), "a row is matched twice"
