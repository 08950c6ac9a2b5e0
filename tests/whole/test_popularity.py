"""Rows of public tables are led to as often in the copy as in the original, where noise lets that show."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.links.map_learner import MAP
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.domain import Opaque
from tests.weaving.test_weaver import ID, KIND, assert_keys_hold, frame, key, number

USERS, PRODUCTS, ITEMS = 3000, 80, 6
KINDS = np.array(list("abc"))


def _plan(*, pure: bool = False, **more: object) -> Plan:
    """Users with items of public products; a pure junction where ``pure``."""
    own = () if pure else (ColumnPlan(ID, None), KIND)
    keys = (key("user", "users", "owning", ITEMS), key("product", "products", "attribute"))
    links = tuple(ColumnPlan(number(n, nullable=False), None) for n in ("user", "product"))
    return Plan(
        (
            TablePlan("users", (ColumnPlan(ID, None), KIND), ("id",), rows=USERS),
            TablePlan("products", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan("items", (*own, *links), ("user", "product") if pure else ("id",), keys=keys),
        ),
        protect=("users",),
        public=("products",),
        **more,  # type: ignore[arg-type]
    )


def _source(*, pure: bool = False) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, PRODUCTS + 1)
    weights = rng.permutation(weights / weights.sum())
    chosen = [
        rng.choice(PRODUCTS, ITEMS, replace=not pure, p=weights) for _ in range(USERS)
    ]  # pairs may repeat unless pure
    items = {"user": np.repeat(np.arange(USERS), ITEMS), "product": np.concatenate(chosen)}
    made = {
        "users": frame(USERS, kind=rng.choice(KINDS, USERS)),
        "products": frame(PRODUCTS, kind=rng.choice(KINDS, PRODUCTS)),
        "items": pd.DataFrame(items) if pure else frame(USERS * ITEMS, kind=rng.choice(KINDS, USERS * ITEMS), **items),
    }
    # The order of a public table's rows is its own business.
    return made | {"products": made["products"].sample(frac=1, random_state=1)}


def _shares(tables: dict[str, pd.DataFrame]) -> np.ndarray:
    return np.bincount(tables["items"]["product"].to_numpy(), minlength=PRODUCTS) / len(tables["items"])


@pytest.mark.parametrize("pure", [False, True], ids=["attributes", "pure junction"])
def test_best_sellers_stay_best_sellers(pure, tmp_path):
    plan, source = _plan(pure=pure), _source(pure=pure)
    model = dw.fit(source, plan, epsilon=2.0, delta=1e-6, insecure_seed=1)
    made = model.sample(seed=1).to_pandas()
    assert_keys_hold(plan, made)
    others = [dw.fit(source, plan, epsilon=2.0, delta=1e-6, insecure_seed=s).sample(seed=1) for s in range(2, 6)]
    off = [np.abs(_shares(m) - _shares(source)).sum() for m in (made, *(m.to_pandas() for m in others))]
    even = np.abs(1 / PRODUCTS - _shares(source)).sum()
    assert np.mean(off) < 0.2 * even
    assert set(np.argsort(-_shares(made))[:2]) == set(np.argsort(-_shares(source))[:2])
    assert model.certificate.epsilon <= 2.0
    (noisy,) = model.release.find("links:items.@product")
    (event,) = (e for e in model.certificate.events if e["what"] == "links:items.@product")
    # One user moves it by the root of her items, and no more is charged.
    assert event["rho"]["users"] == pytest.approx(ITEMS / (2 * noisy.sigma**2), rel=1e-9)
    model.save(tmp_path / "model.dpw")
    again = dw.load(tmp_path / "model.dpw").sample(seed=1).to_pandas()
    assert all(again[t].equals(made[t]) for t in made)


@pytest.mark.parametrize("pure", [False, True], ids=["attributes", "pure junction"])
def test_best_sellers_stay_so_where_no_column_tells_of_them(pure):
    bare = replace(KIND, domain=Opaque())
    plan, source = _plan(pure=pure), _source(pure=True)
    plan = replace(
        plan, tables=tuple(replace(t, columns=(t.columns[0], bare)) if t.name == "products" else t for t in plan.tables)
    )
    source["items"] = source["items"] if pure else frame(USERS * ITEMS, kind=["a"] * USERS * ITEMS, **source["items"])
    said = str(plan.explain(epsilon=1.0, delta=1e-6))
    assert "popularity of where items.product leads" in said
    model = dw.fit(source, plan, epsilon=1.0, delta=1e-6, insecure_seed=1)
    made = model.sample(seed=1).to_pandas()
    assert_keys_hold(plan, made)
    real, drawn = _shares(source), _shares(made)
    top = np.argsort(-real)[:5]
    assert np.abs(drawn[top] / real[top] - 1).max() < 0.2
    assert np.abs(drawn - real).sum() < 0.25 * np.abs(1 / PRODUCTS - real).sum()
    (noisy,) = model.release.find("links:items.@product")
    (event,) = (e for e in model.certificate.events if e["what"] == "links:items.@product")
    assert event["rho"]["users"] == pytest.approx(ITEMS / (2 * noisy.sigma**2), rel=1e-9)
    assert model.certificate.epsilon <= 1.0


def test_what_is_spent_on_targets_comes_off_the_relation():
    source = _source()
    model = dw.fit(source, _plan(), epsilon=2.0, delta=1e-6, insecure_seed=1)
    spent = {e["what"]: 0.0 for e in model.certificate.events}
    for event in model.certificate.events:
        spent[event["what"]] += event["rho"]["users"]
    both = spent["links:items.@product"] + spent["links:items.product"]
    assert 0 < spent["links:items.@product"] <= 0.25 * both * (1 + 1e-9)
    at_random = replace(_plan(), tables=tuple(_without_learning(t) for t in _plan().tables))
    other = dw.fit(source, at_random, epsilon=2.0, delta=1e-6, insecure_seed=1)
    assert "links:items.@product" not in {e["what"] for e in other.certificate.events}


def _without_learning(table: TablePlan) -> TablePlan:
    return replace(table, keys=tuple(replace(k, method="random") if k.key.name == "product" else k for k in table.keys))


def test_nothing_is_asked_where_noise_would_hide_it_or_nothing_is_proved():
    source = _source()
    faint = dw.fit(source, _plan(), epsilon=0.01, delta=1e-6, insecure_seed=1)
    record = dw.fit(source, _plan(neighbours="record", on_excess="truncate"), epsilon=2.0, delta=1e-6, insecure_seed=1)
    for model in (faint, record):
        assert not model.release.find("links:items.@product")
        assert not model.blueprint.popularity
    assert "@" not in json.dumps([e["what"] for e in record.certificate.events])


def test_rows_that_bounds_hide_weigh_less_where_links_are_learned(monkeypatch):
    """Every third user has twice as many items as are counted: in the view hers weigh
    half, and in the copy they are whole.
    """
    many = np.where(np.arange(USERS) % 3 == 0, 2 * ITEMS, ITEMS // 2)
    rng = np.random.default_rng(0)
    items = {"user": np.repeat(np.arange(USERS), many), "product": rng.integers(0, PRODUCTS, many.sum())}
    source = _source() | {"items": frame(many.sum(), kind=rng.choice(KINDS, many.sum()), **items)}
    shares = []
    ask = MAP.ask

    def listen(self, window, problem, *, degrees, **more):
        if degrees.right is None:
            shares.append((problem, degrees.left_seen))
        return ask(self, window, problem, degrees=degrees, **more)

    monkeypatch.setattr(MAP, "ask", listen)
    dw.fit(source, _plan(), epsilon=20.0, delta=1e-6, insecure_seed=2)
    ((problem, share),) = shares
    assert share.sum() == pytest.approx(np.minimum(many, ITEMS).sum(), rel=0.05)
    assert share.sum() == pytest.approx(problem.links_measured, rel=0.05)
    assert len(share) == pytest.approx(many.sum(), rel=0.05)
