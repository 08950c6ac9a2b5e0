"""A made-up shop, and the whole way from it to a synthetic copy.

The shop's rows come from a random number generator, so they are nobody's: that is why :func:`run`
may print true figures next to synthetic ones. With real data those figures would be a leak.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.errors import TargetError, UsageError
from dpweave.plan.plan import Plan
from dpweave.privacy.certificate import statement
from dpweave.progress import reporter
from dpweave.schema.domain import Categories, even_bins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import duckdb
    import pyarrow as pa

    from dpweave.plan.entries import KeyPlan
    from dpweave.privacy.certificate import Certificate
    from dpweave.schema.database import Type
    from dpweave.schema.domain import Declared

SHOP, PLAN, LEDGER, MODEL, COPY = "shop.duckdb", "plan.toml", "ledger.jsonl", "model.dpw", "copy.duckdb"
FILES = (SHOP, PLAN, LEDGER, f"{LEDGER}.lock", MODEL, COPY)
COUNTRIES = ("DE", "ES", "FR", "IT", "NL")
SEGMENTS = ("basic", "plus", "premium")
CHANNELS = ("app", "store", "web")
STATUSES = ("delivered", "open", "returned")
CATEGORIES = ("books", "electronics", "garden", "kitchen", "toys")
DEPARTMENTS = ("buying", "finance", "sales", "service", "warehouse")
ORDERS_PER_CUSTOMER, ITEMS_PER_ORDER, WISHES_PER_CUSTOMER, REPORTS_PER_MANAGER = 6, 4, 5, 3
MEASURED = {
    ("orders", "customer_id"): (2, ORDERS_PER_CUSTOMER),
    ("order_items", "order_id"): (2, ITEMS_PER_ORDER),
    ("wishlist", "customer_id"): (2, WISHES_PER_CUSTOMER),
    ("employees", "manager_id"): (REPORTS_PER_MANAGER, REPORTS_PER_MANAGER),
}
"""Per key, how many rows are measured (noise grows with them) and how many there can be (copies have as many)."""

DDL = """
CREATE TABLE products (
  product_id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price DECIMAL(8,2) NOT NULL);
CREATE TABLE customers (
  customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL, age INTEGER, segment TEXT NOT NULL,
  joined DATE NOT NULL);
CREATE TABLE orders (
  order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, placed TIMESTAMP NOT NULL,
  channel TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE order_items (
  order_id INTEGER NOT NULL REFERENCES orders, product_id INTEGER NOT NULL REFERENCES products,
  quantity INTEGER NOT NULL, gift BOOLEAN NOT NULL, PRIMARY KEY (order_id, product_id));
CREATE TABLE wishlist (
  customer_id INTEGER NOT NULL REFERENCES customers, product_id INTEGER NOT NULL REFERENCES products,
  PRIMARY KEY (customer_id, product_id));
CREATE TABLE employees (
  employee_id INTEGER PRIMARY KEY, department TEXT NOT NULL, grade INTEGER NOT NULL, salary INTEGER NOT NULL,
  manager_id INTEGER REFERENCES employees);
"""

QUESTIONS = {
    "customers": "SELECT count(*) FROM customers",
    "orders": "SELECT count(*) FROM orders",
    "order items": "SELECT count(*) FROM order_items",
    "wishes": "SELECT count(*) FROM wishlist",
    "employees": "SELECT count(*) FROM employees",
    "mean age of customers": "SELECT avg(age) FROM customers",
    "share of premium customers": "SELECT avg((segment = 'premium')::INT) FROM customers",
    "share of premium, from 66 years on": "SELECT avg((segment = 'premium')::INT) FROM customers WHERE age >= 66",
    "share of returned, store orders": "SELECT avg((status = 'returned')::INT) FROM orders WHERE channel = 'store'",
    "share of returned, web orders": "SELECT avg((status = 'returned')::INT) FROM orders WHERE channel = 'web'",
    "orders per basic customer": (
        """
        SELECT count(order_id) / count(DISTINCT c.customer_id) FROM customers c LEFT JOIN orders USING (customer_id)
        WHERE segment = 'basic'"""
    ),
    "orders per premium customer": (
        """
        SELECT count(order_id) / count(DISTINCT c.customer_id) FROM customers c LEFT JOIN orders USING (customer_id)
        WHERE segment = 'premium'"""
    ),
    "share of app orders, under 30 years": (
        """
        SELECT avg((channel = 'app')::INT) FROM orders JOIN customers USING (customer_id) WHERE age < 30"""
    ),
    "share of app orders, from 66 years on": (
        """
        SELECT avg((channel = 'app')::INT) FROM orders JOIN customers USING (customer_id) WHERE age >= 66"""
    ),
    "share of electronics, app items": (
        """
        SELECT avg((category = 'electronics')::INT) FROM order_items JOIN orders USING (order_id)
        JOIN products USING (product_id) WHERE channel = 'app'"""
    ),
    "share of electronics, store items": (
        """
        SELECT avg((category = 'electronics')::INT) FROM order_items JOIN orders USING (order_id)
        JOIN products USING (product_id) WHERE channel = 'store'"""
    ),
    "employees with a manager": "SELECT avg((manager_id IS NOT NULL)::INT) FROM employees",
    "manager is in the same department": (
        """
        SELECT avg((e.department = m.department)::INT)
          FROM employees e JOIN employees m ON e.manager_id = m.employee_id"""
    ),
}
"""Asked of both databases. From 'orders per basic customer' on, the answer lies across tables."""


@dataclass(frozen=True)
class Figure:
    """One question with the made-up database's answer and the synthetic one's."""

    question: str
    real: float | None
    synthetic: float | None


@dataclass(frozen=True)
class Demo:
    """What the demonstration did and found."""

    folder: Path
    rows: Mapping[str, int]
    certificate: Certificate
    statement: str
    figures: tuple[Figure, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {
            "folder": str(self.folder),
            "rows": dict(self.rows),
            "epsilon": self.certificate.epsilon,
            "delta": self.certificate.delta,
            "rho": {g.table: g.rho for g in self.certificate.tables},
            "statement": self.statement,
            "figures": [asdict(f) for f in self.figures],
        }

    def __str__(self) -> str:
        spent = ", ".join(f"{g.table} epsilon {g.epsilon:.4g} (rho {g.rho:.4g})" for g in self.certificate.tables)
        lines = [
            f"Who is protected. {self.statement} The products are public and copied as they are.",
            f"What was spent. {spent}, at delta {self.certificate.delta:g}.",
            "How good it is. The shop is made up, so its true figures may be shown here; with real data they may not.",
        ]
        text = "\n".join(textwrap.fill(line, 80, break_on_hyphens=False) for line in lines)
        head = f"  {'':<40} {'made up':>12} {'synthetic':>12}"
        rows = [f"  {f.question:<40} {_figure(f.real):>12} {_figure(f.synthetic):>12}" for f in self.figures]
        where = f"The shop is {self.folder / SHOP}, the copy {self.folder / COPY}, the plan {self.folder / PLAN}."
        return "\n".join([text, "", head, *rows, "", textwrap.fill(where, 80, break_long_words=False)])


def run(
    folder: str | Path,
    *,
    rows: int = 200_000,
    epsilon: float = 1.0,
    delta: float = chosen.DELTA,
    seed: int = 7,
    progress: bool | Callable[[str, float], None] = False,
) -> Demo:
    """Make the shop in ``folder``, fit it with real noise, sample it, and write the copy beside it."""
    from dpweave.fitting.fit import fit

    place = _fresh(Path(folder))
    report = reporter(progress)
    with report.step("make up a shop"):
        make_shop(place / SHOP, rows=rows)
        plan = shop_plan(place / SHOP)
        plan.save(place / PLAN)
    model = fit(
        place / SHOP, plan, epsilon=epsilon, delta=delta, ledger=place / LEDGER, label="demo", progress=progress
    )
    model.save(place / MODEL)
    with report.step("sample"):
        copy = model.sample(seed=seed)
    with report.step("write the copy"):
        copy.write(place / COPY, overwrite=True, progress=report.inside)
    sizes = {name: table.num_rows for name, table in copy.items()}
    return Demo(place, sizes, model.certificate, statement(plan.promise), compare(place / SHOP, place / COPY))


def _fresh(folder: Path) -> Path:
    """Return a folder that holds nothing but what an earlier demonstration left, which is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = sorted(p.name for p in folder.iterdir() if p.name not in FILES)
        if strangers:
            raise TargetError(f"the folder {folder} holds other files; name a new or empty one with --out")
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise TargetError(f"the folder {folder} cannot be used: {error.strerror}") from None
    return folder


def compare(real: Path, synthetic: Path) -> tuple[Figure, ...]:
    """Ask both databases the same questions."""
    import duckdb

    with duckdb.connect(str(real), read_only=True) as a, duckdb.connect(str(synthetic), read_only=True) as b:
        return tuple(Figure(q, _ask(a, sql), _ask(b, sql)) for q, sql in QUESTIONS.items())


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ask(connection: duckdb.DuckDBPyConnection, sql: str) -> float | None:
    found = connection.execute(sql).fetchone()
    value = None if found is None else found[0]
    return None if value is None or not math.isfinite(float(value)) else float(value)


# -- the plan ----------------------------------------------------------------------------------------------------------


def shop_plan(path: Path) -> Plan:
    """Draft the shop's plan from its catalogue, then declare what a shopkeeper knows without looking at rows."""
    plan = Plan.draft(path, protect=["customers", "employees"], public=["products"])
    tables = tuple(replace(table, keys=tuple(_bounded(table.name, k) for k in table.keys)) for table in plan.tables)
    plan = replace(plan, tables=tables)
    for table in tables:
        if table.name in plan.public:
            continue
        for column in table.columns:
            if (domain := _domain(table.name, column.name, column.column.type)) is not None:
                plan = plan.replace_domain(table.name, column.name, domain)
    return plan


def _bounded(table: str, key: KeyPlan) -> KeyPlan:
    """Declare how many rows are measured per target and, where rows are owned, that no more than so many occur."""
    if (bounds := MEASURED.get((table, key.key.name))) is None:
        return key
    measured, most = bounds
    return replace(key, max_degree=measured, degree_cap=most if key.role == "owning" else None)


def _domain(table: str, column: str, kind: Type) -> Declared | None:
    match table, column:
        case "customers", "country":
            return Categories(COUNTRIES)
        case "customers", "age":
            return even_bins(kind, 18, 89, 6)
        case "customers", "segment":
            return Categories(SEGMENTS)
        case "customers", "joined":
            return even_bins(kind, date(2018, 1, 1), date(2025, 12, 31), 8)
        case "orders", "placed":
            return even_bins(kind, datetime(2024, 1, 1), datetime(2025, 12, 31, 23, 59, 59), 8)
        case "orders", "channel":
            return Categories(CHANNELS)
        case "orders", "status":
            return Categories(STATUSES)
        case "order_items", "quantity":
            return even_bins(kind, 1, 5, 5)
        case "employees", "department":
            return Categories(DEPARTMENTS)
        case "employees", "grade":
            return even_bins(kind, 1, 5, 5)
        case "employees", "salary":
            return even_bins(kind, 20_000, 120_000, 5)
    return None


# -- the shop ----------------------------------------------------------------------------------------------------------


def make_shop(path: Path, *, rows: int = 200_000, seed: int = 2026) -> None:
    """Write a DuckDB file of about ``rows`` rows. What leads from table to table is planted on purpose.

    Older customers are more often premium; premium customers order more; the young order by app, and
    in the app they buy electronics; managers lead their own department and are a grade above it.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1000:
        raise UsageError(f"the demonstration needs at least 1000 rows, not {rows!r}")
    import duckdb

    tables = _tables(rows, np.random.default_rng(seed))
    with duckdb.connect(str(path)) as connection:
        connection.execute(DDL)
        for name, table in tables:
            connection.register("made_up", table)
            connection.execute(f"INSERT INTO {name} SELECT * FROM made_up")  # noqa: S608 - names are ours
            connection.unregister("made_up")


def _tables(rows: int, rng: np.random.Generator) -> list[tuple[str, pa.Table]]:
    """Tables in an order in which every reference leads to a row that is there already."""
    people = rows * 2 // 17
    products, customers = _products(200, rng), _customers(people, rng)
    orders = _orders(customers, rng)
    return [
        ("products", products),
        ("customers", customers),
        ("orders", orders),
        ("order_items", _items(orders, products, rng)),
        ("wishlist", _wishes(people, rng, products=products.num_rows)),
        *(("employees", grade) for grade in _employees(max(people // 6, 50), rng)),
    ]


def _products(count: int, rng: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    category = rng.integers(len(CATEGORIES), size=count)
    price = np.round(np.exp(rng.normal(2.5 + 0.3 * (category == 1), 0.8, count)), 2) + 0.99
    return pa.table(
        {
            "product_id": np.arange(1, count + 1),
            "name": [f"Product {i}" for i in range(1, count + 1)],
            "category": np.array(CATEGORIES)[category],
            "price": price,
        }
    )


def _customers(count: int, rng: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    age = np.clip(rng.gamma(4.0, 8.0, count) + 16, 18, 89).astype(int)
    segment = (rng.random(count) < 0.25 + 0.25 * (age >= 66)).astype(int) + (
        rng.random(count) < 0.15 + 0.40 * (age >= 66)
    )
    joined = np.datetime64("2018-01-01") + rng.integers(8 * 365, size=count)
    return pa.table(
        {
            "customer_id": np.arange(1, count + 1),
            "name": [f"Customer {i}" for i in range(1, count + 1)],
            "country": np.array(COUNTRIES)[rng.choice(len(COUNTRIES), p=[0.35, 0.15, 0.2, 0.1, 0.2], size=count)],
            "age": pa.array(age, mask=rng.random(count) < 0.05),
            "segment": np.array(SEGMENTS)[segment],
            "joined": joined,
        }
    )


def _orders(customers: pa.Table, rng: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    age = customers["age"].fill_null(45).to_numpy()
    rate = np.array([1.5, 2.8, 4.4])[np.searchsorted(SEGMENTS, customers["segment"].to_pylist())]
    number = np.minimum(rng.poisson(rate), ORDERS_PER_CUSTOMER)
    buyer = np.repeat(np.arange(customers.num_rows), number)
    count = len(buyer)
    app = rng.random(count) < np.where(age[buyer] < 30, 0.75, np.where(age[buyer] >= 66, 0.1, 0.4))
    channel = np.where(app, 0, rng.integers(1, 3, size=count))
    returned = rng.random(count) < np.where(channel == 1, 0.03, 0.15)
    return pa.table(
        {
            "order_id": np.arange(1, count + 1),
            "customer_id": buyer + 1,
            "placed": np.datetime64("2024-01-01T00:00:00") + rng.integers(2 * 365 * 86_400, size=count),
            "channel": np.array(CHANNELS)[channel],
            "status": np.array(STATUSES)[np.where(returned, 2, (rng.random(count) < 0.1).astype(int))],
        }
    )


def _items(orders: pa.Table, products: pa.Table, rng: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    number = 1 + np.minimum(rng.poisson(0.8, orders.num_rows), ITEMS_PER_ORDER - 1)
    order = np.repeat(np.arange(orders.num_rows), number)
    electronics = np.array(products["category"].to_pylist()) == "electronics"
    app = np.array(orders["channel"].to_pylist())[order] == "app"
    wanted = rng.random(len(order)) < np.where(app, 0.6, 0.1)
    product = np.where(
        wanted, rng.choice(np.flatnonzero(electronics), len(order)), rng.integers(len(electronics), size=len(order))
    )
    pairs, kept = np.unique(np.stack([order, product]), axis=1, return_index=True)
    return pa.table(
        {
            "order_id": pairs[0] + 1,
            "product_id": pairs[1] + 1,
            "quantity": np.minimum(rng.geometric(0.6, len(kept)), 5),
            "gift": rng.random(len(kept)) < 0.12,
        }
    )


def _wishes(people: int, rng: np.random.Generator, *, products: int) -> pa.Table:
    import pyarrow as pa

    number = np.minimum(rng.poisson(1.9, people), WISHES_PER_CUSTOMER)
    who = np.repeat(np.arange(people), number)
    pairs = np.unique(np.stack([who, rng.integers(products, size=len(who))]), axis=1)
    return pa.table({"customer_id": pairs[0] + 1, "product_id": pairs[1] + 1})


def _employees(count: int, rng: np.random.Generator) -> list[pa.Table]:
    """One table per grade, managers first: within a department everybody answers to somebody a grade above."""
    import pyarrow as pa

    at_grade = [max(len(DEPARTMENTS), round(count * share)) for share in (0.02, 0.05, 0.13, 0.3, 0.5)]
    tables: list[pa.Table] = []
    above = np.zeros(0, dtype=int)
    start = 1
    for grade, number in zip((5, 4, 3, 2, 1), at_grade, strict=True):
        department = np.arange(number) % len(DEPARTMENTS)
        ids = np.arange(start, start + number)
        slots = np.tile(above, -(-number // max(len(above), 1)))[:number]
        manager = pa.array(slots, pa.int64()) if len(above) else pa.nulls(number, pa.int64())
        salary = 18_000 + 14_000 * grade + rng.normal(0, 4_000, number)
        tables.append(
            pa.table(
                {
                    "employee_id": ids,
                    "department": np.array(DEPARTMENTS)[department],
                    "grade": np.full(number, grade),
                    "salary": np.clip(salary, 20_000, 120_000).astype(int),
                    "manager_id": manager,
                }
            )
        )
        above = ids[: number - number % len(DEPARTMENTS)]
        start += number
    return tables
