"""Exchanges for siblings: changes are those of the definition, and rows that belong together come together."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.links.wiring.exchange import Exchanges
from dpweave.links.wiring.exchange_for_siblings import CodedVectors, Levels, SiblingMoments, exchange_for_siblings


def vectors(codes: np.ndarray, shares: list[float]) -> np.ndarray:
    return np.eye(len(shares))[codes] - np.array(shares)


def moments(x: np.ndarray, y: np.ndarray, owner: np.ndarray, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The definition, over all pairs of rows of each owner."""
    siblings, owners = np.zeros((x.shape[1],) * 2), np.zeros((y.shape[1], x.shape[1]))
    for p in range(len(y)):
        mine = x[owner == p]
        for i in range(len(mine)):
            owners += shown[p] * np.outer(y[p], mine[i])
            for j in range(len(mine)):
                if i != j:
                    siblings += shown[p] / (len(mine) - 1) * np.outer(mine[i], mine[j])
    return siblings, owners


def problem(seed: int):
    rng = np.random.default_rng(seed)
    shares = [[0.5, 0.3, 0.2], [0.6, 0.4]], [[0.25, 0.75]]
    rows, people = int(rng.integers(6, 20)), int(rng.integers(2, 6))
    codes = [rng.integers(0, len(s), rows) for s in shares[0]]
    theirs = [rng.integers(0, len(s), people) for s in shares[1]]
    owner, shown = rng.integers(0, people, rows), rng.uniform(0.3, 1.0, people)
    plain = np.concatenate([vectors(c, s) for c, s in zip(codes, shares[0], strict=True)], axis=1)
    of_owners = np.concatenate([vectors(c, s) for c, s in zip(theirs, shares[1], strict=True)], axis=1)
    coded = CodedVectors.of(codes, shares[0], rows), CodedVectors.of(theirs, shares[1], people)
    return rng, plain, of_owners, owner, shown, coded


@pytest.mark.parametrize("seed", range(20))
def test_changes_are_those_of_the_definition(seed):
    rng, x, y, owner, shown, coded = problem(seed)
    found = SiblingMoments.of(*coded, owner, shown)
    siblings, owners = moments(x, y, owner, shown)
    assert found.off == pytest.approx(siblings, abs=1e-4)
    assert found.off_owners == pytest.approx(owners, abs=1e-4)
    aim, aim_owners = rng.normal(size=siblings.shape), rng.normal(size=owners.shape)
    aim = aim + aim.T
    wanted = found.aiming_at(aim, aim_owners, weight=0.3)
    assert wanted.loss == pytest.approx((aim**2).sum() + 0.3 * (aim_owners**2).sum())
    some = rng.permutation(len(owner))
    half = len(owner) // 2
    pairs = Exchanges.between(some[:half], some[half : 2 * half], owner)
    pairs = pairs.some(pairs.ends != pairs.others)

    def loss(ends: np.ndarray) -> float:
        now, now_owners = moments(x, y, ends, shown)
        off, off_owners = now - siblings - aim, now_owners - owners - aim_owners
        return float((off**2).sum() + 0.3 * (off_owners**2).sum())

    for i, change in enumerate(wanted.change(pairs)):
        ends = owner.copy()
        ends[[pairs.one[i], pairs.two[i]]] = pairs.others[i], pairs.ends[i]
        assert change == pytest.approx(loss(ends) - loss(owner), abs=1e-3)
    after, change = wanted.after(pairs)
    ends = owner.copy()
    ends[pairs.one], ends[pairs.two] = pairs.others, pairs.ends
    assert after.loss == pytest.approx(loss(ends), abs=1e-3)
    assert change == pytest.approx(loss(ends) - loss(owner), abs=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_changes_on_two_levels_are_those_of_the_definition(seed):
    """Owners have owners: what an exchange changes for these counts too, and nothing where both have the same."""
    rng, x, y, owner, shown, coded = problem(seed)
    above = rng.integers(0, 2, len(shown))
    none, of_units = np.zeros((2, 0)), CodedVectors.of([], [], 2)
    direct = SiblingMoments.of(*coded, owner, shown)
    higher = SiblingMoments.of(coded[0], of_units, above[owner], np.array([1.0, 0.5]))
    aims = [a + a.T for a in rng.normal(size=(2, *direct.off.shape))]
    levels = Levels(
        (
            (direct.aiming_at(aims[0], np.zeros_like(direct.off_owners), weight=0.3), np.arange(len(shown)), 1.0),
            (higher.aiming_at(aims[1], np.zeros((0, len(aims[1]))), weight=1.0), above, 0.7),
        )
    )

    def loss(ends: np.ndarray) -> float:
        siblings, owners = (a - b for a, b in zip(moments(x, y, ends, shown), moments(x, y, owner, shown), strict=True))
        units = [moments(x, none, above[e], np.array([1.0, 0.5]))[0] for e in (ends, owner)]
        apart = np.square(units[0] - units[1] - aims[1]).sum()
        return float(np.square(siblings - aims[0]).sum() + 0.3 * np.square(owners).sum() + 0.7 * apart)

    assert levels.loss == pytest.approx(loss(owner))
    some = rng.permutation(len(owner))
    half = len(owner) // 2
    pairs = Exchanges.between(some[:half], some[half : 2 * half], owner)
    pairs = pairs.some(pairs.ends != pairs.others)
    for i, change in enumerate(levels.change(pairs)):
        ends = owner.copy()
        ends[[pairs.one[i], pairs.two[i]]] = pairs.others[i], pairs.ends[i]
        assert change == pytest.approx(loss(ends) - loss(owner), abs=1e-3)
    after, change = levels.after(pairs)
    ends = owner.copy()
    ends[pairs.one], ends[pairs.two] = pairs.others, pairs.ends
    assert after.loss == pytest.approx(loss(ends), abs=1e-3)
    assert change == pytest.approx(loss(ends) - loss(owner), abs=1e-3)


def test_rows_that_belong_together_come_together():
    """Rows of two kinds at random; asked for are owners whose rows are all of one kind."""
    rng = np.random.default_rng(0)
    kind, owner = rng.integers(0, 2, 3000), rng.integers(0, 600, 3000)
    x, y = CodedVectors.of([kind], [[0.5, 0.5]], 3000), CodedVectors.of([], [], 600)
    now = SiblingMoments.of(x, y, owner, np.ones(600))
    wanted = 750 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    ends = exchange_for_siblings(
        owner, (), now.aiming_at(wanted - now.off, np.zeros((0, 2)), weight=1.0), rng=np.random.default_rng(1)
    )
    assert (np.bincount(ends, minlength=600) == np.bincount(owner, minlength=600)).all()
    reached = SiblingMoments.of(x, y, ends, np.ones(600)).off
    assert reached[0, 0] > 0.9 * 750
    assert abs(now.off[0, 0]) < 0.1 * 750


def test_nothing_is_done_where_there_is_nothing_to_do():
    x, y = CodedVectors.of([np.zeros(4, dtype=np.int64)], [[1.0]], 4), CodedVectors.of([], [], 2)
    owner = np.array([0, 0, 1, 1])
    now = SiblingMoments.of(x, y, owner, np.ones(2)).aiming_at(np.zeros((1, 1)), np.zeros((0, 1)), weight=1.0)
    assert (exchange_for_siblings(owner, (), now, rng=np.random.default_rng(0)) == owner).all()
