from __future__ import annotations

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.links.link_method import LinkProblem, random_links
from dpweave.links.relaxed.random_slices import draw_links, draw_rows, draw_slice
from tests.links.problems import KINDS, Kind, problem_of


@pytest.mark.parametrize(("kind", "same_table"), KINDS)
def test_slices_have_their_size_and_their_links(kind: Kind, same_table: bool) -> None:
    problem = problem_of(kind, same_table=same_table)
    rng = np.random.default_rng(0)
    links = random_links(problem, rng)
    for _ in range(20):
        part = draw_slice(problem, links, left_rows=20, right_rows=15, guaranteed=0.5, rng=rng)
        inside = links[part.inside]
        assert part.links == len(inside) > 0
        assert np.isin(inside[:, 0], part.left).all()
        assert np.isin(inside[:, 1], part.right).all()
        if kind == "many-to-many":
            assert (len(part.left), len(part.right)) == (20, 15)
            outside = links[~part.inside]
            assert not (np.isin(outside[:, 0], part.left) & np.isin(outside[:, 1], part.right)).any()
        if kind == "one-to-many":
            assert (len(part.left), len(part.right)) == (20, problem.right_rows)
            assert part.links == 20
        if kind == "one-to-one":
            assert not np.isin(links[~part.inside, 0], part.left).any()
            assert not np.isin(links[~part.inside, 1], part.right).any()


@pytest.mark.parametrize(("kind", "same_table"), KINDS)
def test_random_links_of_a_slice(kind: Kind, same_table: bool) -> None:
    problem = problem_of(kind, same_table=same_table)
    rng = np.random.default_rng(0)
    links = random_links(problem, rng)
    met = np.zeros((problem.left_rows, problem.right_rows), dtype=bool)
    for _ in range(300):
        part = draw_slice(problem, links, left_rows=20, right_rows=15, guaranteed=0.5, rng=rng)
        new = draw_links(problem, part, rng)
        assert new.shape == (part.links, 2)
        left, right = part.left[new[:, 0]], part.right[new[:, 1]]
        assert len(np.unique(new, axis=0)) == len(new)
        if kind != "many-to-many":
            assert len(np.unique(left)) == len(left)
        if kind == "one-to-one":
            assert len(np.unique(right)) == len(right)
        if same_table:
            assert (left != right).all()
        met[left, right] = True
    if same_table:
        np.fill_diagonal(met, True)
    assert met.mean() > 0.25  # links of these slices, were they kept, are at most 0.06 of all pairs


def test_the_guaranteed_share_has_links() -> None:
    """In a sparse relation a blind slice holds few links; a guaranteed one at least as many rows as promised."""
    rng = np.random.default_rng(1)
    codes = {"a": np.zeros(2000, dtype=np.int64)}, {"b": np.zeros(2000, dtype=np.int64)}
    problem = LinkProblem(*codes, {"a": 1, "b": 1}, links=400, links_measured=400.0)
    links = random_links(problem, rng)
    blind = draw_slice(problem, links, left_rows=100, right_rows=100, guaranteed=0.0, rng=rng)
    sure = draw_slice(problem, links, left_rows=100, right_rows=100, guaranteed=0.2, rng=rng)
    assert blind.links <= 8
    assert np.isin(sure.left, links[:, 0]).sum() >= 20
    assert np.isin(sure.right, links[:, 1]).sum() >= 20
    assert sure.links >= 15


def test_rows_are_drawn_uniformly() -> None:
    rng = np.random.default_rng(2)
    seen = np.zeros(10)
    for _ in range(5000):
        seen[draw_rows(10, size=4, sure=np.array([3]), rng=rng)] += 1
    assert seen[3] == 5000
    np.testing.assert_allclose(np.delete(seen, 3) / 5000, 3 / 9, atol=0.035)


def test_a_share_lies_between_0_and_1() -> None:
    problem = problem_of("many-to-many", same_table=False)
    with pytest.raises(UsageError, match="guaranteed"):
        draw_slice(
            problem,
            random_links(problem, np.random.default_rng(0)),
            left_rows=5,
            right_rows=5,
            guaranteed=1.5,
            rng=np.random.default_rng(0),
        )
