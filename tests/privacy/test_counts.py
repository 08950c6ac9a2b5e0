"""Engines count exactly what the oracle counts: truncation, nulls, dangling keys, degrees, both ways of counting."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.engines import as_cells, both_ways, engine_counts, engine_order, open_frames, open_sqlite
from tests.oracle import bound, count, holds_bounds, random_view, random_world


def _compare(source, world, rng, salt: str, *, views: int) -> int:
    counts, bounding = engine_counts(source, world, salt=salt)
    truth = bound(world.rows, world.promise, engine_order(bounding, world.rows))
    cut = sum(len(world.rows[t]) - len(truth.rows[t]) for t in world.rows)
    for _ in range(views):
        view, columns = random_view(rng, world)
        expected = Counter({c: n for c, n in count(truth, world.promise, view, columns).items() if n})
        memory, engine = both_ways(counts, view, columns)
        assert as_cells(memory) + Counter() == expected, (view, columns)
        assert as_cells(engine) + Counter() == expected, (view, columns)
    return cut


@pytest.mark.parametrize("chunk", range(4))
def test_duckdb_agrees_with_the_oracle(chunk):
    cut = 0
    for seed in range(10 * chunk, 10 * chunk + 10):
        rng = random.Random(seed)
        world = random_world(rng, "entity", most=9)
        with open_frames(world.rows, world.promise) as source:
            cut += _compare(source, world, rng, f"salt{seed}", views=3)
    assert cut > 3  # truncation was at work


def test_sqlite_agrees_with_the_oracle(tmp_path):
    cut = 0
    for seed in range(100, 115):
        rng = random.Random(seed)
        world = random_world(rng, "entity", most=9)
        with open_sqlite(world.rows, world.promise, tmp_path / f"{seed}.sqlite") as source:
            cut += _compare(source, world, rng, f"salt{seed}", views=3)
    assert cut > 3


def test_record_without_and_with_truncation(tmp_path):
    wild = 0
    for seed in range(200, 215):
        rng = random.Random(seed)
        truncates = seed % 2 == 0
        world = random_world(rng, "record", on_excess="truncate" if truncates else "refuse", tame=not truncates)
        wild += not holds_bounds(world.rows, world.promise)
        opened = (
            open_frames(world.rows, world.promise)
            if seed % 3
            else open_sqlite(world.rows, world.promise, tmp_path / f"{seed}.sqlite")
        )
        with opened as source:
            _compare(source, world, rng, f"salt{seed}", views=3)
    assert wild >= 4


def test_order_depends_on_the_salt_and_on_nothing_else():
    world = random_world(random.Random(3), "entity", most=30)
    with open_frames(world.rows, world.promise) as source:
        first, again, other = (
            engine_order(engine_counts(source, world, salt=s)[1], world.rows) for s in ("a", "a", "b")
        )
    assert first == again != other
    table = world.promise.protected[0]
    gone = min(world.rows[table])
    fewer = {t: {i: r for i, r in rows.items() if (t, i) != (table, gone)} for t, rows in world.rows.items()}
    with open_frames(fewer, world.promise) as source:
        left = engine_order(engine_counts(source, world, salt="a")[1], fewer)
    by_first, by_left = sorted(left, key=lambda r: (r[0], first[r])), sorted(left, key=lambda r: (r[0], left[r]))
    assert by_first == by_left
