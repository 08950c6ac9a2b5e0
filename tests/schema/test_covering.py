"""Every clique lies in one block, and blocks keep their limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpweave.schema.covering import cover, summed


@pytest.mark.parametrize("limit", [1, 30, 200, 10_000])
def test_blocks_hold_every_clique_once_and_stay_small(limit):
    rng = np.random.default_rng(limit)
    sizes = {f"c{i}": int(rng.integers(2, 12)) for i in range(9)}
    cliques = [tuple(rng.choice(list(sizes), size=rng.integers(0, 4), replace=False).tolist()) for _ in range(60)]
    blocks = cover(cliques, sizes, limit=limit)
    assert sorted(c for _, inside in blocks for c in inside) == sorted(set(cliques))
    for block, inside in blocks:
        assert all(set(c) <= set(block) for c in inside)
        cells = math.prod(sizes[name] for name in block)
        assert cells <= limit or any(set(c) == set(block) for c in inside)
    if limit == 10_000:
        assert len(blocks) < len(set(cliques)) / 3


def test_no_cliques_need_no_blocks():
    assert cover([], {}, limit=10) == []


def test_sums_follow_the_order_of_the_clique():
    counts = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(summed(counts, ("a", "b", "c"), ("c", "a")), counts.sum(axis=1).T)
    assert summed(counts, ("a", "b", "c"), ()) == counts.sum()
