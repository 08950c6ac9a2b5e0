"""Conversion against an independent 50-digit computation, exact sums, and the side every rounding falls on."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpweave.errors import UsageError
from dpweave.privacy.accounting import (
    Budget,
    Cost,
    epsilon_of_rho,
    gaussian_rho,
    gaussian_sigma,
    require_number,
    rho_of_epsilon,
    round_down,
    round_up,
    selection_rho,
    selection_scale,
    split,
    subtract,
)

DELTAS = (1e-15, 1e-12, 1e-9, 1e-6, 1e-5, 1e-3, 0.05, 0.5)
EPSILONS = (1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0, 1e3)


def oracle_epsilon(rho: float, delta: float) -> mp.mpf:
    """Golden-section search on the published formula, in log(alpha - 1), with 50 digits."""
    with mp.workdps(50):
        rho, delta = mp.mpf(rho), mp.mpf(delta)

        def epsilon(x: mp.mpf) -> mp.mpf:
            alpha = 1 + mp.exp(x)
            return alpha * rho + (mp.log(1 / delta) - mp.log(alpha - 1) + alpha * mp.log(1 - 1 / alpha)) / (alpha - 1)

        ratio = (mp.sqrt(5) - 1) / 2
        low, high = mp.mpf(-40), mp.mpf(80)
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at_left, at_right = epsilon(left), epsilon(right)
        while high - low > mp.mpf(10) ** -14:
            if at_left < at_right:
                high, right, at_right = right, left, at_left
                left = high - ratio * (high - low)
                at_left = epsilon(left)
            else:
                low, left, at_left = left, right, at_right
                right = low + ratio * (high - low)
                at_right = epsilon(right)
        return max(mp.mpf(0), epsilon((low + high) / 2))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_conversion_agrees_with_oracle_on_the_safe_side(epsilon: float, delta: float) -> None:
    rho = rho_of_epsilon(epsilon, delta=delta)
    claimed, true = epsilon_of_rho(rho, delta=delta), oracle_epsilon(rho, delta)
    assert true <= claimed <= epsilon
    assert claimed <= true * (1 + 1e-6)
    # rho is the largest: a millionth more would pass epsilon
    assert oracle_epsilon(rho * (1 + 1e-6), delta) > epsilon


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", [1e-12, 1e-8, 1e-5, 1e-3, 0.03, 0.5, 1.0, 7.0, 500.0])
def test_epsilon_never_below_oracle(rho: float, delta: float) -> None:
    claimed, true = epsilon_of_rho(rho, delta=delta), oracle_epsilon(rho, delta)
    assert claimed >= true
    assert claimed <= true * (1 + 1e-6) + mp.mpf(10) ** -12


def test_extreme_arguments_do_not_break() -> None:
    assert epsilon_of_rho(0, delta=1e-6) == 0.0
    assert 0 <= epsilon_of_rho(1e-320, delta=5e-324) < 1e-100
    assert epsilon_of_rho(1.0, delta=math.nextafter(1, 0)) == 0.0
    assert 1e299 <= epsilon_of_rho(1e299, delta=0.5) < math.inf
    assert 1e299 <= epsilon_of_rho(1e299, delta=5e-324) < math.inf


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.sampled_from(DELTAS))
def test_epsilon_grows_with_rho_and_stays_below_the_simple_bound(a: float, b: float, delta: float) -> None:
    low, high = sorted((a, b))
    assert epsilon_of_rho(low, delta=delta) <= epsilon_of_rho(high, delta=delta) * (1 + 1e-12) + 1e-13
    simple = high + 2 * math.sqrt(-high * math.log(delta))  # Bun and Steinke 2016, Prop. 1.3
    assert epsilon_of_rho(high, delta=delta) <= simple * (1 + 1e-12)


def test_rho_of_a_vanishing_epsilon_is_found_or_zero() -> None:
    assert rho_of_epsilon(1e-300, delta=5e-324) == 0.0
    rho = rho_of_epsilon(1e-300, delta=1e-6)
    assert rho > 0
    assert epsilon_of_rho(rho, delta=1e-6) <= 1e-300


def test_two_tables_and_links_cost_less_than_the_papers_sum() -> None:
    delta = 1e-5
    table, links = (rho_of_epsilon(e, delta=delta) for e in (1.0, 2.0))
    assert epsilon_of_rho(table + links, delta=delta) < 1.0 + 1.0 + 2.0


def test_conversion_is_fast() -> None:
    start = time.perf_counter()
    for epsilon in EPSILONS:
        for delta in DELTAS:
            rho_of_epsilon(epsilon, delta=delta)
    assert (time.perf_counter() - start) / (len(EPSILONS) * len(DELTAS)) < 0.02  # 0.4 ms on an idle machine


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, True, "1", None, 10**400, Fraction(1, 3), 1e7])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(UsageError, match=r"epsilon is .* must be greater than 0"):
        rho_of_epsilon(epsilon, delta=1e-6)


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 1.5, math.nan, math.inf, False])
@pytest.mark.parametrize("convert", [epsilon_of_rho, rho_of_epsilon])
def test_bad_delta(convert, delta: float) -> None:
    with pytest.raises(UsageError, match=r"delta is .* greater than 0 and less than 1"):
        convert(1.0, delta=delta)


@pytest.mark.parametrize("rho", [-1e-9, -0.5, math.nan, math.inf, "x"])
def test_bad_rho(rho: float) -> None:
    with pytest.raises(UsageError, match=r"rho is .* must be at least 0"):
        epsilon_of_rho(rho, delta=1e-6)


def test_require_number_returns_a_float() -> None:
    assert require_number("x", 3, low=0) == 3.0
    assert isinstance(require_number("x", 3, low=0), float)
    with pytest.raises(UsageError, match="x is 0, but must be greater than 0 and finite; give such a number"):
        require_number("x", 0, low=0)


rationals = st.fractions(min_value=0, max_value=10**6, max_denominator=10**9)


@given(rationals)
def test_rounding_is_tight(x: Fraction) -> None:
    up, down = round_up(x), round_down(x)
    assert Fraction(down) <= x <= Fraction(up)
    assert up in (down, math.nextafter(down, math.inf))


def test_rounding_beyond_floats() -> None:
    assert round_up(Fraction(10**400)) == math.inf
    assert round_down(Fraction(-(10**400))) == -math.inf


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_subtract_rounds_down(total: float, spent: float) -> None:
    left = subtract(total, spent)
    exact = Fraction(total) - Fraction(spent)
    assert left == 0 if exact <= 0 else Fraction(left) <= exact
    assert left >= 0


scales = st.floats(1e-6, 1e9)


@given(scales, scales)
def test_gaussian_rho_rounds_up(sensitivity: float, sigma: float) -> None:
    exact = (Fraction(sensitivity) / Fraction(sigma)) ** 2 / 2
    cost = gaussian_rho(sensitivity, sigma)
    assert exact <= Fraction(cost)
    assert math.nextafter(cost, 0) < exact
    assert selection_rho(sensitivity, sigma) == cost


@given(scales, st.floats(1e-12, 1e6))
def test_gaussian_sigma_is_the_smallest_that_fits(sensitivity: float, rho: float) -> None:
    for scale, cost in ((gaussian_sigma, gaussian_rho), (selection_scale, selection_rho)):
        sigma = scale(sensitivity, rho)
        assert cost(sensitivity, sigma) <= rho
        assert cost(sensitivity, sigma * (1 - 1e-12)) > rho
        assert sigma == pytest.approx(sensitivity / math.sqrt(2 * rho))


def test_selection_cost_is_eps_squared_over_eight() -> None:
    sensitivity, scale = 3.0, 2.0
    epsilon = 2 * sensitivity / scale
    assert selection_rho(sensitivity, scale) == epsilon**2 / 8


@pytest.mark.parametrize("cost", [gaussian_rho, selection_rho])
def test_costs_validate(cost) -> None:
    assert cost(0.0, 1.0) == 0.0
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="sensitivity is"):
            cost(bad, 1.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="scale is"):
            cost(1.0, bad)


@pytest.mark.parametrize("scale", [gaussian_sigma, selection_scale])
def test_scales_validate(scale) -> None:
    for sensitivity, rho in ((0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, -1.0), (1.0, math.inf)):
        with pytest.raises(UsageError, match=r"is .*, but must be greater than 0"):
            scale(sensitivity, rho)
    with pytest.raises(UsageError, match="no float is a noise scale"):
        scale(1e308, 1e-300)


@given(st.floats(0, 1e6).filter(lambda x: x == 0 or x > 1e-200), st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_split_never_exceeds_and_loses_nothing(total: float, weights: list[float]) -> None:
    if not any(weights):
        weights = [*weights, 1.0]
    parts = split(total, weights)
    assert len(parts) == len(weights)
    exact = sum(map(Fraction, parts))
    assert exact <= Fraction(total)
    assert exact >= Fraction(total) * (1 - Fraction(1, 10**12))
    for part, weight in zip(parts, weights, strict=True):
        share = Fraction(total) * Fraction(weight) / sum(map(Fraction, weights))
        assert math.isclose(part, float(share), rel_tol=1e-12, abs_tol=1e-300)


def test_split_validates() -> None:
    for weights in ([], [0.0, 0.0]):
        with pytest.raises(UsageError, match="add up to 0"):
            split(1.0, weights)
    with pytest.raises(UsageError, match="weight is -1"):
        split(1.0, [1.0, -1.0])
    with pytest.raises(UsageError, match="total is nan"):
        split(math.nan, [1.0])


amounts = st.dictionaries(st.sampled_from(["users", "movies", "shops"]), st.floats(0, 1e3), max_size=3)
costs = st.builds(Cost, amounts, amounts)


@given(st.lists(costs, max_size=12))
def test_cost_sums_are_exact(parts: list[Cost]) -> None:
    total = sum(parts, start=Cost.zero())
    for kind, exact_amounts in zip(("rho", "delta"), total.exact, strict=True):
        for table in ("users", "movies", "shops"):
            exact = sum(Fraction(getattr(part, kind).get(table, 0.0)) for part in parts)
            assert exact_amounts.get(table, Fraction()) == exact
            assert getattr(total, kind).get(table, 0.0) == round_up(exact)
    assert sum(reversed(parts), start=Cost.zero()) == total
    assert total.tables == tuple(
        sorted(t for t in ("users", "movies", "shops") if any(t in part.tables for part in parts))
    )


@given(st.floats(1e-6, 100), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_a_budget_can_be_spent_to_its_last_digit_and_no_further(rho: float, weights: list[float]) -> None:
    budget = Budget(rho, 1e-6)
    spent = sum((Cost({"users": part}, {}) for part in split(rho, weights)), start=Cost.zero())
    assert budget.allows(spent)
    left = budget.left("users", spent=spent).rho
    assert left <= rho * 1e-12
    assert budget.allows(spent + Cost({"users": left}, {}))
    assert not budget.allows(spent + Cost({"users": left}, {}) + Cost({"users": rho * 1e-12}, {}))


def test_budget_is_exact_where_floats_are_not() -> None:
    tenth = Cost({"users": 0.1}, {"users": 0.1})
    ten = sum([tenth] * 10, start=Cost.zero())
    assert sum([0.1] * 10) < 1.0  # floats would let an eleventh crumb through
    assert not Budget(1.0, 0.9).allows(ten)
    assert not Budget(1.0, 0.999).allows(tenth + ten)
    assert ten.rho["users"] > 1.0  # 0.1 as a float is a little more than a tenth
    assert Budget(1.0, 0.5).exceeded(ten + Cost({"movies": 2.0}, {})) == ("movies", "users")
    assert Budget(2.0, 0.5).exceeded(Cost({"a": 1.0}, {"b": 0.6})) == ("b",)
    assert Budget(0.0, 0.0).allows(Cost.zero())
    assert Budget(1.0).allows(Cost({"users": 1.0}, {}))
    assert not Budget(1.0).allows(Cost({"users": 1.0}, {}) + Cost({"users": 1e-30}, {}))  # a float sum would be 1.0


def test_cost_and_budget_validate() -> None:
    for bad in (-1e-300, math.nan, math.inf, None, "1", True):
        with pytest.raises(UsageError, match="rho of table 'users' is"):
            Cost({"users": bad}, {})
        with pytest.raises(UsageError, match="delta of table 'users' is"):
            Cost({}, {"users": bad})
        with pytest.raises(UsageError, match="rho of the budget"):
            Budget(bad, 0.0)
        with pytest.raises(UsageError, match="delta of the budget"):
            Budget(1.0, bad)
    with pytest.raises(UsageError, match="delta of the budget"):
        Budget(1.0, 1.0)
    with pytest.raises(UsageError, match="rho of table"):
        Cost({"users": 1.7e308}, {}) + Cost({"users": 1.7e308}, {})


def test_cost_is_frozen() -> None:
    rho = {"users": 1.0}
    cost = Cost(rho, {})
    rho["users"] = 0.0
    assert cost.rho["users"] == 1.0
    with pytest.raises(TypeError):
        cost.rho["users"] = 0.0
    with pytest.raises(AttributeError):
        cost.rho = {}
