"""The change of one exchange is what counting again says, and the loss falls to what noise or chance leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpweave.links.wiring.exchange import Exchanges
from dpweave.links.wiring.exchange_for_order import OrderMoments, Places, exchange_for_order
from dpweave.links.wiring.exchange_for_siblings import CodedVectors, SiblingMoments


def problem(seed: int, rows: int = 60, *, siblings: bool = True) -> OrderMoments:
    """Rows of a few owners, some cut off by bounds, with two columns, and gaps in three groups."""
    rng = np.random.default_rng(seed)
    owner = np.sort(rng.integers(0, rows // 5, rows))
    follows = np.append(False, owner[1:] == owner[:-1]) & (rng.random(rows) < 0.9)
    codes = [rng.integers(0, 3, rows), rng.integers(0, 2, rows)]
    centres = [np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.6])]
    x = CodedVectors.of(codes, centres, rows)
    y = CodedVectors.of(
        [np.append(codes[0], 3), np.append(codes[1], 2)],
        [np.array([0.2, 0.3, 0.4, 0.1]), np.array([0.4, 0.5, 0.1])],
        rows + 1,
    )
    gap = CodedVectors.of([np.where(follows, rng.integers(0, 3, rows), 3)], [np.array([0.3, 0.3, 0.2, 0.2])], rows)
    shown = rng.choice([1.0, 0.5], rows // 5)
    z = CodedVectors.of([rng.integers(0, 2, rows // 5)], [np.array([0.5, 0.5])], rows // 5)
    common = SiblingMoments.of(x, z, owner, shown).aiming_at(
        rng.normal(0, 3, (5, 5)), rng.normal(0, 3, (2, 5)), weight=1.0
    )
    common = replace(common, off=(common.off + common.off.T) / 2)
    return OrderMoments.of(
        x, y, Places.of(owner, follows, gap, shown), rng.integers(0, 2, rows), common if siblings else None,
        rng.normal(0, 3, (5, 7)), rng.normal(0, 3, (12, 4)),
    )  # fmt: skip


def counted(moments: OrderMoments, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both tables, place by place."""
    places, rows = moments.places, len(row)
    pairs, gaps = np.zeros(moments.off.shape), np.zeros(moments.off_gaps.shape)
    for s in range(rows):
        x = moments.x.at(np.array([row[s]]))[0]
        said = moments.y.at(np.array([row[places.before[s]] if places.before[s] < rows else rows]))[0]
        gap = moments.places.gap.at(np.array([s]))[0]
        pairs += places.shown[s] * np.outer(x, said)
        gaps += places.shown[s] * np.outer(np.append(x, said), gap)
    return pairs, gaps


@pytest.mark.parametrize("seed", range(4))
def test_the_change_of_an_exchange_is_what_counting_again_says(seed):
    moments = problem(seed)
    rows = len(moments.group)
    ends = np.random.default_rng(seed).permutation(rows)  # rows are anywhere, first by exchanges one after the other
    for i in range(rows):
        at = int(np.flatnonzero(moments.row[:-1] == i)[0])
        other = int(moments.row[ends[i]])
        if i != other:
            moments, _ = moments.after(Exchanges(np.array([i]), np.array([other]), np.array([at]), ends[[i]]))
    place = np.argsort(moments.row[:-1])
    before = counted(moments, moments.row[:-1])
    checked = 0
    for one in range(rows):
        for two in range(one + 1, min(one + 9, rows)):
            some = Exchanges.between(np.array([one]), np.array([two]), place)
            row = moments.row[:-1].copy()
            row[place[one]], row[place[two]] = two, one
            after = counted(moments, row)
            off, off_gaps = (o + b - a for o, b, a in zip((moments.off, moments.off_gaps), after, before, strict=True))
            expected = np.square(off).sum() + np.square(off_gaps).sum()
            expected -= np.square(moments.off).sum() + np.square(moments.off_gaps).sum()
            moved = Exchanges.between(np.array([one]), np.array([two]), moments.places.owner[place])
            assert moments.siblings is not None
            if moved.ends[0] != moved.others[0]:
                expected += float(moments.siblings.change(moved)[0])
            assert moments.change(some)[0] == pytest.approx(expected, abs=1e-2)
            found, change = moments.after(some)
            assert change == pytest.approx(expected, abs=1e-2)
            assert found.off == pytest.approx(off, abs=1e-3)
            checked += int(moments.places.before[place[two]] == place[one])
    assert checked > 2  # one right after the other, too


def test_rows_come_in_the_order_that_was_asked_for():
    """Places of one group are filled so that a value comes after the other, and each owner keeps its number of rows."""
    rng = np.random.default_rng(0)
    owner, value = np.repeat(np.arange(500), 6), rng.integers(0, 2, 3000)
    follows = np.append(False, owner[1:] == owner[:-1])
    x = CodedVectors.of([value], [np.array([0.5, 0.5])], 3000)
    y = CodedVectors.of([np.append(value, 2)], [np.array([0.4, 0.4, 0.2])], 3001)
    gap = CodedVectors.of([], [], 3000)
    wanted = np.array([[400.0, -400.0, 0.0], [-400.0, 400.0, 0.0]])
    moments = OrderMoments.of(
        x, y, Places.of(owner, follows, gap, np.ones(500)), rng.integers(0, 4, 3000), None, wanted, np.zeros((5, 0))
    )
    ends = exchange_for_order(moments, rng=rng)
    assert (np.sort(ends) == np.arange(3000)).all()
    assert (moments.group[np.argsort(ends)] == moments.group).all()
    there = value[np.argsort(ends)]
    same, was = (np.mean(v[1:][follows[1:]] == v[:-1][follows[1:]]) for v in (there, value))
    assert same - was == pytest.approx(800 / 2500, abs=0.01)
