from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.errors import UsageError
from dpweave.links.relaxed import projections
from dpweave.links.relaxed.projections import (
    _SMALL,
    _shift_by_halving,
    project_capped_simplex,
    project_rows_simplex,
    rescale_capped_simplex,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def by_bisection(b: np.ndarray, total: float, weights: np.ndarray) -> np.ndarray:
    """The oracle: 120 halvings of the bracket of `thm::proj_cf` in extended precision."""
    v, w = b.astype(np.longdouble), weights.astype(np.longdouble)
    lo, hi = -v.max(), 1 - v.min()
    for _ in range(120):
        y = (lo + hi) / 2
        lo, hi = (y, hi) if (w * np.clip(v + y, 0, 1)).sum() < total else (lo, y)
    return np.clip(v + hi, 0, 1).astype(np.float64)


def satisfies_kkt(x: np.ndarray, b: np.ndarray, *, tolerance: float = 1e-9) -> bool:
    """Optimality of a projection: x - b is one constant where x is free, below it at 1, above it at 0."""
    shift = x - b
    free, one, zero = (x > tolerance) & (x < 1 - tolerance), x >= 1 - tolerance, x <= tolerance
    low = max((shift[one].max(initial=-np.inf), shift[free].max(initial=-np.inf)))
    high = min((shift[zero].min(initial=np.inf), shift[free].min(initial=np.inf)))
    return bool(low <= high + tolerance)


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    n = int(rng.integers(1, 40))
    b = [
        lambda: rng.normal(size=n) * 10.0 ** rng.integers(-3, 3),
        lambda: np.round(rng.normal(size=n), 1),
        lambda: np.zeros(n),
        lambda: np.ones(n),
        lambda: rng.integers(-1, 3, size=n).astype(float),
    ][int(rng.integers(5))]()
    total = [0.0, float(n), float(rng.integers(0, n + 1)), float(rng.random() * n)][int(rng.integers(4))]
    return b, total


def test_equals_the_oracle_and_is_optimal_on_a_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        b, total = random_case(rng)
        x = project_capped_simplex(b, total=total)
        np.testing.assert_allclose(x, by_bisection(b, total, np.ones_like(b)), atol=1e-8)
        assert x.min() >= 0.0
        assert x.max() <= 1.0
        assert abs(math.fsum(x) - total) <= 1e-9
        assert satisfies_kkt(x, b)


def by_quadratic_programming(b: np.ndarray, total: float) -> np.ndarray:
    """scipy's SLSQP, which solves a quadratic programme exactly at every step; here the first is the problem itself."""
    from scipy.optimize import minimize

    found = minimize(
        lambda x: 0.5 * ((x - b) ** 2).sum(),
        np.full(len(b), total / len(b)),
        jac=lambda x: x - b,
        bounds=[(0, 1)] * len(b),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(found.x)


def test_equals_a_qp_solver_on_a_thousand_cases() -> None:
    rng = np.random.default_rng(1)
    met = {"ties": 0, "all zero": 0, "all one": 0, "m = 0": 0, "m = N": 0}
    for _ in range(1000):
        b, total = random_case(rng)
        b = np.clip(b, -10, 10)  # the solver's line search loses digits to larger objectives
        met["ties"] += len(set(b)) < len(b)
        met["all zero"] += not b.any()
        met["all one"] += bool((b == 1.0).all())
        met["m = 0"] += total == 0.0
        met["m = N"] += total == len(b)
        np.testing.assert_allclose(
            project_capped_simplex(b, total=total), by_quadratic_programming(b, total), rtol=0, atol=1e-8
        )
    assert min(met.values()) >= 100


@pytest.mark.parametrize("seed", range(20))
def test_where_it_starts_from_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = rng.normal(size=200) * 10.0 ** rng.integers(-3, 2)
    weights = rng.integers(0, 4, size=200).astype(float)
    total = float(rng.integers(1, int(weights.sum())))
    x = project_capped_simplex(b, total=total, weights=weights)
    near = project_capped_simplex(b + rng.normal(size=200) * 1e-2, total=total, weights=weights)
    for start in (near, x, np.zeros(200), np.ones(200), np.full(200, 0.5)):
        found = project_capped_simplex(b, total=total, weights=weights, near=start)
        np.testing.assert_allclose(found, x, rtol=0, atol=1e-11)


@given(st.integers(0, 2**32 - 1))
def test_rescaling_is_clipping_and_one_factor(seed: int) -> None:
    """What the authors' code does: feasible, the same weighted as expanded, and one factor where no entry is at 1."""
    rng = np.random.default_rng(seed)
    b = rng.normal(size=rng.integers(1, 30)) * 10.0 ** rng.integers(-3, 1)
    weights = rng.integers(1, 6, size=len(b))
    total = float(rng.integers(0, weights.sum() + 1))
    x = rescale_capped_simplex(b, total=total, weights=weights.astype(float))
    assert x.min() >= 0.0
    assert x.max() <= 1.0
    assert float(weights @ x) == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(
        np.repeat(x, weights), rescale_capped_simplex(np.repeat(b, weights), total=total), atol=1e-10
    )
    clipped = np.clip(b, 0.0, 1.0)
    if total < weights[clipped > 0].sum():
        assert (x[clipped == 0.0] == 0.0).all()
        free = (clipped > 0.0) & (x < 1.0)
        np.testing.assert_allclose(x[free] * clipped[free][:1], clipped[free] * x[free][:1], atol=1e-10)


@pytest.mark.parametrize("project", [project_capped_simplex, rescale_capped_simplex])
def test_of_everything_or_nothing(project: Callable[..., np.ndarray]) -> None:
    b = np.array([-1.0, 0.0, 0.3, 2.0])
    np.testing.assert_array_equal(project(b, total=0.0), np.zeros(4))
    np.testing.assert_array_equal(project(b, total=4.0), np.ones(4))


def test_clip_and_rescale_is_not_the_projection() -> None:
    b = np.array([0.9, 0.5, 0.1])
    x, rescaled = project_capped_simplex(b, total=1.0), rescale_capped_simplex(b, total=1.0)
    np.testing.assert_allclose(rescaled, b / 1.5)
    assert ((x - b) ** 2).sum() < ((rescaled - b) ** 2).sum()


@given(st.integers(0, 2**32 - 1))
def test_weighted_equals_expanded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = np.round(rng.normal(size=rng.integers(1, 30)), int(rng.integers(0, 4)))
    weights = rng.integers(1, 6, size=len(b))
    total = float(rng.integers(0, weights.sum() + 1))
    x = project_capped_simplex(b, total=total, weights=weights.astype(float))
    np.testing.assert_allclose(
        np.repeat(x, weights), project_capped_simplex(np.repeat(b, weights), total=total), atol=1e-10
    )


@pytest.mark.parametrize("shape", ["normal", "uniform", "constant", "ties", "sparse", "cauchy", "two-level"])
@pytest.mark.parametrize("share", [1e-4, 0.1, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_long_vectors(shape: str, share: float, weighted: bool) -> None:
    rng = np.random.default_rng(2)
    n = 2 * _SMALL
    b = {
        "normal": lambda: rng.normal(size=n),
        "uniform": lambda: rng.random(n) * 1e-3,
        "constant": lambda: np.full(n, 0.3),
        "ties": lambda: np.round(rng.normal(size=n), 1),
        "sparse": lambda: np.where(rng.random(n) < 1e-3, 100 * rng.random(n), 0.0),
        "cauchy": lambda: rng.standard_cauchy(n),
        "two-level": lambda: np.where(np.arange(n) < n // 2, 0.0, 50.0),
    }[shape]()
    weights = rng.integers(1, 9, size=n).astype(float) if weighted else np.ones(n)
    total = float(np.floor(share * weights.sum()))
    x = project_capped_simplex(b, total=total, weights=weights if weighted else None)
    np.testing.assert_allclose(x, by_bisection(b, total, weights), atol=1e-10)
    assert abs(math.fsum(weights * x) - total) <= 1e-9
    halved = np.clip(b + _shift_by_halving(b, weights if weighted else None, total), 0, 1)
    np.testing.assert_allclose(halved, x, atol=1e-10)


@pytest.mark.parametrize("total", [-1.0, 4.5, float("nan")])
@pytest.mark.parametrize("project", [project_capped_simplex, rescale_capped_simplex])
def test_impossible_totals_are_refused(total: float, project: Callable[..., np.ndarray]) -> None:
    with pytest.raises(UsageError, match="total"):
        project(np.zeros(4), total=total)


@pytest.mark.slow
@pytest.mark.parametrize("total", [4000.0, 1e6])
@pytest.mark.parametrize("shape", ["normal", "uniform", "constant"])
def test_ten_million_entries(shape: str, total: float) -> None:
    rng = np.random.default_rng(3)
    n = 10_000_000
    b = {"normal": lambda: rng.normal(size=n), "uniform": lambda: rng.random(n), "constant": lambda: np.ones(n)}[
        shape
    ]()
    ratios = []
    for _ in range(3):  # the best of three, for machines that are busy with other things
        start = time.process_time()
        np.clip(b, 0.0, 1.0).sum()
        one_pass = time.process_time() - start
        start = time.process_time()
        x = project_capped_simplex(b, total=total)
        ratios.append((time.process_time() - start) / one_pass)
    assert x.min() >= 0.0
    assert x.max() <= 1.0
    assert abs(math.fsum(x) - total) <= 1e-9
    assert min(ratios) <= 30


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_rows_equal_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = np.round(rng.normal(size=(3, rng.integers(1, 8))), int(rng.integers(0, 5)))
    weights = rng.integers(0, 4, size=b.shape).astype(float)
    weights[:, 0] = 1.0
    x = project_rows_simplex(b, weights=weights)
    np.testing.assert_allclose((weights * x).sum(axis=1), 1.0, atol=1e-12)
    assert x.min() >= 0.0
    assert (x[weights == 0.0] == 0.0).all()
    for i in range(len(b)):
        exists = weights[i] > 0
        expected = by_bisection(b[i][exists], 1.0, weights[i][exists])
        np.testing.assert_allclose(x[i][exists], expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_where_rows_start_from_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    b = rng.normal(size=(6, 40)) * 10.0 ** rng.integers(-3, 3)
    weights = rng.integers(0, 4, size=b.shape).astype(float)
    weights[:, 0] = 1.0
    x = project_rows_simplex(b, weights=weights)
    near = project_rows_simplex(b + rng.normal(size=b.shape) * 0.1, weights=weights)
    far = np.zeros(b.shape)
    far[:, 0] = 1.0
    for start in (near, far, np.zeros(b.shape), x):
        np.testing.assert_allclose(project_rows_simplex(b, weights=weights, near=start), x, rtol=0, atol=1e-12)
    monkeypatch.setattr(projections, "_ROW_STEPS", 0)  # the obvious algorithm: sort each row
    np.testing.assert_allclose(project_rows_simplex(b, weights=weights), x, rtol=0, atol=1e-12)


def test_a_row_without_entries_is_refused() -> None:
    with pytest.raises(UsageError, match="no entry"):
        project_rows_simplex(np.zeros((1, 2)), weights=np.zeros((1, 2)))
