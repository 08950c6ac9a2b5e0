"""Rows of which some lead nowhere further on: products without a category, children without a father at home."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.links.degrees import UNKNOWN
from dpweave.links.fit_inputs import FitInputs, Stage
from dpweave.links.link_method import LinkProblem
from dpweave.model.coded_database import encode
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.privacy.window import NoisyMarginal
from dpweave.report.fidelity import _columns, _link_measurements, _seen_codec, fidelity
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Attribute, Categories

ID = Column("id", Type("integer"), nullable=False)
CUSTOMERS, PRODUCTS = 2000, 60


def values(name: str, count: int) -> ColumnPlan:
    return ColumnPlan(Column(name, Type("integer"), nullable=False), Categories(tuple(range(count))))


def number(name: str, *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type("integer"), nullable=nullable), None)


def key(column: str, target: str, role: str, bound: int | None = None) -> KeyPlan:
    return KeyPlan(ForeignKey((column,), target, ("id",)), role, bound)  # type: ignore[arg-type]


def shop() -> Plan:
    """Orders of products, some of which have a category."""
    product = TablePlan(
        "product",
        (ColumnPlan(ID, None), values("price", 4), number("category", nullable=True)),
        ("id",),
        keys=(key("category", "category", "attribute"),),
    )
    order = TablePlan(
        "orders",
        (ColumnPlan(ID, None), number("customer"), number("product")),
        ("id",),
        keys=(key("customer", "customer", "owning", 8), key("product", "product", "attribute")),
    )
    customer = TablePlan("customer", (ColumnPlan(ID, None), values("kind", 3)), ("id",))
    category = TablePlan("category", (ColumnPlan(ID, None), values("group", 2)), ("id",))
    return Plan((category, product, customer, order), protect=("customer",), public=("category", "product"))


def sold() -> dict[str, pd.DataFrame]:
    """Who is of a higher kind buys dearer products; most of what is sold has no category."""
    rng = np.random.default_rng(0)
    price, kind = np.arange(PRODUCTS) % 4, rng.integers(0, 3, CUSTOMERS)
    category = np.where(rng.random(PRODUCTS) < 0.6, np.nan, rng.integers(0, 4, PRODUCTS))
    owner = np.repeat(np.arange(CUSTOMERS), rng.integers(0, 6, CUSTOMERS))
    weight = np.exp(0.8 * np.multiply.outer(kind - 1, price - 1.5)) * np.where(np.isnan(category), 2.0, 0.5)
    draw = rng.random(len(owner))[:, None] > (np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True))[owner]
    return {
        "category": pd.DataFrame({"id": np.arange(4), "group": np.arange(4) % 2}),
        "product": pd.DataFrame({"id": np.arange(PRODUCTS), "price": price, "category": category}),
        "customer": pd.DataFrame({"id": np.arange(CUSTOMERS), "kind": kind}),
        "orders": pd.DataFrame({"id": np.arange(len(owner)), "customer": owner, "product": draw.sum(axis=1)}),
    }


def table(rows: dict[str, pd.DataFrame]) -> np.ndarray:
    """Shares of orders by the customer's kind, the product's price and whether it has a category."""
    order = rows["orders"].merge(rows["customer"], left_on="customer", right_on="id")
    order = order.merge(rows["product"], left_on="product", right_on="id", suffixes=("", "_product"))
    out = np.zeros((3, 4, 2))
    np.add.at(out, (order.kind, order.price, order.category.isna().astype(int)), 1 / len(order))
    return out


def test_orders_of_products_without_a_category_count() -> None:
    """They used to be left out wherever a column of the category was looked at: of what was left, all was inferred."""
    source = sold()
    model = dw.fit(source, shop(), epsilon=20.0, delta=1e-6, insecure_seed=0)
    copy, real = table(model.sample(seed=0).to_pandas()), table(source)
    assert copy[..., 1].sum() == pytest.approx(real[..., 1].sum(), abs=0.02)
    assert np.abs(copy - real).sum() < 0.08


@pytest.mark.parametrize("all_linked", [True, False])
def test_a_report_counts_them_as_the_release_does(all_linked: bool) -> None:
    """In the copy as in the release, a category that is not there is null, and orders
    of no product do not count: what was counted and what is there agree.
    """
    plan, source = shop(), sold()
    if not all_linked:
        orders = plan.tables[3]
        columns = (*orders.columns[:2], number("product", nullable=True), values("size", 2))
        plan = replace(plan, tables=(*plan.tables[:3], replace(orders, columns=columns)))
        odd = np.arange(len(source["orders"])) % 2
        source["orders"]["product"] = source["orders"]["product"].where(odd == 1)
        source["orders"]["size"] = odd // 2
    model = dw.fit(source, plan, epsilon=20.0, delta=1e-6, insecure_seed=0)
    db = model.sample(seed=0)
    coded = encode(model.plan, db)
    (relation,) = (r for r in model.plan.compile().relations if r.key == "product")
    group = Attribute("group", ("product", "category"))
    codec = _seen_codec(model, relation, group)
    assert (codec.size, codec.null_code) == (3, 2)
    (codes,), rows = _columns(model, coded, relation, [group])
    assert len(rows) == db["orders"].num_rows - db["orders"]["product"].null_count
    (shown,) = (r for r in fidelity(model, db).relations if r.key == "product")
    assert shown.pairs
    for pair in shown.pairs:
        assert pair.synthetic.sum() == len(rows), (pair.left, pair.right)
    name = relation_name(relation, group)
    found = [m for m in _link_measurements(model, coded, relation) if m.columns[-1:] == (name,)]
    assert found
    shares = found[0].counts.reshape(-1, 3).sum(axis=0) / found[0].counts.sum()
    assert shares == pytest.approx(np.bincount(codes, minlength=3) / len(codes), abs=0.03)


def relation_name(relation, attribute: Attribute) -> str:
    return next(n for n, a in (*relation.left, *relation.right) if a == attribute)


@pytest.mark.parametrize(
    ("total", "sigma", "scaled"), [(40, 0.01, 100.0), (80, 0.01, 100.0), (40, 1e4, 80.0), (80, 1e4, 160.0)]
)
def test_counts_of_the_links_that_lead_further_stand_for_all(total: int, sigma: float, scaled: float) -> None:
    """Of rows, half have a father; of the links that were counted it is told by their
    number, as far as noise lets it.
    """
    rows = {"father.age": np.arange(100) % 2}, {"kind": np.arange(40) % 2}
    problem = LinkProblem(
        *rows,
        shape={"father.age": 2, "kind": 2},
        links=100,
        links_measured=100.0,
        kind="one-to-many",
        presence={"father.age": ("father", 0.5)},
    )
    scene = FitInputs.of(problem, UNKNOWN)
    measured = NoisyMarginal(("father.age", "kind"), np.full((2, 2), total // 4), sigma)
    stage = Stage.of(scene, [measured], np.random.default_rng(0))
    (counted,) = stage.tables.values()
    assert counted.y.sum() == pytest.approx(scaled, rel=0.01)
    assert counted.weight == pytest.approx((total / scaled / sigma) ** 2, rel=0.02)
    assert stage.links == 100.0  # which such counts do not tell


def test_rows_that_lead_nowhere_have_codes_like_the_others() -> None:
    """Half of the children have a father; what their mothers are like goes with what he is like."""
    rng = np.random.default_rng(0)
    person = TablePlan(
        "person",
        (ColumnPlan(ID, None), values("kind", 3), number("father", nullable=True), number("mother", nullable=True)),
        ("id",),
        keys=(key("father", "person", "linking", 4), key("mother", "person", "linking", 4)),
    )
    count = 3000
    kind, couple = np.zeros(3 * count, dtype=int), rng.integers(1, 3, count)
    kind[count : 2 * count] = kind[2 * count :] = couple
    child = np.arange(3 * count) < count
    rows = pd.DataFrame({"id": np.arange(3 * count), "kind": kind})
    rows["father"] = np.where(child & (rows.id % 2 == 0), rows.id + count, np.nan)
    rows["mother"] = np.where(child, rows.id + 2 * count, np.nan)
    model = dw.fit({"person": rows}, Plan((person,), protect=("person",)), epsilon=20.0, delta=1e-6, insecure_seed=0)
    made = model.sample(seed=0).to_pandas()["person"].set_index("id")
    both = made.dropna(subset=["father", "mother"])
    fathers, mothers = (made.kind.loc[both[k].astype(int)].to_numpy() for k in ("father", "mother"))
    assert (mothers > 0).mean() > 0.95
    assert (fathers == mothers).mean() > 0.8  # by chance one half
    alone = made[made.father.isna() & made.mother.notna()]
    assert 0.4 < (made.kind.loc[alone.mother.astype(int)] == 1).mean() < 0.6
