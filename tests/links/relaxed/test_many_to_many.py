from __future__ import annotations

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.links.relaxed.dense_block import Block, place_links
from dpweave.links.relaxed.many_to_many import CappedSimplex, round_many_to_many
from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.measure.cross_workloads import Workload
from tests.links.problems import assert_kind_is_kept, problem_of

WORKLOADS = (Workload(("l0",), ("r0",)), Workload(("l1",), ("r0",)))


@pytest.mark.parametrize("same_table", [False, True])
def test_pairs_of_types_count_pairs_of_rows(same_table: bool) -> None:
    problem = problem_of("many-to-many", same_table=same_table)
    block = Block.of(problem, WORKLOADS, links=10)
    brute = np.zeros((block.left.count, block.right.count))
    for i in range(problem.left_rows):
        for j in range(problem.right_rows):
            brute[block.left.of_row[i], block.right.of_row[j]] += not (problem.bars_self and i == j)
    np.testing.assert_array_equal(block.multiplicity, brute)


@pytest.mark.parametrize("same_table", [False, True])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_placing_is_exact_and_never_repeats(same_table: bool, share: float) -> None:
    problem = problem_of("many-to-many", same_table=same_table, left_rows=20, right_rows=15)
    rng = np.random.default_rng(0)
    block = Block.of(problem, WORKLOADS, links=0)
    counts = np.floor(share * block.multiplicity).astype(np.int64)
    pairs = place_links(counts, block, rng)
    assert len(np.unique(pairs, axis=0)) == len(pairs) == counts.sum()
    got = np.zeros_like(counts)
    np.add.at(got, (block.left.of_row[pairs[:, 0]], block.right.of_row[pairs[:, 1]]), 1)
    np.testing.assert_array_equal(got, counts)
    if same_table:
        assert (pairs[:, 0] != pairs[:, 1]).all()


@pytest.mark.parametrize("same_table", [False, True])
def test_rounding_is_unbiased_for_every_pair(same_table: bool) -> None:
    problem = problem_of("many-to-many", same_table=same_table, left_rows=6, right_rows=5)
    block = Block.of(problem, WORKLOADS, links=11)
    rng = np.random.default_rng(1)
    b = project_capped_simplex(rng.random(block.multiplicity.shape), total=11.0, weights=block.multiplicity)
    seen = np.zeros((problem.left_rows, problem.right_rows))
    draws = 4000
    for _ in range(draws):
        pairs = round_many_to_many(b, block, rng)
        assert len(pairs) == 11
        seen[pairs[:, 0], pairs[:, 1]] += 1
    expected = b[block.left.of_row][:, block.right.of_row]
    if same_table:
        np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(seen / draws, expected, atol=5 * 0.5 / np.sqrt(draws))


def test_a_block_of_some_rows_bars_the_right_pairs() -> None:
    problem = problem_of("many-to-many", same_table=True, left_rows=12)
    left_rows, right_rows = np.array([1, 4, 7, 9]), np.array([0, 4, 9, 11])
    block = Block.of(problem, WORKLOADS, links=5, left_rows=left_rows, right_rows=right_rows)
    assert block.multiplicity.sum() == 16 - 2
    pairs = place_links(block.multiplicity.astype(np.int64), block, np.random.default_rng(0))
    assert (left_rows[pairs[:, 0]] != right_rows[pairs[:, 1]]).all()


def test_too_many_links_are_refused() -> None:
    with pytest.raises(UsageError, match="do not fit"):
        CappedSimplex(np.ones((2, 3)), 7)


def test_kind_is_kept_by_one_rounding() -> None:
    problem = problem_of("many-to-many", same_table=True)
    block = Block.of(problem, WORKLOADS, links=problem.links)
    centre = CappedSimplex(block.multiplicity, problem.links).centre()
    assert_kind_is_kept(problem, round_many_to_many(centre, block, np.random.default_rng(0)))
