"""Ranges of numbers, dates and times that are learned: they hold the rows, or say that they do not.

Columns are made up, with all that is true about them known. Where the table has ten times the rows that noise
hides, a range is learned well and holds nine tenths of the rows; elsewhere it says so, and stays within reason.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave import chosen
from dpweave.budget.allocation import allocate
from dpweave.budget.tasks import Task
from dpweave.cli.screen import spent_words
from dpweave.engines.opening import open_source
from dpweave.fitting.fit import _learn_domain
from dpweave.privacy.accounting import Budget, rho_of_epsilon
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Bins, Learn, to_axis
from dpweave.tables.domains.learned_ranges import Look, body, learn_bins, rows_needed, seldom_crossed

INTEGER, FLOAT, DATE, STAMP = Type("integer"), Type("float"), Type("date"), Type("timestamp")
MONEY, TIME = Type("decimal", precision=12, scale=2), Type("time")
CODES, SHARES = [1, 18, 25, 35, 45, 50, 56], np.array([222, 1103, 2096, 1193, 550, 496, 380]) / 6040


def day(year, month=1, of=1):
    return to_axis(DATE, date(year, month, of))


COLUMNS = {
    "births": (DATE, lambda n, g: g.integers(day(1915), day(1987), n)),
    "a week": (DATE, lambda n, g: g.integers(day(2021, 3, 1), day(2021, 3, 8), n)),
    "loans": (DATE, lambda n, g: g.integers(day(1993, 7), day(1998, 12), n)),
    "150 years": (DATE, lambda n, g: g.integers(day(1870), day(2020), n)),
    "moments": (STAMP, lambda n, g: g.integers(day(2019) * 86_400, day(2021) * 86_400, n)),
    "moments of a day": (STAMP, lambda n, g: g.integers(day(2019, 5, 5) * 86_400, day(2019, 5, 6) * 86_400, n)),
    "ages": (INTEGER, lambda n, g: g.integers(18, 91, n)),
    "lognormal": (INTEGER, lambda n, g: np.rint(g.lognormal(8.5, 1.0, n)).astype(np.int64)),
    "lognormal floats": (FLOAT, lambda n, g: g.lognormal(3.0, 1.5, n)),
    "pareto": (FLOAT, lambda n, g: (g.pareto(1.2, n) + 1) * 10),
    "money": (MONEY, lambda n, g: np.rint(g.lognormal(4.0, 0.8, n) * 100).astype(np.int64)),
    "constant": (INTEGER, lambda n, g: np.full(n, 42)),
    "large constant": (INTEGER, lambda n, g: np.full(n, 123_456)),
    "two clusters": (INTEGER, lambda n, g: np.where(g.random(n) < 0.5, g.integers(0, 10, n), g.integers(1e6, 2e6, n))),
    "codes": (INTEGER, lambda n, g: g.choice(CODES, n, p=SHARES)),
    "years": (INTEGER, lambda n, g: g.integers(1980, 2024, n)),
    "negative": (INTEGER, lambda n, g: g.integers(-500, -100, n)),
    "balances": (INTEGER, lambda n, g: np.rint(g.normal(2000, 8000, n)).astype(np.int64)),
    "parts of one": (FLOAT, lambda n, g: g.beta(2, 5, n)),
    "mostly zero": (
        INTEGER,
        lambda n, g: np.where(g.random(n) < 0.8, 0, np.rint(g.lognormal(7, 1, n))).astype(np.int64),
    ),
    "small integers": (Type("integer", bits=8), lambda n, g: g.integers(60, 127, n)),
    "time of day": (TIME, lambda n, g: np.clip(np.rint(g.normal(46_800, 10_800, n)), 0, 86_399).astype(np.int64)),
    "nothing": (INTEGER, lambda n, g: np.zeros(0)),
}


def counter(kind, values, seed):
    """Counts of ``values`` with the noise that one row in one cell needs, the same for the same seed."""
    rng = np.random.default_rng(seed)

    def measure(bins: Bins, rho: float) -> NoisyMarginal:
        sigma = 1 / math.sqrt(2 * rho)
        counts = np.bincount(cells_of(kind, bins, values), minlength=bins.cells)
        return NoisyMarginal(("x",), np.rint(counts + rng.normal(0, sigma, bins.cells)).astype(np.int64), sigma)

    return measure


def cells_of(kind, bins, values):
    axis = np.array([to_axis(kind, e) for e in bins.edges])
    return np.clip(np.searchsorted(axis, values, side="right") - 1, 0, bins.cells - 1)


def coverage(kind, bins, values):
    low, high = (to_axis(kind, e) for e in (bins.edges[0], bins.edges[-1]))
    return float(((low <= values) & (values <= high if kind.kind in ("float", "time") else values < high)).mean())


def copied(kind, bins, values, seed):
    """Values drawn for the bins of real ones, on the number line."""
    made = Codec(Column("x", kind, nullable=False), bins).decode(
        cells_of(kind, bins, values), np.random.default_rng(seed)
    )
    return np.array([to_axis(kind, v) for v in made.to_pylist()], dtype=np.float64)


# -- the rule ----------------------------------------------------------------------------------------------------------

SEEDS = 6


@pytest.mark.parametrize("name", COLUMNS)
def test_a_range_holds_nine_tenths_of_the_rows_or_says_that_it_may_not(name):
    """50 to 100,000 rows, epsilon 0.1 to 4, a column's share of a drafted plan with six learned columns.

    Ten times the rows that noise hides, give or take five standard deviations of that
    count, decide what is learned well.
    """
    kind, make = COLUMNS[name]
    held = []
    for rows in (50, 600, 2500, 6000, 20_000, 100_000):
        values = make(rows, np.random.default_rng(rows))
        for epsilon in (0.1, 0.5, 1.0, 4.0):
            rho = 0.1 / 6 * rho_of_epsilon(epsilon, delta=1e-6)
            enough = rows_needed(kind, Learn(), 1 / math.sqrt(2 * rho))
            for seed in range(SEEDS):
                bins = learn_bins(kind, Learn(), counter(kind, values, seed), rho=rho)
                if len(values) > (1 + 5 * chosen.USEFUL) * enough:
                    assert bins.learned == "well"
                if len(values) < (1 - 5 * chosen.USEFUL) * enough:
                    assert bins.learned in ("coarse", "not")
                if bins.learned == "well":
                    held.append(coverage(kind, bins, values))
    if name == "nothing":
        assert not held
    else:
        assert len(held) > 30
        assert np.mean(np.array(held) >= 0.9) >= 0.95


@pytest.mark.parametrize("name", [n for n in COLUMNS if n not in ("nothing", "pareto")])
def test_values_of_a_copy_lie_where_the_real_ones_do(name):
    """Half as many rows again as the rule asks for: quantiles are off by little, and no
    mean of numbers by more than their spread.

    Little is a twentieth of the spread, or a thousandth of the value where the spread
    is less. The mean of a Pareto column with this tail no bins can tell.
    """
    kind, make = COLUMNS[name]
    values = make(6000, np.random.default_rng(1))
    rho = (rows_needed(kind, Learn(), 1.0) * 1.5 / 6000) ** 2 / 2
    at = np.linspace(0.05, 0.95, 19)
    spread = np.ptp(np.quantile(values, [0.05, 0.95]))
    off, means = [], []
    for seed in range(20):
        bins = learn_bins(kind, Learn(), counter(kind, values, seed), rho=rho)
        made = copied(kind, bins, values, seed)
        off.append(np.abs(np.quantile(made, at) - np.quantile(values, at)).mean())
        means.append(abs(made.mean() - values.mean()))
    assert np.median(off) <= max(0.05 * spread, 0.001 * abs(values).max())
    if kind in (INTEGER, FLOAT, MONEY) and spread > 0:
        assert np.quantile(means, 0.9) <= values.std()


@pytest.mark.parametrize("kind", [INTEGER, FLOAT, MONEY, DATE, STAMP, TIME])
def test_noise_alone_makes_no_range(kind):
    """Whatever the noise, a column without rows gets the default, and a range is not learned by mistake."""
    found = [learn_bins(kind, Learn(), counter(kind, np.zeros(0), seed), rho=1e-4) for seed in range(200)]
    assert {b.learned for b in found} == {"not"}
    (edges,) = {b.edges for b in found}
    usual = {
        "integer": (0, 100),
        "float": (0.0, 100.0),
        "decimal": (Decimal(0), Decimal(100)),
        "date": (date(1950, 1, 1), date(2030, 1, 1)),
        "timestamp": (datetime(1950, 1, 1), datetime(2030, 1, 1)),
        "time": (time(0, 0), time(23, 59, 59)),
    }
    assert edges == usual[kind.kind]


def test_numbers_never_grow_wild_where_noise_hides_most_rows():
    """A third of the rows that the rule asks for: a mean of loans was −134 million."""
    kind, make = COLUMNS["lognormal"]
    values = make(6000, np.random.default_rng(1))
    rho = (rows_needed(kind, Learn(), 1.0) / 3 / 6000) ** 2 / 2
    for seed in range(100):
        bins = learn_bins(kind, Learn(), counter(kind, values, seed), rho=rho)
        assert bins.learned in ("coarse", "not")
        assert bins.edges[0] >= -(2**16)
        assert bins.edges[-1] <= 2**28


# -- what the plan and the type allow ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "learn", "low", "high"),
    [
        (INTEGER, Learn(low=1000), 1000, 1100),
        (INTEGER, Learn(high=-5), -105, -5),
        (INTEGER, Learn(low=7, high=70), 7, 71),
        (DATE, Learn(low=date(2040, 1, 1)), date(2040, 1, 1), date(2120, 1, 2)),
        (Type("decimal", precision=3, scale=2), Learn(), Decimal("0.00"), Decimal("9.99")),
        (Type("integer", bits=8, signed=False), Learn(), 0, 100),
    ],
)
def test_a_range_that_was_not_learned_keeps_to_plan_and_type(kind, learn, low, high):
    for seed in range(20):
        bins = learn_bins(kind, learn, counter(kind, np.zeros(0), seed), rho=1e-4)
        assert bins.learned == "not"
        assert (bins.edges[0], bins.edges[-1]) == (low, high)


def test_one_declared_end_is_kept():
    kind, make = COLUMNS["births"]
    values = make(6000, np.random.default_rng(0))
    for learn in (Learn(low=date(1900, 1, 1)), Learn(high=date(2000, 1, 1))):
        for seed in range(10):
            bins = learn_bins(kind, learn, counter(kind, values, seed), rho=0.001)
            assert bins.learned == "well"
            assert coverage(kind, bins, values) >= 0.9
            assert bins.edges[0] >= date(1900, 1, 1) if learn.low else bins.edges[-1] <= date(2000, 1, 1)


@pytest.mark.parametrize("rows", [0, 200, 20_000])
def test_every_question_is_paid_and_all_is_spent(rows):
    kind, values, asked = INTEGER, np.full(rows, 77), []
    measure = counter(kind, values, 0)

    def counting(bins, rho):
        asked.append(rho)
        return measure(bins, rho)

    learn_bins(kind, Learn(), counting, rho=0.01)
    assert sum(asked) == pytest.approx(0.01, rel=1e-12)
    assert sum(asked) <= 0.01


# -- kernels against slow oracles --------------------------------------------------------------------------------------


def test_counts_that_agree_with_an_earlier_look_are_least_squares():
    """Against the normal equations, with the standard deviations of running counts from their inverse."""
    rng = np.random.default_rng(0)
    inside, fine_sigma, wide_sigma = (3, 1, 5), 2.0, 3.0
    cell = np.repeat(np.arange(3), inside)
    wide = Look((0, 3, 4, 9), rng.normal(50, 9, 3), wide_sigma)
    fine = Look(tuple(range(10)), rng.normal(15, 5, 9), fine_sigma)
    sums = (cell == np.arange(3)[:, None]).astype(float)
    precision = np.eye(9) / fine_sigma**2 + sums.T @ sums / wide_sigma**2
    covariance = np.linalg.inv(precision)
    expected = covariance @ (fine.counts / fine_sigma**2 + sums.T @ wide.counts / wide_sigma**2)
    agreed = fine.agreed(wide)
    assert agreed.counts == pytest.approx(expected)
    running = np.tril(np.ones((9, 9)))
    for back, order in ((False, slice(None)), (True, slice(None, None, -1))):
        noise = np.sqrt(np.diag(running @ covariance[order, order] @ running.T))
        assert agreed.running_noise(back=back) == pytest.approx([0.0, *noise])


def test_the_body_is_not_the_fullest_cell():
    """6,000 births over 72 years: one cell of pure noise may be the fullest, and the stretch is found all the same."""
    points = tuple(float(p) for p in range(41))
    counts = np.zeros(41 - 1)
    counts[10:26] = 3.0  # sixteen cells of three standard deviations each
    counts[35] = 3.2
    assert body(Look(points, counts, 1.0)) == (10, 25)
    assert body(Look(points, counts * 0.3, 1.0)) is None


# -- through the wall --------------------------------------------------------------------------------------------------


def database(path, *, units, per_unit, seed=0):
    """Units born 1915 to 1986, and the rows they own: a day of some four years, an
    amount, and a column that is nearly null.
    """
    rng, rows = np.random.default_rng(seed), units * per_unit
    clients = pd.DataFrame({"id": np.arange(units), "born": _days(rng.integers(day(1915), day(1987), units))})
    orders = pd.DataFrame(
        {
            "id": np.arange(rows),
            "client": np.arange(rows) // per_unit,
            "placed": _days(rng.integers(day(2016), day(2020), rows)),
            "amount": np.round(rng.lognormal(4, 0.8, rows), 2),
            "rare": np.where(rng.random(rows) < 0.001, 5.0, np.nan),
        }
    )
    orders["rare"] = orders["rare"].astype("Int64")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE clients (id INT PRIMARY KEY, born DATE NOT NULL)")
        connection.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, client INT NOT NULL REFERENCES clients, placed DATE, amount"
            " DECIMAL(10,2), rare INT)"
        )
        connection.register("c", clients)
        connection.register("o", orders)
        connection.execute("INSERT INTO clients FROM c")
        connection.execute("INSERT INTO orders FROM o")
    return clients, orders


def _days(axis):
    return pd.to_datetime("1970-01-01") + pd.to_timedelta(axis, unit="D")


def test_amounts_are_not_negative_for_a_little_noise_and_negative_ones_stay():
    """Beside rows from 0 to 256, a cell of as many negative numbers: one noise of rows is no sign of them, 3 are."""
    for negative, first in ((100.0, 1), (300.0, 0)):
        look = Look((-256.0, 0.0, 16.0, 256.0), np.array([negative, 900.0, 1100.0]), 100.0, seldom_crossed=(0.0,))
        assert body(look) == (first, 2)
    spread = Look((-256.0, 0.0, 256.0, 512.0), np.array([900.0, 1100.0, 60.0]), 100.0, seldom_crossed=(0.0,))
    assert body(spread) == (0, 2)  # rows on both sides: nothing is crossed


def test_few_orders_are_of_the_years_after_2040():
    assert seldom_crossed(Type("date")) == tuple(to_axis(Type("date"), date(y, 1, 1)) for y in (1900, 2040))
    assert seldom_crossed(Type("time")) == ()
    assert seldom_crossed(Type("float")) == (0.0,)


@pytest.mark.parametrize(("units", "bound"), [(20_000, 1), (6000, 10), (3000, 50)])
def test_ranges_of_owned_rows_are_learned_whatever_the_bound(tmp_path, units, bound):
    per_unit = max(bound // 2, 1)
    _, orders = database(tmp_path / "shop.duckdb", units=units, per_unit=per_unit)
    plan = dw.Plan.draft(tmp_path / "shop.duckdb", protect=["clients"], max_degree=bound)
    allocation = allocate(plan, epsilon=1.0, delta=1e-6)
    real = {
        "placed": np.array([day(d.year, d.month, d.day) for d in orders["placed"]]),
        "amount": np.rint(orders["amount"] * 100),
    }
    with open_source(tmp_path / "shop.duckdb") as source:
        source.declare(plan.database)
        for seed in range(3):
            limit = Budget(allocation.rho, allocation.spent_delta)
            ledger = Ledger.open(None, database="shop", limit=limit, tables=plan.protect)
            curator = Curator(source, plan.promise, ledger=ledger, noise=InsecureNoise(seed))
            for name in ("placed", "amount", "rare"):
                task, column = Task("domains", "orders", name), plan.table["orders"].column[name]
                sizes = {"clients": float(units), "orders": float(units * per_unit)}
                bins = _learn_domain(curator, plan, allocation, sizes, task, column.domain)
                if name == "rare":
                    assert bins.learned != "well"
                else:
                    assert bins.learned == "well"
                    assert coverage(column.column.type, bins, real[name]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_births_of_six_thousand_clients_spread_in_a_copy_of_a_drafted_plan(tmp_path, seed):
    """At epsilon 1 all of them were born in 1951."""
    clients, _ = database(tmp_path / "bank.duckdb", units=6000, per_unit=1)
    plan = dw.Plan.draft(tmp_path / "bank.duckdb", protect=["clients"])
    model = dw.fit(tmp_path / "bank.duckdb", plan, epsilon=1.0, delta=1e-6, insecure_seed=seed)
    copy = pd.to_datetime(model.sample(seed=seed).to_pandas()["clients"]["born"])
    for at in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert abs((copy.quantile(at) - clients["born"].quantile(at)).days) < 365 * 5
    assert model.blueprint.plan.table["clients"].column["born"].domain.learned == "well"
    assert not any("clients.born" in said for said in model.certificate.caveats)


@pytest.mark.slow
def test_whoever_fits_or_reads_is_told_what_was_not_learned(tmp_path):
    database(tmp_path / "bank.duckdb", units=60, per_unit=1)
    plan = dw.Plan.draft(tmp_path / "bank.duckdb", protect=["clients"])
    model = dw.fit(tmp_path / "bank.duckdb", plan, epsilon=0.5, delta=1e-6, insecure_seed=1)
    said = " ".join(model.certificate.caveats)
    assert "not learned" in said
    assert "clients.born (1950-01-01 to 2030-01-01)" in said
    assert "clients.born" in spent_words(model.certificate)
    model.save(tmp_path / "bank.dpw")
    again = dw.load(tmp_path / "bank.dpw")
    assert again.blueprint.plan.table["clients"].column["born"].domain.learned == "not"
    assert again.certificate.caveats == model.certificate.caveats
    copy = again.sample(seed=1)
    assert pd.to_datetime(copy.to_pandas()["clients"]["born"]).dt.year.between(1950, 2029).all()
    dw.report(again, copy, tmp_path / "report.html")
    assert "clients.born (1950-01-01 to 2030-01-01)" in (tmp_path / "report.html").read_text()
