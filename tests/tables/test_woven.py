from __future__ import annotations

import numpy as np
import pytest

from dpweave.tables.base import Structure, table_model
from dpweave.tables.woven import WovenTable
from tests.windows import ArrayWindow

SHAPE = {"a": 2, "b": 3, "c": 8}


def window(seed=0, rows=5_000):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, rows)
    c = np.where(rng.random(rows) < 0.5, a * 4, rng.integers(0, 8, rows))
    return ArrayWindow({"a": a, "b": rng.integers(0, 3, rows), "c": c}, SHAPE, seed=seed)


def fit(asked, rho=0.05, **structure) -> WovenTable:
    model = table_model("woven").fit(
        asked, rho=rho, rows=5_000.0, structure=Structure(**structure), progress=lambda _what, _share: None
    )
    assert isinstance(model, WovenTable)
    assert asked.spent == pytest.approx(rho, rel=1e-9)
    return model


def sigmas(model):
    return {m.columns: m.sigma for pairs in model.pairs for m in pairs}


def test_what_weighs_more_is_measured_better():
    even = sigmas(fit(window()))
    heavy = sigmas(fit(window(), workload={("c", "a"): 20.0, ("b", "a"): 1.0, ("b", "c"): 1.0}))
    assert even.keys() == heavy.keys() == {("a", "b"), ("a", "c"), ("b", "c")}
    assert heavy["a", "c"] < even["a", "c"]
    assert heavy["b", "c"] / heavy["a", "c"] == pytest.approx((20 * 16 / 24) ** (1 / 3), rel=1e-6)


def test_a_larger_set_lends_its_weight_to_its_pairs_and_no_column_is_forgotten():
    asked = window()
    fit(asked, workload={("c", "a"): 1.0})
    assert set(asked.asked[-1].cliques) == {("a", "c"), ("b",)}
    asked = window()
    fit(asked, workload={("a", "b", "c"): 2.0})
    assert set(asked.asked[-1].cliques) == {("a", "b"), ("a", "c"), ("b", "c")}


def test_what_links_see_counts_as_much_as_all_the_rest():
    even = sigmas(fit(window()))
    linked = sigmas(fit(window(), linked={("b", "a"): 6.0, ("c", "a"): 6.0, ("b", "c", "a"): 1.0}))
    assert even.keys() == linked.keys()
    assert linked["a", "b"] < even["a", "b"]
    assert linked["a", "c"] < even["a", "c"]
    assert linked["b", "c"] > even["b", "c"]


def test_columns_are_told_by_every_marginal_they_are_in():
    model = fit(window())
    pairs = [m for pairs in model.pairs for m in pairs if "a" in m.columns]
    (single,) = [s for s in model.singles if s.columns == ("a",)]
    assert single.sigma < min(m.sigma * np.sqrt(m.counts.size / 2) for m in pairs)


def test_a_clear_dependence_is_kept():
    made = fit(window(), rho=1.0).sample(5_000, np.random.default_rng(0))
    agree = np.mean(made["c"] == made["a"] * 4)
    assert agree == pytest.approx(0.5 + 0.5 / 8, abs=0.05)
