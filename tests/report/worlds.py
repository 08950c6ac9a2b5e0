"""Small databases with everything in them, and a release made by hand so that every figure is known beforehand."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpweave.links.evidence import describe
from dpweave.links.link_method import LinkProblem
from dpweave.model.coded_database import CodedDatabase, encode
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.privacy.certificate import Certificate, Guarantee
from dpweave.privacy.release import Measured, Release
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Attribute, Bins, Categories, Opaque, View

if TYPE_CHECKING:
    from dpweave.plan.relations import Relation
    from dpweave.schema.codec import Codec


def column(name: str, kind: str, domain: Any = None, *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type.parse(kind), nullable), domain)


def shop_plan() -> Plan:
    customers = TablePlan(
        "customers",
        (
            column("id", "int64"),
            column("country", "text", Categories(("DE", "FR", "IT"), other=True)),
            column("age", "int64", Bins((0, 30, 60, 100)), nullable=True),
            column("name", "text", Opaque()),
        ),
        primary_key=("id",),
    )
    products = TablePlan(
        "products",
        (column("sku", "int64"), column("shelf", "int64"), column("kind", "text", Categories(("book", "toy")))),
        primary_key=("sku", "shelf"),
    )
    orders = TablePlan(
        "orders",
        (
            column("id", "int64"),
            column("customer", "int64"),
            column("sku", "int64", nullable=True),
            column("shelf", "int64", nullable=True),
            column("channel", "text", Categories(("app", "web"))),
            column("placed", "date", Bins((dt.date(2024, 1, 1), dt.date(2024, 7, 1), dt.date(2025, 1, 1)))),
        ),
        primary_key=("id",),
        keys=(
            KeyPlan(ForeignKey(("customer",), "customers", ("id",)), "owning", 5),
            KeyPlan(ForeignKey(("sku", "shelf"), "products", ("sku", "shelf"), "product"), "attribute"),
        ),
    )
    friends = TablePlan(
        "friends",
        (column("a", "int64"), column("b", "int64")),
        primary_key=("a", "b"),
        keys=(
            KeyPlan(ForeignKey(("a",), "customers", ("id",)), "owning", 40),
            KeyPlan(ForeignKey(("b",), "customers", ("id",)), "linking", 40),
        ),
    )
    staff = TablePlan(
        "staff",
        (
            column("id", "int64"),
            column("grade", "int64", Categories((1, 2, 3))),
            column("boss", "int64", nullable=True),
        ),
        primary_key=("id",),
        keys=(KeyPlan(ForeignKey(("boss",), "staff", ("id",)), "linking", 6),),
    )
    return Plan((customers, products, orders, friends, staff), protect=("customers", "staff"), public=("products",))


def shop(seed: int = 0, *, customers: int = 400, orders: int = 900, bond: float = 0.8) -> dict[str, pa.Table]:
    """With ``bond``, young customers order by app and app orders are toys."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 95, customers)
    buyer = rng.integers(0, customers, orders)
    follows = rng.random(orders) < bond
    app = np.where(follows, age[buyer] < 45, rng.random(orders) < 0.5)
    sku = np.arange(20) // 2 + 100
    toy = np.where(rng.random(orders) < bond, app, rng.random(orders) < 0.5)
    product = rng.integers(0, 10, orders) * 2 + toy
    lost = rng.random(orders) < 0.1
    staff = 60
    pairs = np.unique(rng.integers(1, customers + 1, (700, 2)), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    boss = rng.integers(1, staff + 1, staff)
    boss = np.where(boss == np.arange(1, staff + 1), boss % staff + 1, boss)
    return {
        "customers": pa.table(
            {
                "id": np.arange(1, customers + 1),
                "country": np.array(["DE", "FR", "IT", "PL"])[rng.choice(4, size=customers, p=[0.5, 0.3, 0.15, 0.05])],
                "age": pa.array(age, mask=rng.random(customers) < 0.05),
                "name": [f"n{i}" for i in range(customers)],
            }
        ),
        "products": pa.table(
            {"sku": sku, "shelf": np.arange(20) % 2, "kind": np.array(["book", "toy"])[np.arange(20) % 2]}
        ),
        "orders": pa.table(
            {
                "id": np.arange(orders),
                "customer": buyer + 1,
                "sku": pa.array(sku[product], mask=lost),
                "shelf": pa.array(product % 2, mask=lost),
                "channel": np.where(app, "app", "web"),
                "placed": pa.array([dt.date(2024, 1, 1) + dt.timedelta(int(d)) for d in rng.integers(0, 366, orders)]),
            }
        ),
        "friends": pa.table({"a": pairs[:, 0], "b": pairs[:, 1]}),
        "staff": pa.table(
            {
                "id": np.arange(1, staff + 1),
                "grade": rng.integers(1, 4, staff),
                "boss": pa.array(boss, mask=rng.random(staff) < 0.2),
            }
        ),
    }


@dataclass
class Made:
    """What the report reads of a model."""

    plan: Plan
    certificate: Certificate
    release: Release
    sizes: dict[str, float]
    linked: dict[tuple[str, str], float] = field(default_factory=dict)
    mechanisms: dict[str, str] = field(default_factory=dict)
    public: dict[str, pa.Table] = field(default_factory=dict)
    tables: dict[str, object] = field(default_factory=dict)

    @property
    def blueprint(self) -> SimpleNamespace:
        return SimpleNamespace(expected_rows=lambda _: self.sizes)


def certificate(*, insecure: bool = False) -> Certificate:
    return Certificate(
        epsilon=1.0,
        delta=1e-6,
        rho=0.02,
        tables=(Guarantee("customers", 0.02, 1.0, 1e-6), Guarantee("staff", 0.01, 0.7, 1e-6)),
        neighbours="entity",
        statement="Whoever sees the release can hardly tell whether one row of customers is in the database.",
        bounds=(("orders", "customer", 5),),
        owned_rows={"customers": {"customers": 1, "orders": 5}},
        events=(
            {
                "n": 1,
                "rho": {"customers": 0.02},
                "delta": {},
                "verb": "measure",
                "what": "tables:customers",
                "sigma": 3.25,
            },
        ),
        versions={"dpweave": "0"},
        database="shop",
        run="run-1",
        insecure=insecure,
    )


def model(tables: dict[str, pa.Table], *, sigma: float, seed: int = 0, plan: Plan | None = None) -> Made:
    """A model whose release holds noisy counts of ``tables``: sizes, each column, some
    pairs, and all cross-table pairs.
    """
    plan = plan or shop_plan()
    rng = np.random.default_rng(seed)
    coded = encode(plan, tables)
    release = Release()

    def measure(what: str, view: View, columns: tuple[str, ...]) -> None:
        attributes = [view.attribute[c] for c in columns]
        wanted = [*attributes, *(Attribute("", p) for p in view.linked)]
        there = np.ones(coded.rows[view.base], dtype=bool)
        for a in wanted:
            there &= coded.position(view.base, a.path) >= 0
        shape = tuple(coded.size(view.base, a) for a in attributes)
        counts = np.zeros(shape, dtype=np.int64)
        graph = plan.promise.graph
        codes = [
            coded.codes[graph.walk(view.base, a.path), a.column][np.maximum(coded.position(view.base, a.path), 0)]
            for a in attributes
        ]
        np.add.at(counts, tuple(c[there] for c in codes) if codes else (), 1 if codes else there.sum())
        noisy = counts + np.rint(rng.normal(0, sigma, shape)).astype(np.int64)
        domains = tuple(_domain(plan, graph.walk(view.base, a.path), a.column) for a in attributes)
        release.measured.append(Measured(what, view, domains, NoisyMarginal(columns, noisy, sigma or 1e-9)))

    for name in plan.promise.private:
        view = View.of_table(name, tuple(c.name for c in plan.table[name].modelled))
        measure(f"sizes:{name}", View(name, ()), ())
        for c in view.attribute:
            measure(f"tables:{name}", view, (c,))
        if len(view.columns) > 1:
            measure(f"tables:{name}", view, tuple(view.attribute)[:2])
    for relation in plan.compile().relations:
        for left, _ in relation.left:
            for right, _ in relation.right:
                measure(f"links:{relation.table}.{relation.key}", relation.view, (left, right))
        for right, _ in relation.right:
            measure(f"links:{relation.table}.{relation.key}", relation.view, (right,))
    sizes = {n: float(tables[n].num_rows) for n in plan.promise.private}
    said = tuple(judge(plan, coded, release, relation) for relation in plan.compile().relations)
    return Made(
        plan,
        replace(certificate(), evidence=said),
        release,
        sizes,
        {},
        {"customers": "mst"},
        {n: tables[n] for n in plan.public},
    )


def judge(plan: Plan, coded: CodedDatabase, release: Release, relation: Relation) -> dict[str, object]:
    """What the certificate says of a relation, each link standing for a row of either side."""
    sides = [[a for _, a in side] for side in (relation.left, relation.right)]
    codes, rows = coded.columns(relation.table, [*sides[0], *sides[1]])
    names = [n for n, _ in (*relation.left, *relation.right)]
    by_name = dict(zip(names, codes, strict=True))
    left, right = ({n: by_name[n] for n, _ in side} for side in (relation.left, relation.right))
    shape = {n: coded.size(relation.table, a) for n, a in (*relation.left, *relation.right)}
    problem = LinkProblem(left, right, shape=shape, links=len(rows), links_measured=len(rows), kind="one-to-one")
    name = f"{relation.table}.{relation.key}"
    found = describe(problem, release.find(f"links:{name}"), rng=np.random.default_rng(0))
    return {"relation": name, **found}


def _domain(plan: Plan, table: str, name: str) -> Any:

    known: dict[str, Codec] = dict(plan.compile().table[table].derived_codecs)
    return known[name].domain if name in known else plan.table[table].column[name].domain
