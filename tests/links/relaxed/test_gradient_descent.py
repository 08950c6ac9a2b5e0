from __future__ import annotations

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.links.link_method import LinkProblem
from dpweave.links.relaxed.dense_block import Block
from dpweave.links.relaxed.gradient_descent import descend, largest_singular_value
from dpweave.links.relaxed.many_to_many import CappedSimplex
from dpweave.links.relaxed.one_to_many import RowSimplices
from dpweave.links.row_types import LinkOperator, RowTypes
from dpweave.measure.cross_workloads import cross_workloads
from tests.links.random_relations import Relation, random_relation


def problems(relation: Relation, *, barred: bool = False) -> tuple[LinkOperator, LinkOperator, np.ndarray, np.ndarray]:
    """The collapsed and the uncollapsed problem with their noisy answers; ``barred`` takes out pairs (i, i)."""
    workloads = cross_workloads(list(relation.left), list(relation.right), k=3)[::3]
    left, right = sorted({c for w in workloads for c in w.left}), sorted({c for w in workloads for c in w.right})
    types = [RowTypes.of(x, c, shape=relation.shape) for x, c in ((relation.left, left), (relation.right, right))]
    rows = [RowTypes.each_row(x, c, shape=relation.shape) for x, c in ((relation.left, left), (relation.right, right))]
    multiplicity = np.multiply.outer(types[0].multiplicity, types[1].multiplicity).astype(float)
    each = np.ones((rows[0].rows, rows[1].rows))
    if barred:
        both = np.arange(min(each.shape))
        each[both, both] = 0.0
        np.subtract.at(multiplicity, (types[0].of_row[both], types[1].of_row[both]), 1.0)
    collapsed = LinkOperator(*types, workloads, multiplicity=multiplicity)
    full = LinkOperator(*rows, workloads, multiplicity=each)
    noise = np.random.default_rng(5).normal(size=full.mask.shape) * 0.02
    truth = np.zeros(each.shape)
    truth[relation.links[:, 0], relation.links[:, 1]] = 1.0
    answers = (full.apply(truth) / len(relation.links) + noise) * full.mask
    return collapsed, full, answers, each


RELATION = random_relation(seed=3, left_rows=25, right_rows=18, links=60, planted=5.0)


@pytest.mark.parametrize("barred", [False, True])
def test_step_size_agrees_with_the_singular_value_decomposition(barred: bool) -> None:
    collapsed, full, _, _ = problems(RELATION, barred=barred)
    exact = np.linalg.svd(full.explicit().toarray(), compute_uv=False)[0]
    for operator in (collapsed, full):
        found = largest_singular_value(operator)
        assert found.value == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("barred", [False, True])
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 10, 60])
def test_collapsed_and_uncollapsed_iterates_agree(barred: bool, accelerate: bool, iterations: int) -> None:
    collapsed, full, answers, each = problems(RELATION, barred=barred)
    links = len(RELATION.links)
    one = descend(
        collapsed,
        answers,
        CappedSimplex(collapsed.multiplicity, links),
        links=links,
        iterations=iterations,
        accelerate=accelerate,
    )
    two = descend(full, answers, CappedSimplex(each, links), links=links, iterations=iterations, accelerate=accelerate)
    expanded = one.value[collapsed.left.of_row][:, collapsed.right.of_row]
    np.testing.assert_allclose(expanded[each > 0], two.value[each > 0], atol=1e-10)
    assert one.objective == pytest.approx(two.objective, abs=1e-12)
    assert one.gap == pytest.approx(two.gap, abs=1e-10)


@pytest.mark.parametrize("kind", ["many-to-many", "one-to-many"])
def test_rate_and_feasibility(kind: str) -> None:
    """`thm::convergence`: f(b_T) - f* <= C / T against a reference optimum, every iterate feasible."""
    operator, _, answers, _ = problems(RELATION)
    weight = operator.multiplicity
    links = float(operator.left.rows) if kind == "one-to-many" else 60.0
    rows = RowSimplices(weight / operator.left.multiplicity[:, None])
    feasible = rows if kind == "one-to-many" else CappedSimplex(weight, links)
    best = descend(operator, answers, feasible, links=links, iterations=50_000, tolerance=1e-11, accelerate=True)
    assert best.converged
    start = feasible.centre()
    first = float(((operator.apply(start) / links - answers) ** 2).sum())
    for iterations in (1, 2, 3, 5, 10, 30, 100, 300):
        found = descend(operator, answers, feasible, links=links, iterations=iterations)
        distance = float((weight * (start - best.value) ** 2).sum())
        bound = (3 * distance / found.step + first - best.objective) / iterations
        assert found.objective - best.objective <= bound
        assert found.objective - best.objective <= found.gap + 1e-12
        assert found.value.min() >= 0.0
        assert found.value.max() <= 1.0
        assert abs((weight * found.value).sum() - links) <= 1e-9
        if kind == "one-to-many":
            np.testing.assert_allclose((rows.weights * found.value).sum(axis=1), 1.0, atol=1e-9)


def test_the_optimum_agrees_with_a_general_solver() -> None:
    from scipy.optimize import minimize

    relation = random_relation(seed=8, left_rows=4, right_rows=5, links=7)
    _, full, answers, each = problems(relation)
    matrix = full.explicit().toarray() / 7.0
    target = np.concatenate([x.ravel() for x in full.unstack(answers).values()])
    found = descend(
        full, answers, CappedSimplex(each, 7.0), links=7.0, iterations=20_000, tolerance=1e-11, accelerate=True
    )
    other = minimize(
        lambda b: ((matrix @ b - target) ** 2).sum(),
        np.full(20, 7 / 20),
        jac=lambda b: 2 * matrix.T @ (matrix @ b - target),
        bounds=[(0, 1)] * 20,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 7.0, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.objective == pytest.approx(other.fun, abs=1e-8)


def test_extreme_points_are_least() -> None:
    operator, _, _, _ = problems(RELATION)
    weight = operator.multiplicity
    rng = np.random.default_rng(0)
    for feasible in (CappedSimplex(weight, 60.0), RowSimplices(weight / operator.left.multiplicity[:, None])):
        gradient = rng.normal(size=weight.shape)
        least = (weight * gradient * feasible.extreme(gradient)).sum()
        np.testing.assert_allclose(feasible.project(feasible.extreme(gradient)), feasible.extreme(gradient), atol=1e-9)
        for _ in range(50):
            other = feasible.project(rng.normal(size=weight.shape))
            assert least <= (weight * gradient * other).sum() + 1e-9


def test_no_links_are_refused() -> None:
    operator, _, answers, _ = problems(RELATION)
    with pytest.raises(UsageError, match="at least one"):
        descend(operator, answers, CappedSimplex(operator.multiplicity, 0.0), links=0)


@pytest.mark.parametrize("iterations", [1, 5, 40])
def test_descent_from_links_collapses_onto_linked_and_unlinked_pairs(iterations: int) -> None:
    _, full, answers, each = problems(RELATION)
    links = len(RELATION.links)
    problem = LinkProblem(RELATION.left, RELATION.right, RELATION.shape, links=links, links_measured=links)
    block = Block.of(problem, full.workloads, links=links, current=RELATION.links)
    assert block.start is not None
    layered = LinkOperator(block.left, block.right, full.workloads, multiplicity=block.multiplicity)
    targets = layered.stack(full.unstack(answers))
    one = descend(
        layered,
        targets,
        CappedSimplex(block.multiplicity, links),
        links=links,
        start=block.start,
        iterations=iterations,
    )
    matrix = np.zeros(each.shape)
    matrix[RELATION.links[:, 0], RELATION.links[:, 1]] = 1.0
    two = descend(full, answers, CappedSimplex(each, links), links=links, start=matrix, iterations=iterations)
    expanded = one.value[matrix.astype(int), block.left.of_row[:, None], block.right.of_row[None, :]]
    np.testing.assert_allclose(expanded, two.value, atol=1e-10)
