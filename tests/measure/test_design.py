from __future__ import annotations

import math

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.measure.cross_workloads import Workload
from dpweave.measure.design import (
    MOST_CLIQUES,
    Design,
    default_variance,
    informs,
    parts,
    predict_error,
    recommend_degree,
)
from dpweave.measure.margins import Margin
from dpweave.schema.domain import MAX_CELLS


def margins(**sizes):
    return {c: Margin(np.full(n, 1 / n)) for c, n in sizes.items()}


LEFT, RIGHT = margins(age=7, gender=2), margins(genre=9, year=4)


def solve(design, *, rho=1.0, links=1e5, l2=10.0):
    variance = np.array([default_variance(t, links) for t in design.components])
    shares = design.solve(variance, [l2] * len(design.cliques), rho=rho, links=links)
    told_ = design.precision(shares, [l2] * len(design.cliques), rho=rho, links=links)
    return shares, float(design.errors(variance, told_).mean()), variance


def test_parts_of_a_workload():
    assert len(parts(Workload(("a", "b"), ("c",)))) == 7


def test_no_clique_is_designed_that_the_curator_would_refuse():
    design = Design(margins(a=1024), margins(b=1024), k=2, favoured={Workload(("a",), ("b",)): 1.0})
    assert MAX_CELLS < 1024**2
    assert [s.columns for s in design.cliques] == [("b",), ("a",)]


def test_precision_formula_is_that_of_least_squares_on_even_margins():
    # Unit-norm contrasts of a 3 × 4 table: variance of their least-squares estimate from counts with noise 1.
    p, q = np.full(3, 1 / 3), np.full(4, 1 / 4)
    contrast = np.sqrt(3) * np.array([1, -1, 0]) / math.sqrt(2)
    effect = np.multiply.outer(contrast, np.ones(4)) * np.multiply.outer(
        p, q
    )  # what one unit of it adds to m = 1 counts
    precision = (effect**2).sum()
    sides = {"a": Margin(p), "b": Margin(q)}
    assert informs(Workload(("a",), ("b",)), Workload(("a",), ()), sides) == pytest.approx(precision)


def test_shares_are_a_distribution_and_beat_even_shares():
    design = Design(LEFT, RIGHT, k=3)
    shares, error, variance = solve(design)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    even = np.full(len(design.cliques), 1 / len(design.cliques))
    l2 = [10.0] * len(even)
    assert error < design.errors(variance, design.precision(even, l2, rho=1.0, links=1e5)).mean()


def test_more_budget_means_less_error_and_higher_orders():
    design = Design(LEFT, RIGHT, k=3)
    results = [solve(design, rho=rho) for rho in (1e-4, 1e-2, 1.0)]
    errors = [error for _, error, _ in results]
    assert errors == sorted(errors, reverse=True)
    orders = [sum(s * c.k for s, c in zip(shares, design.cliques, strict=True)) for shares, _, _ in results]
    assert orders[0] < orders[-1]


def test_what_is_known_is_not_paid_for():
    design = Design(LEFT, RIGHT, k=3, known=lambda t: not t.right)
    shares, _, _ = solve(design, rho=0.01)
    assert all(design.cliques[i].right for i in np.flatnonzero(shares))


def test_a_cheaper_clique_is_preferred():
    design = Design(margins(a=4), margins(b=4, c=4), k=2)
    variance = np.array([default_variance(t, 1e4) for t in design.components])
    l2 = [1.0 if "c" in s.columns else 30.0 for s in design.cliques]
    shares = design.solve(variance, l2, rho=1e-4, links=1e4)
    with_c = sum(s for s, clique in zip(shares, design.cliques, strict=True) if "c" in clique.columns)
    assert with_c > 0.9


def test_many_columns_lower_the_order():
    many = margins(**{f"x{i}": 2 for i in range(45)})
    design = Design(many, margins(**{f"y{i}": 2 for i in range(45)}), k=3)
    assert {w.k for w in design.workloads} == {2}


def test_columns_with_one_value_are_left_out():
    design = Design(margins(a=1, b=3), margins(c=2), k=2)
    assert {w.columns for w in design.workloads} == {("b", "c")}
    assert Design(margins(a=1), margins(c=2), k=2).cliques == []


def test_prediction_follows_public_facts():
    facts = {"k": 2, "rho": 0.05, "l2": 10.0, "links": 20_000}
    base = predict_error({"age": 7}, {"genre": 9}, **facts)
    assert 0 < base.learned < base.at_random
    assert predict_error({"age": 7}, {"genre": 9}, **{**facts, "l2": 100.0}).learned > base.learned
    assert predict_error({"age": 7}, {"genre": 9}, **{**facts, "links": 10**6}).learned < base.learned
    assert sum(share for _, share in base.cliques) == pytest.approx(1)


def test_prediction_is_never_worse_than_the_worst():
    sizes = {f"c{i}": 40 for i in range(3)}
    found = predict_error(sizes, {f"d{i}": 40 for i in range(3)}, k=3, rho=1e-9, l2=100.0, links=10)
    assert 0 < found.learned <= found.at_random <= 2.0


def test_recommended_order_grows_with_budget():
    orders = [
        predict_error({"a": 5, "b": 8}, {"c": 6, "d": 2}, k=3, rho=rho, l2=10.0, links=1e5).order
        for rho in (1e-5, 1e-2, 10.0)
    ]
    assert orders == sorted(orders)
    assert orders[0] == 2
    assert orders[-1] == 3


def test_recommended_bound_grows_with_budget():
    facts = {"k": 2, "rows": 6000, "links": 10**6}
    low = recommend_degree({"age": 7}, {"genre": 9}, rho=0.001, **facts)
    high = recommend_degree({"age": 7}, {"genre": 9}, rho=10.0, **facts)
    assert 1 <= low < high


def test_margins_are_distributions():
    with pytest.raises(UsageError, match="distribution"):
        Margin(np.array([0.5, 0.6]))
    assert Margin.of(np.array([0, 0, 1]), np.ones(3), 3).p[2] > 0


def test_a_favoured_workload_gets_a_larger_part_and_a_smaller_error():
    wanted = Workload(("age",), ("year",))
    plain = Design(LEFT, RIGHT, k=2)
    first = Design(LEFT, RIGHT, k=2, favoured={wanted: 1.0})
    assert first.workloads == plain.workloads

    def part_and_error(design):
        shares, _, variance = solve(design, rho=1e-3)
        told_ = design.precision(shares, [10.0] * len(design.cliques), rho=1e-3, links=1e5)
        errors = dict(zip(design.workloads, design.errors(variance, told_), strict=True))
        return sum(s for s, c in zip(shares, design.cliques, strict=True) if c == wanted), errors[wanted]

    (before, error), (after, less) = part_and_error(plain), part_and_error(first)
    assert after >= 0.5 > before
    assert less < error
    both = Design(LEFT, RIGHT, k=2, favoured={wanted: 1.0, Workload(("gender",), ("genre",)): 2.0})
    assert both.reserved.sum() == pytest.approx(0.75)
    assert solve(both, rho=1e-3)[0].sum() == pytest.approx(1.0)


def test_a_favoured_workload_may_have_more_columns_than_k():
    wanted = Workload(("age", "gender"), ("year", "genre"))
    design = Design(LEFT, RIGHT, k=2, favoured={wanted: 5.0})
    assert Workload(("age", "gender"), ("genre", "year")) in design.workloads
    assert any(c.k == 4 for c in design.cliques)


def test_a_small_column_among_many_large_ones_is_measured():
    """Its cliques need little, each less than a five-hundredth, and there is nothing else to learn it from."""
    rights = {f"r{i}": Margin(np.full(2, 0.5)) for i in range(18)}
    lefts = {"sex": Margin(np.full(2, 0.5))} | {f"l{i}": Margin(np.full(20, 0.05)) for i in range(3)}
    design = Design(lefts, rights, k=3)
    variance = np.array([default_variance(t, 1e6) for t in design.components])
    shares = design.solve(variance, [100.0] * len(design.cliques), rho=1e-2, links=1e6)
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).sum() <= MOST_CLIQUES
    informs = {c for s, share in zip(design.cliques, shares, strict=True) if share and "sex" in s.left for c in s.right}
    assert informs == set(rights)
