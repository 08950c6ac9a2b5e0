"""Linear effects along columns in order: told apart from the rest with the noise they
have, and found where tables drown.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.links.degrees import Degrees
from dpweave.links.fit_inputs import FitInputs, Residual, Stage, line
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import fit_links
from dpweave.links.prior_variances import coefficients, prior_variances
from dpweave.measure.cross_workloads import Workload
from tests.windows import ArrayWindow

MARGINS = [np.array([0.05, 0.1, 0.25, 0.35, 0.249, 0.001]), np.array([0.8, 0.2]), np.array([0.1, 0.2, 0.3, 0.4])]
ORDERED = {0: 5, 2: 4}


def _even(p: np.ndarray) -> np.ndarray:
    return 1 - 2 * p + len(p) * p**2


def _residual(raw: np.ndarray) -> Residual:
    """Noise as counts show it: centred along every axis."""
    table = raw
    for axis, p in enumerate(MARGINS):
        table = table - p.reshape([-1 if i == axis else 1 for i in range(3)]) * table.sum(axis=axis, keepdims=True)
    variance = np.einsum("a,b,c->abc", *map(_even, MARGINS))
    return Residual(Workload(("a", "b"), ("c",)), table, variance, 1.0)


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("linear", [True, False])
def test_noise_of_linear_coefficients_and_of_the_rest_is_what_it_is_said_to_be(axes, linear):
    rng = np.random.default_rng(0)
    lines = {a: line(MARGINS[a], ORDERED[a]) for a in axes}
    drawn = [coefficients(_residual(rng.normal(size=(6, 2, 4))), MARGINS, lines, linear=linear) for _ in range(4000)]
    found, said = np.stack([d.table for d in drawn]).var(axis=0), drawn[0].noise
    assert found.shape == np.broadcast(found, said).shape
    # A variance of 4,000 draws is off by 2 %; six of these are room enough for every cell.
    assert np.abs(found / said - 1).max() < 0.14
    assert not np.abs(found / (1.5 * said) - 1).max() < 0.14


def test_both_parts_of_a_table_add_up_and_a_linear_table_has_no_rest():
    x = line(MARGINS[0], 5) / np.sqrt(MARGINS[0])
    assert MARGINS[0] @ x == pytest.approx(0)
    assert MARGINS[0] @ x**2 == pytest.approx(1)
    effect = np.einsum("a,b,c->abc", MARGINS[0] * x, [1.0, -1.0], [1.0, -2.0, 0.0, 1.0])
    beyond = Residual(Workload(("a", "b"), ("c",)), effect, np.ones(effect.shape), 1.0)
    lines = {0: line(MARGINS[0], 5)}
    assert np.allclose(coefficients(beyond, MARGINS, lines, linear=False).table, 0)
    assert np.allclose(coefficients(beyond, MARGINS, lines, linear=True).table[0], effect[4] / (MARGINS[0] * x)[4])


RATINGS, FILMS = 40_000, 400
SHAPE = {"rating": 5, "job": 6} | {f"genre{i}": 2 for i in range(6)}


def _world(rng: np.random.Generator, effect: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Ratings of films; half of the genres are rated steadily higher, by one step for
    each unit of ``lean`` in logarithms.
    """
    left = {"rating": rng.choice(5, RATINGS, p=[0.05, 0.1, 0.25, 0.35, 0.25]), "job": rng.integers(0, 6, RATINGS)}
    right = {f"genre{i}": (rng.random(FILMS) < 0.2).astype(np.int64) for i in range(6)}
    better = right["genre0"] + right["genre1"] - right["genre2"]
    weight = np.exp(effect * np.multiply.outer(np.arange(5) - 2.5, better))
    films = np.empty(RATINGS, dtype=np.int64)
    for r in range(5):
        at = np.flatnonzero(left["rating"] == r)
        films[at] = rng.choice(FILMS, len(at), p=weight[r] / weight[r].sum())
    return left, right, films


def _means(rating: np.ndarray, genres: dict[str, np.ndarray]) -> np.ndarray:
    return np.array([rating[g == 1].mean() for g in genres.values()])


def _off(seed: int, *, ordered: bool, effect: float = 0.1) -> float:
    """How far mean ratings by genre are off in a fit to noisy counts."""
    rng = np.random.default_rng(seed)
    left, right, films = _world(rng, effect)
    codes = left | {c: v[films] for c, v in right.items()}
    window = ArrayWindow(codes, SHAPE, l1=20.0, l2=20.0, seed=seed)
    cliques = [(a, g) for a in left for g in right]
    problem = LinkProblem(
        left,
        right,
        shape=SHAPE,
        links=RATINGS,
        links_measured=RATINGS,
        kind="one-to-many",
        ordered={"rating": 5} if ordered else {},
    )
    fit = fit_links(problem, window.measure(cliques, rho=0.2), degrees=Degrees(), rng=rng)
    real = _means(left["rating"], {c: v[films] for c, v in right.items()})
    joint = [fit.joint[Workload(("rating",), (g,))][0].reshape(5, 2)[:, 1] for g in right]
    return float(np.abs(np.array([np.arange(5) @ j / j.sum() for j in joint]) - real).mean())


def test_a_steady_lean_that_drowns_in_a_table_is_found_along_a_column_in_order():
    told, untold = (np.mean([_off(seed, ordered=ordered) for seed in range(8)]) for ordered in (True, False))
    assert told < 0.9 * untold, (told, untold)


def test_without_leans_columns_in_order_take_no_noise_for_one():
    told, untold = (
        np.mean([_off(seed, ordered=ordered, effect=0.0) for seed in range(8)]) for ordered in (True, False)
    )
    assert told < untold + 0.001, (told, untold)


def test_what_one_side_shows_by_itself_and_short_columns_have_no_linear_effects():
    rng = np.random.default_rng(0)
    left, right, films = _world(rng, 0.0)
    codes = left | {c: v[films] for c, v in right.items()}
    problem = LinkProblem(
        left,
        right,
        shape=SHAPE,
        links=RATINGS,
        links_measured=RATINGS,
        ordered={"rating": 5, "genre0": 2, "job": 0},
    )
    measured = ArrayWindow(codes, SHAPE, seed=0).measure([("rating", "genre0"), ("job", "genre0")], rho=1.0)
    stage = Stage.of(FitInputs.of(problem, Degrees()), measured, rng)
    assert list(stage.lines(Workload(("rating",), ("genre0",)))) == [0]
    assert not stage.lines(Workload(("rating",), ()))
    assert not stage.lines(Workload(("job",), ("genre0",)))
    for component, variance in prior_variances(stage).items():
        assert (variance.linear == variance.rest) == (not stage.lines(component))


def test_values_far_out_that_hardly_occur_keep_a_column_out_of_linear_effects():
    """They would bring the noise of the far ends into everything else: of a sum by
    scores nearly all of it is theirs.
    """
    rng = np.random.default_rng(0)
    even, far = np.arange(3000) % 12, np.concatenate([np.arange(2999) % 2, [11]])
    for date, lines in ((even, {0, 1}), (far, {1})):
        left, right = {"date": date}, {"day": rng.integers(0, 8, 300)}
        shape = {"date": 12, "day": 8}
        problem = LinkProblem(left, right, shape=shape, links=3000, links_measured=3000.0, ordered=shape)
        window = ArrayWindow({"date": date, "day": rng.integers(0, 8, 3000)}, shape, l1=1.0, l2=1.0, seed=0)
        measured = window.measure([("date", "day")], rho=1.0)
        stage = Stage.of(FitInputs.of(problem, Degrees(left=np.ones(3000, dtype=np.int64))), measured, rng)
        assert set(stage.lines(Workload(("date",), ("day",)))) == lines
