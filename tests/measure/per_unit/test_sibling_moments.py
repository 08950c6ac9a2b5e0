"""What stands out of noise is kept and nothing else; questions have room for what rows may have in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpweave.measure.per_unit.sibling_moments import (
    Clipped,
    OwnedRows,
    beyond_noise,
    matrices,
    question,
    symmetric_beyond_noise,
)
from dpweave.privacy.unit_sums import require_moments
from dpweave.privacy.window import UnitMoments


def symmetric_noise(size: int, rng: np.random.Generator) -> np.ndarray:
    noise = np.triu(rng.normal(size=(size, size)))
    return noise + np.triu(noise, 1).T


@pytest.mark.parametrize("size", [2, 5, 30, 100])
def test_noise_alone_is_nothing(size):
    """A thousandth of such matrices may be taken for signal; of these 200, two at most."""
    rng = np.random.default_rng(size)
    assert sum(symmetric_beyond_noise(3 * symmetric_noise(size, rng), 3.0).factors > 0 for _ in range(200)) <= 2
    assert sum(beyond_noise(3 * rng.normal(size=(size, 7)), 3.0).factors > 0 for _ in range(200)) <= 2


def test_noise_is_known_for_what_it_is():
    """With a scale a third too small, noise would be taken for signal: the limit is not loose."""
    rng = np.random.default_rng(0)
    assert sum(symmetric_beyond_noise(symmetric_noise(50, rng), 2 / 3).factors > 0 for _ in range(20)) == 20
    assert sum(beyond_noise(rng.normal(size=(50, 40)), 2 / 3).factors > 0 for _ in range(20)) == 20


def test_what_stands_out_is_nearer_to_the_truth_than_the_answer():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=40)
    for sign in (1, -1):
        truth = sign * np.outer(factor, factor)
        noisy = truth + symmetric_noise(40, rng)
        found = symmetric_beyond_noise(noisy, 1.0)
        assert found.factors == 1
        assert found.strongest > 1
        assert np.square(found.matrix - truth).sum() < 0.2 * np.square(noisy - truth).sum()
    wide = np.outer(factor, factor[:10])
    noisy = wide + rng.normal(size=wide.shape)
    assert np.square(beyond_noise(noisy, 1.0).matrix - wide).sum() < 0.35 * np.square(noisy - wide).sum()


def test_numbers_find_their_places():
    moments = UnitMoments(
        "o", (("a", (0.5, 0.5)), ("b", (1.0,)), ("p", (0.2, 0.8))), (("p", "a"), ("p", "b")),
        (("a", "a"), ("a", "b"), ("b", "b")), 1.0,
    )  # fmt: skip
    one, two, together = moments.at
    assert together == 6
    found = matrices(moments, 10.0 * one + two, 3)
    assert found.owners.tolist() == [[30, 31, 32], [40, 41, 42]]
    assert found.siblings.tolist() == [[0, 1, 2], [1, 11, 12], [2, 12, 22]]


def owned(rows_each: int, columns: int = 2) -> OwnedRows:
    rng = np.random.default_rng(0)
    rows = 500 * rows_each
    return OwnedRows(
        {f"c{i}": rng.integers(0, 5, rows) for i in range(columns)} | {"same": np.zeros(rows, dtype=np.int64)},
        {"p": rng.integers(0, 3, 500)},
        np.arange(rows) // rows_each,
        {**{f"c{i}": 5 for i in range(columns)}, "same": 1, "p": 3},
    )


def test_questions_have_room_for_what_large_owners_have_in_common():
    few, many = (question(owned(n), "k", rho=0.1, rows=500 * n, bound=1000) for n in (2, 100))
    assert few is not None
    assert many is not None
    assert many.clip > 3 * few.clip
    assert many.scale > few.scale
    assert [name for name, _ in few.centres] == ["c0", "c1", "p"]  # what is the same in all rows says nothing
    assert all(sum(shares) == pytest.approx(1) for _, shares in few.centres)
    poor = question(owned(2), "k", rho=1e-4, rows=1000, bound=1000)
    assert poor is not None
    assert poor.clip < few.clip  # where noise is all there is, it had better be small


def test_there_is_nothing_to_ask_of_single_rows_or_no_rows():
    assert question(owned(1), "k", rho=0.1, rows=500, bound=1000) is None
    none = OwnedRows({"a": np.zeros(0, dtype=np.int64)}, {}, np.zeros(0, dtype=np.int64), {"a": 4})
    assert question(none, "k", rho=0.1, rows=1.0, bound=10) is None


def test_wide_rows_are_asked_about_as_many_columns_as_fit():
    found = question(owned(2, columns=200), "k", rho=0.1, rows=1000, bound=10)
    assert found is not None
    assert len(found.at[0]) <= 1 << 18
    assert 50 < len(found.centres) < 200


@pytest.mark.parametrize(("own", "theirs"), [(500, 200), (400, 400), (361, 5), (3, 80_000)])
def test_what_is_asked_is_never_refused(own, theirs):
    """A question that the wall refuses would end a fit that has paid for the others."""
    rng = np.random.default_rng(0)
    known = OwnedRows(
        {"a": rng.integers(0, own, 60), "b": rng.integers(0, 3, 60)}, {"p": rng.integers(0, theirs, 20)},
        np.repeat(np.arange(20), 3), {"a": own, "b": 3, "p": theirs},
    )  # fmt: skip
    asked = question(known, "k", rho=0.1, rows=60.0, bound=10)
    assert asked is not None
    require_moments(asked, known.shape)


def test_a_clip_is_never_zero():
    """Most owners have one row here, and nearly all rows are alike: their vectors have no length."""
    rows, owner = 300, np.append(np.arange(298), [297, 297])
    alike = OwnedRows({"a": (np.arange(rows) >= 299).astype(np.int64)}, {}, owner, {"a": 2})
    for rho in (1e-6, 1.0):
        found = question(alike, "k", rho=rho, rows=300.0, bound=10)
        assert found is not None
        assert found.clip > 0
        assert found.scale > 0


def test_what_a_clip_takes_does_not_depend_on_the_numbers_of_owners():
    """Orders of a customer may have any numbers: those of another may lie between them."""
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(30), 6)
    owners = np.repeat(rng.permutation(60), 3)
    codes = {"a": rng.integers(0, 3, 180)}
    moments = UnitMoments("o", (("a", (0.3, 0.3, 0.4)),), (), (("a", "a"),), 0.4)
    found = Clipped.of(units, owners, codes, moments, bound=3)
    named = np.repeat(np.arange(60), 3)
    assert found.lost == pytest.approx(Clipped.of(units, named, codes, moments, bound=3).lost)
    assert np.abs(found.lost).max() > 1
    fewer = Clipped.of(units, owners, codes, moments, bound=2)
    kept = np.arange(180) % 3 < 2
    again = Clipped.of(units[kept], owners[kept], {"a": codes["a"][kept]}, moments, bound=2)
    assert fewer.lost == pytest.approx(again.lost)


def test_vectors_are_those_of_whole_units():
    """A unit with several owners has the vectors of all of them in one, so that its clip is longer."""
    alone = owned(4)
    together = replace(alone, above=np.arange(500) // 10)
    assert together.unit.tolist() == (np.arange(2000) // 40).tolist()
    one, many = (question(known, "k", rho=0.1, rows=2000, bound=1000) for known in (alone, together))
    assert one is not None
    assert many is not None
    assert many.clip > 1.5 * one.clip
    lost = replace(alone, above=np.full(500, -1))
    assert question(lost, "k", rho=0.1, rows=2000, bound=1000) is None
