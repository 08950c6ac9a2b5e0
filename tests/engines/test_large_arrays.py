"""Arrays with a place on disk give what arrays in memory give, and let go of what they showed."""

from __future__ import annotations

import resource
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpweave.engines import large_arrays
from dpweave.engines.large_arrays import all_of, in_order, let_go, picked, places_of, room, taken, together
from dpweave.engines.opening import open_source
from dpweave.errors import SourceError


@pytest.fixture(params=[1, 7, 64, 1 << 20])
def rows_at_once(request, monkeypatch):
    monkeypatch.setattr(large_arrays, "IN_MEMORY", 0 if request.param < 64 else 1 << 30)
    monkeypatch.setattr(large_arrays, "ROWS", request.param)
    monkeypatch.setattr(large_arrays, "BUCKETS", request.param)
    monkeypatch.setattr(large_arrays.blocks, "__kwdefaults__", {"rows": request.param})


@pytest.mark.usefixtures("rows_at_once")
@pytest.mark.parametrize("seed", range(5))
def test_all_is_as_in_memory(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 200))
    group, beside = rng.integers(-1, 20, n), rng.integers(-1, 20, int(rng.integers(1, 50)))
    group = group * (seed + 1) - (group < 0) * seed  # groups with gaps, and -1 for none
    group[group < 0] = -1
    there = rng.random(n) < 0.7
    values, at = rng.integers(0, 9, 30).astype(np.uint8), rng.integers(-1, 30, n)

    expected = np.where(at < 0, 300, values[at].astype(np.int16))
    assert np.array_equal(taken(values, at, 300, np.int16), expected)
    assert np.array_equal(taken(values, None, 300, np.int16), values)
    assert taken(values, None, 300) is values
    assert np.array_equal(places_of(there), np.flatnonzero(there))
    both = all_of([(group, np.greater_equal, 3), (there, np.equal, True)]) if n else None
    assert n == 0 or np.array_equal(both, (group >= 3) & there)
    assert all_of([(values, np.less, 9)]) is None

    for mask in (None, there):
        rows = np.flatnonzero((group >= 0) if mask is None else (group >= 0) & mask)
        assert np.array_equal(in_order(group, mask), rows[np.argsort(group[rows], kind="stable")])
    parts = [(group, in_order(group, there)), (beside, in_order(beside, None))]
    seen: set[int] = set()
    found: list[list[np.ndarray]] = [[], []]
    for few in together(parts):
        now = {int(g) for (groups, _), rows in zip(parts, few, strict=True) for g in groups[rows]}
        assert not now & seen
        seen |= now
        for kept, rows in zip(found, few, strict=True):
            kept.append(rows)
    for kept, (_, order) in zip(found, parts, strict=True):
        assert np.array_equal(np.concatenate([np.zeros(0, dtype=int), *kept]), order)


def test_memory_does_not_grow_with_an_array():
    """40 MB are filled, taken from and put in order; what stays in memory is far less."""
    n = 5_000_000

    def held() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    if not Path("/proc/self/statm").exists():
        pytest.skip("only Linux says what a process holds")
    before = held()
    large = room(n, np.int64, 7)
    for start in range(0, n, 1 << 16):
        large[start : start + (1 << 16)] = np.arange(start, min(start + (1 << 16), n)) // 3
        let_go(large)
    codes = taken(large, None, 0, np.int32)
    rows = in_order(codes, None)
    assert held() - before < 20e6
    assert np.array_equal(picked(rows, np.array([0, n - 1])), [0, n - 1])
    assert np.array_equal(picked(codes, np.array([5, n - 1])), [1, (n - 1) // 3])


def test_a_full_disk_is_an_error_and_not_the_end(monkeypatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(large_arrays.os, "posix_fallocate", no_room)
    with pytest.raises(SourceError, match=r"no room .*No space left on device.*TMPDIR"):
        room(1 << 22, np.int64)


def test_a_full_disk_under_duckdb_is_a_sentence_of_ours(tmp_path):
    duckdb.connect(str(tmp_path / "x.duckdb")).execute("CREATE TABLE t AS SELECT hash(range) a FROM range(5000000)")
    with open_source(tmp_path / "x.duckdb") as source:
        source.connection.con.execute("SET memory_limit = '20MB'")
        source.connection.con.execute("SET max_temp_directory_size = '1MB'")
        with pytest.raises(SourceError, match=r"ran out of memory, or of room .*TMPDIR"):
            source.materialise(source.table("t"))
