from __future__ import annotations

import numpy as np
import pytest

from dpweave.links.relaxed.dense_block import Block
from dpweave.links.relaxed.one_to_many import RowSimplices, round_one_to_many
from dpweave.links.relaxed.one_to_one import MatchingPolytope, round_one_to_one
from dpweave.measure.cross_workloads import Workload
from tests.links.problems import assert_kind_is_kept, problem_of

WORKLOADS = (Workload(("l0",), ("r0",)), Workload(("l1",), ("r0", "r1")))


@pytest.mark.parametrize("same_table", [False, True])
def test_every_child_gets_one_parent_with_its_probability(same_table: bool) -> None:
    problem = problem_of("one-to-many", same_table=same_table, left_rows=7, right_rows=5)
    block = Block.of(problem, WORKLOADS, links=7)
    rng = np.random.default_rng(0)
    b = RowSimplices.of(block).project(rng.random(block.multiplicity.shape))
    seen = np.zeros((7, problem.right_rows))
    draws = 4000
    childless = 0
    for _ in range(draws):
        pairs = round_one_to_many(b, block, rng)
        assert_kind_is_kept(problem, pairs)
        seen[pairs[:, 0], pairs[:, 1]] += 1
        childless += len(set(pairs[:, 1])) < problem.right_rows
    expected = b[block.left.of_row][:, block.right.of_row]
    if same_table:
        np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(seen / draws, expected, atol=5 * 0.5 / np.sqrt(draws))
    assert childless > 0


def test_children_of_the_same_table_share_a_type_only_with_equal_missing_pairs() -> None:
    problem = problem_of("one-to-many", same_table=True, left_rows=40)
    block = Block.of(problem, WORKLOADS, links=40)
    own = block.right.of_row[np.arange(40)]
    for kind in range(block.left.count):
        assert len(set(own[block.left.of_row == kind])) == 1


@pytest.mark.parametrize("same_table", [False, True])
@pytest.mark.parametrize("links", [1, 20, 50])
def test_one_to_one_is_a_matching(same_table: bool, links: int) -> None:
    from dataclasses import replace

    problem = replace(problem_of("one-to-one", same_table=same_table, left_rows=60, right_rows=50), links=links)
    block = Block.of(problem, WORKLOADS, links=links)
    rng = np.random.default_rng(links)
    matching = MatchingPolytope.of(block)
    b = matching.project(rng.random(block.multiplicity.shape) * 0.1)
    mass = b * block.multiplicity
    assert mass.sum() == pytest.approx(links, abs=1e-9)
    assert (mass.sum(axis=1) <= block.left.multiplicity * 1.02).all()
    assert (mass.sum(axis=0) <= block.right.multiplicity * 1.02).all()
    for _ in range(50):
        assert_kind_is_kept(problem, round_one_to_one(b, block, rng))


def test_one_to_one_follows_its_types() -> None:
    """Where only equal types may be linked, all pairs are of equal types."""
    problem = problem_of("one-to-one", same_table=True, left_rows=60)
    block = Block.of(problem, (Workload(("l0",), ("r0",)),), links=60)
    rows, others = block.left.codes[:, 0], block.right.codes[:, 0]
    wanted = np.where(rows[:, None] == others[None, :], 1.0 / block.left.multiplicity[:, None], 0.0)
    b = MatchingPolytope.of(block).project(wanted)
    pairs = round_one_to_one(b, block, np.random.default_rng(0))
    same = problem.left["l0"][pairs[:, 0]] == problem.right["r0"][pairs[:, 1]]
    assert same.mean() > 0.9
