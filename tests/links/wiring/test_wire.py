from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.errors import UsageError
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring import constraints
from dpweave.links.wiring import wire as wiring
from dpweave.links.wiring.wire import rake, round_types, spread, wire, wire_slices


def types(codes, size):
    return RowTypes.of({"x": codes}, ["x"], shape={"x": size})


def even(left, right):
    return np.ones((left.count, right.count))


def alike(factor):
    """Weights that make pairs of equal codes likelier."""
    return lambda left, right: 1.0 + (factor - 1) * (left.codes[:, :1] == right.codes[:, 0])


@st.composite
def problems(draw):
    """Degrees of a simple graph that exists, with random types and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n1, n2 = draw(st.integers(1, 25)), draw(st.integers(1, 25))
    same = draw(st.booleans())
    n2 = n1 if same else n2
    graph = rng.random((n1, n2)) < draw(st.floats(0, 0.8))
    if same:
        np.fill_diagonal(graph, val=False)
    kinds = draw(st.integers(1, 5))
    left, right = types(rng.integers(0, kinds, n1), kinds), types(rng.integers(0, kinds, n2), kinds)
    return graph.sum(axis=1), graph.sum(axis=0), left, right, draw(st.floats(0.1, 50)), same, rng


@given(problems())
@settings(max_examples=150, deadline=None)
def test_degrees_are_exact_and_no_pair_repeats(problem):
    left_degrees, right_degrees, left, right, factor, same, rng = problem
    pairs = wire(
        alike(factor), left, right, left_degrees=left_degrees, right_degrees=right_degrees, rng=rng, same_table=same
    )
    assert (np.bincount(pairs[:, 0], minlength=left.rows) == left_degrees).all()
    assert len({tuple(p) for p in pairs.tolist()}) == len(pairs)
    if same:
        assert (pairs[:, 0] != pairs[:, 1]).all()
    # Right degrees give way only where nearly every pair is taken: count by how much.
    off = np.abs(np.bincount(pairs[:, 1], minlength=right.rows) - right_degrees).sum() / 2
    free = left.rows * (right.rows - same) - len(pairs)
    assert off <= max(2, 0.25 * len(pairs)) if free < 0.75 * left.rows * right.rows else off <= 0.1 * len(pairs)


def test_sparse_graphs_have_exact_degrees_on_both_sides():
    rng = np.random.default_rng(1)
    left, right = types(rng.integers(0, 4, 3000), 4), types(rng.integers(0, 6, 2000), 6)
    left_degrees = rng.geometric(0.2, 3000)
    right_degrees = rng.multinomial(left_degrees.sum(), np.full(2000, 1 / 2000))
    pairs = wire(alike(3.0), left, right, left_degrees=left_degrees, right_degrees=right_degrees, rng=rng)
    assert (np.bincount(pairs[:, 0], minlength=3000) == left_degrees).all()
    assert (np.bincount(pairs[:, 1], minlength=2000) == right_degrees).all()
    assert len(np.unique(pairs[:, 0] * 2000 + pairs[:, 1])) == len(pairs)


@pytest.mark.parametrize("cells", [wiring.WHOLE_CELLS, 1], ids=["whole", "sliced by types"])
@pytest.mark.parametrize("links", [wiring.SLICE_LINKS, 900], ids=["one slice", "many slices"])
def test_slices_keep_the_weights(monkeypatch, links, cells):
    monkeypatch.setattr(wiring, "SLICE_LINKS", links)
    monkeypatch.setattr(wiring, "WHOLE_CELLS", cells)
    monkeypatch.setattr(wiring, "SLICE_CELLS", 40_000 if cells == 1 else wiring.SLICE_CELLS)
    rng = np.random.default_rng(2)
    left = RowTypes.of({"x": rng.integers(0, 4, 4000), "y": np.arange(4000)}, ["x", "y"], shape={"x": 4, "y": 4000})
    right = RowTypes.of({"x": rng.integers(0, 4, 4000), "y": np.arange(4000)}, ["x", "y"], shape={"x": 4, "y": 4000})
    if cells > 1:
        left, right = types(left.codes[:, 0], 4), types(right.codes[:, 0], 4)
    degrees = np.full(4000, 5)
    pairs = wire(alike(6.0), left, right, left_degrees=degrees, right_degrees=degrees, rng=rng)
    same = left.codes[left.of_row[pairs[:, 0]], 0] == right.codes[right.of_row[pairs[:, 1]], 0]
    assert same.mean() == pytest.approx(6 / 9, abs=0.04)
    assert (np.bincount(pairs[:, 0], minlength=4000) == 5).all()
    assert (np.bincount(pairs[:, 1], minlength=4000) == 5).all()


def test_slices_stream():
    rng = np.random.default_rng(3)
    left = right = types(np.zeros(60_000, dtype=np.int64), 1)
    degrees = np.full(60_000, 5)
    pieces = wire_slices(even, left, right, left_degrees=degrees, right_degrees=degrees, rng=rng)
    sizes = [len(piece) for piece in pieces]
    assert len(sizes) > 1
    assert sum(sizes) == 300_000
    assert max(sizes) < 1.1 * wiring.SLICE_LINKS


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_rounding_keeps_rows_exactly_and_runs_of_rows_nearly(seed, height, width):
    rng = np.random.default_rng(seed)
    totals = rng.integers(0, 20, height)
    expected = rng.random((height, width)) + 1e-3
    expected *= (totals / expected.sum(axis=1))[:, None]
    given_ = round_types(expected, totals, rng)
    assert (given_ >= 0).all()
    assert (given_.sum(axis=1) == totals).all()
    if totals.min() > 0:
        assert np.abs(np.cumsum(given_ - expected, axis=0)).max() <= 4


def test_rounding_is_nearly_unbiased_and_beats_independent_draws():
    rng = np.random.default_rng(4)
    expected = rng.random((8, 10))
    totals = np.full(8, 5)
    expected *= (totals / expected.sum(axis=1))[:, None]
    draws = np.array([round_types(expected, totals, rng) for _ in range(1500)])
    assert np.abs(draws.mean(axis=0) - expected).max() < 0.15
    assert np.abs(draws.mean(axis=0) - expected).mean() < 0.03
    columns = draws.sum(axis=1) - expected.sum(axis=0)
    assert columns.std() < 0.6 * np.sqrt(expected.sum(axis=0)).mean()


def test_sparse_rows_keep_their_own_weights():
    # One link per row over many columns: what other rows left over must not drown the row's own weights.
    weights = np.ones((400, 400)) + 40 * np.eye(400).repeat(1, axis=0)
    expected = weights / weights.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(5)
    hits = np.mean([np.trace(round_types(expected, np.ones(400, dtype=np.int64), rng)) for _ in range(20)])
    assert hits == pytest.approx(np.trace(expected), rel=0.25)


def test_raking_meets_both_sides():
    rng = np.random.default_rng(6)
    rows, columns = rng.integers(1, 50, 7).astype(float), rng.integers(1, 50, 9).astype(float)
    columns *= rows.sum() / columns.sum()
    scaled = rake(rng.random((7, 9)) + 0.1, rows, columns)
    np.testing.assert_allclose(scaled.sum(axis=1), rows)
    assert np.abs(scaled.sum(axis=0) - columns).sum() <= 2e-3 * rows.sum()


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_spread_respects_totals_and_cap(seed, rows, cap):
    rng = np.random.default_rng(seed)
    kinds = types(rng.integers(0, 3, rows), 3)
    totals = np.array([rng.integers(0, c * cap + 1) for c in kinds.multiplicity])
    degrees = spread(totals, kinds, cap=cap, rng=rng)
    assert (np.bincount(kinds.of_row, weights=degrees, minlength=kinds.count) == totals).all()
    assert degrees.max(initial=0) <= cap
    assert degrees.min(initial=0) >= 0


def test_guards_fire():
    rng = np.random.default_rng(7)
    side = types(np.zeros(3, dtype=np.int64), 1)
    one = np.ones(3, dtype=np.int64)
    with pytest.raises(UsageError, match="add up"):
        wire(even, side, side, left_degrees=one, right_degrees=2 * one, rng=rng)
    with pytest.raises(UsageError, match="3 left and 3 right rows"):
        wire(even, side, side, left_degrees=one[:2], right_degrees=one, rng=rng)
    with pytest.raises(UsageError, match="negative"):
        wire(even, side, side, left_degrees=np.array([2, 2, -1]), right_degrees=one, rng=rng)
    with pytest.raises(UsageError, match="there are 2 right rows"):
        wire(even, side, side, left_degrees=np.array([3, 0, 0]), right_degrees=one, rng=rng, same_table=True)
    with pytest.raises(UsageError, match="at most 2"):
        spread(np.array([7]), side, cap=2, rng=rng)


def test_no_links_are_no_pairs():
    nobody = types(np.zeros(4, dtype=np.int64), 1)
    none = np.zeros(4, dtype=np.int64)
    assert wire(even, nobody, nobody, left_degrees=none, right_degrees=none, rng=np.random.default_rng(8)).shape == (
        0,
        2,
    )


@pytest.mark.slow
def test_work_per_link_does_not_grow(monkeypatch):
    """Counted and not timed: pairs of types that are weighed, and links that are looked at, per slice and in all."""
    weighed, looked_at = [], []

    def repeats(key):
        looked_at.append(len(key))
        return constraints.repeated(key)

    def weights(left, right):
        weighed.append(left.count * right.count)
        return alike(3.0)(left, right)

    monkeypatch.setattr(wiring, "repeated", repeats)

    def work(links):
        rng = np.random.default_rng(9)
        rows = links // 10
        left, right = types(rng.integers(0, 50, rows), 50), types(rng.integers(0, 50, rows), 50)
        degrees = np.full(rows, 10)
        weighed.clear(), looked_at.clear()
        made = wire(weights, left, right, left_degrees=degrees, right_degrees=degrees, rng=rng)
        assert len(made) == sum(looked_at) == links
        return sum(weighed) / links, max(looked_at)

    small, large = work(2 * 10**5), work(2 * 10**6)
    assert large[0] <= small[0]
    assert large[1] <= 1.1 * wiring.SLICE_LINKS
