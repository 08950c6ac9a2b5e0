"""Columns that follow from others, learned from noisy counts; composed columns; random zeros in every model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.privacy.window import NoisyMarginal
from dpweave.tables.base import Dependency, StructuralZero, Structure, table_model
from dpweave.tables.graphical.dependencies import learned_dependency
from dpweave.tables.reduction import compose
from tests.windows import ArrayWindow


def noisy(truth: np.ndarray, sigma: float, seed: int = 0) -> NoisyMarginal:
    counts = truth + np.rint(np.random.default_rng(seed).normal(0, sigma, truth.shape)).astype(np.int64)
    return NoisyMarginal(("city", "country"), counts, sigma)


def alone(pair: NoisyMarginal, truth: np.ndarray) -> NoisyMarginal:
    """Counts of the country alone, with as much noise."""
    counts = truth.sum(axis=0) + np.rint(np.random.default_rng(9).normal(0, pair.sigma, truth.shape[1])).astype(int)
    return NoisyMarginal(("country",), counts, pair.sigma)


def learn(truth: np.ndarray, sigma: float, **options) -> Dependency:
    pair = noisy(truth, sigma)
    return learned_dependency(pair, alone(pair, truth), **options)


def towns(sizes: np.ndarray, country: np.ndarray, countries: int) -> np.ndarray:
    truth = np.zeros((len(sizes), countries), dtype=np.int64)
    truth[np.arange(len(sizes)), country] = sizes
    return truth


def test_what_stands_out_of_noise_is_found() -> None:
    country = np.arange(40) % 7
    found = learn(towns(np.full(40, 200), country, 7), 10.0, rows=8000.0)
    assert found.determinants == ("city",)
    np.testing.assert_array_equal(found.table, country)


def test_what_does_not_stand_out_is_as_common_as_in_the_whole_table() -> None:
    """2,000 villages of a few rows: nine in ten lie in the largest country, as rows do; the likeliest, all would."""
    rng = np.random.default_rng(3)
    country = np.where(rng.random(2000) < 0.9, 0, rng.integers(1, 20, 2000))
    found = learn(towns(np.full(2000, 3), country, 20), 30.0, rows=6000.0)
    assert np.mean(found.table == 0) == pytest.approx(0.9, abs=0.1)
    assert len(np.unique(found.table)) > 10


def test_the_draw_follows_the_probabilities_of_the_model() -> None:
    """Sizes drawn as the derivation assumes: what is drawn is right as often as its own probabilities say."""
    rng = np.random.default_rng(5)
    sigma, mean, share = 8.0, 12.0, np.array([0.6, 0.3, 0.1])
    country = rng.choice(3, 20_000, p=share)
    truth = towns(np.rint(rng.exponential(mean, 20_000)).astype(np.int64), country, 3)
    measured = noisy(truth, sigma, seed=6)
    found = learned_dependency(measured, alone(measured, truth), rows=mean * 20_000)
    for j in range(3):  # a draw from the right posterior has the law of the truth, whatever else is looked at
        for high in (False, True):
            there = (measured.counts[:, j] > 2 * sigma) == high
            error = np.sqrt(0.25 / there.sum())
            assert abs(np.mean(found.table[there] == j) - np.mean(country[there] == j)) < 6 * error


def test_forbidden_values_are_never_drawn() -> None:
    mask = np.zeros((3, 12), dtype=bool)
    mask[0], mask[1, ::2] = True, True
    zero = StructuralZero(("country", "city"), mask)
    found = learn(np.zeros((12, 3), dtype=np.int64), 5.0, rows=10.0, zeros=[zero])
    assert not mask[found.table, np.arange(12)].any()


def test_composed_columns_hold_the_combinations_that_can_occur() -> None:
    shape = {"a": 3, "b": 2, "c": 4, "d": 2, "one": 1}
    mask = np.array([[True, False], [False, True], [False, False]])
    follows = Dependency(("b", "c"), "d", np.arange(8).reshape(2, 4) % 2)
    known = Structure(zeros=(StructuralZero(("a", "b"), mask),), dependencies=(follows,))
    made = compose(shape, known)
    assert dict(made.shape) == {"a × b": 4, "c": 4}
    assert made.inner(("d",)) == ("a × b", "c")
    assert made.outer(("c", "a × b")) == ("c", "a", "b")
    counts = np.arange(24).reshape(4, 3, 2)
    np.testing.assert_array_equal(made.composed(("c", "a × b"), counts)[1], counts[1][~mask])
    assert made.origins["d"].table.shape == (4, 4)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, int], Structure, dict[str, np.ndarray]]:
    """A random shape with zeros that leave a row, and rows that keep them."""
    shape = {c: draw(st.integers(1, 4)) for c in "abcd"}
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    row = {c: int(rng.integers(n)) for c, n in shape.items()}
    zeros = []
    for _ in range(draw(st.integers(1, 3))):
        columns = tuple(rng.permutation(list(shape))[: draw(st.integers(1, 3))].tolist())
        mask = rng.random([shape[c] for c in columns]) < draw(st.floats(0.1, 0.95))
        mask[tuple(row[c] for c in columns)] = False
        zeros.append(StructuralZero(columns, mask))
    every = np.stack(np.unravel_index(np.arange(np.prod(list(shape.values()))), list(shape.values())), axis=1)
    places = {c: i for i, c in enumerate(shape)}
    kept = [e for e in every if not any(z.mask[tuple(e[places[c]] for c in z.columns)] for z in zeros)]
    codes = np.array(kept)[rng.integers(0, len(kept), draw(st.integers(0, 200)))]
    return shape, Structure(zeros=tuple(zeros)), {c: codes[:, i] for c, i in places.items()}


@pytest.mark.parametrize("name", ["independent", "mst", "aim", "woven"])
@settings(max_examples=25, deadline=None)
@given(world=worlds(), rho=st.sampled_from([1e-4, 0.1, 100.0]))
def test_no_model_draws_what_cannot_occur(name: str, world, rho: float) -> None:
    shape, structure, codes = world
    window = ArrayWindow(codes, shape, seed=1)
    fitted = table_model(name).fit(window, rho=rho, rows=150.0, structure=structure, progress=lambda *_: None)
    made = fitted.sample(300, np.random.default_rng(2))
    for zero in structure.zeros:
        assert not zero.mask[tuple(made[c] for c in zero.columns)].any()
        assert fitted.marginal(zero.columns)[zero.mask].max(initial=0.0) == 0.0
    assert window.spent == rho
