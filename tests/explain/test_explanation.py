"""explain: what a plan promises and spends, from the plan alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from dpweave.budget.allocation import allocate
from dpweave.budget.tasks import ORDER, SIBLINGS
from dpweave.cli import demo
from dpweave.errors import UsageError
from dpweave.explain.draft_notes import comments
from dpweave.plan.plan import Plan
from dpweave.privacy.accounting import gaussian_rho

TOML = """
protect = ["people"]
[tables.people]
primary_key = ["id"]
rows = 200
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
job = { type = "text", domain = "learn" }
pay = { type = "float64", domain = "learn" }
[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
person = { type = "int64", nullable = false, domain = "key" }
day = { type = "int32", nullable = false, domain = { low = 0, high = 4999, bins = 5000 } }
[tables.visits.keys.person]
columns = ["person"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 60
"""


@pytest.fixture(scope="module")
def plan():
    return Plan.from_toml(TOML)


@pytest.fixture(scope="module")
def said(plan):
    return plan.explain(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.duckdb"
    demo.make_shop(path, rows=1000)
    return demo.shop_plan(path)


def test_the_budget_is_the_one_that_a_fit_will_spend(plan, said):
    allocation = allocate(plan, epsilon=1.0, delta=1e-6)
    siblings = {f"{t.name}{SIBLINGS}": rho for t, rho in allocation.siblings.items()}
    expected = {t.name: allocation.for_links(t) for t in allocation.tasks} | siblings
    assert {s.task: s.rho for s in said.budget} == expected
    assert siblings
    assert sum(s.rho for s in said.budget if "people" in s.touches) <= allocation.rho * (1 + 1e-12)


def test_what_is_for_order_is_said_apart(said):
    ordered = Plan.from_toml(f'{TOML}order_by = "day"\n').explain(epsilon=1.0, delta=1e-6)
    again, before = ({s.task: s.rho for s in x.budget} for x in (ordered, said))
    common, order = (f"links:visits.person{end}" for end in (SIBLINGS, ORDER))
    assert order not in before
    assert again[common] + again[order] == pytest.approx(before[common])
    assert again[order] == pytest.approx(again[common])


def test_noise_of_a_size_is_the_noise_that_its_rho_buys(said):
    sizes = {s.table: s for s in said.budget if s.group == "sizes"}
    assert gaussian_rho(1.0, sizes["people"].sigma) == pytest.approx(sizes["people"].rho)
    assert gaussian_rho(60.0, sizes["visits"].sigma) == pytest.approx(sizes["visits"].rho)


def test_a_unit_stands_for_the_product_of_bounds_along_its_chain(said, shop):
    assert {(h.unit, h.table): h.rows for h in said.holdings} == {("people", "people"): 1, ("people", "visits"): 60}
    rows = {(h.unit, h.table): h.rows for h in shop.explain(epsilon=1, delta=1e-6).holdings}
    assert rows["customers", "orders"] == demo.MEASURED["orders", "customer_id"][0]
    assert rows["customers", "order_items"] == rows["customers", "orders"] * demo.MEASURED["order_items", "order_id"][0]
    assert rows["employees", "employees"] == 1


def test_learned_domains_carry_their_price(said):
    learned = {item.column: item for item in said.learned}
    assert learned["people.job"].kind == "categories"
    assert learned["people.job"].threshold > learned["people.job"].sigma
    assert learned["people.job"].delta > 0
    assert learned["people.pay"].threshold > 10 * learned["people.pay"].sigma


def test_categories_of_owned_rows_are_told_in_owners():
    """With the noise and the threshold that a fit has: those of one person, however many visits one may have."""
    day = "day = { type"
    found = Plan.from_toml(TOML.replace(day, 'why = { type = "text", domain = "learn" }\n' + day))
    said = found.explain(epsilon=1.0, delta=1e-6)
    own, owned = (item for item in said.learned if item.kind == "categories")
    assert (own.column, own.by_unit, owned.column, owned.by_unit) == ("people.job", False, "visits.why", True)
    assert gaussian_rho(1.0, owned.sigma) == pytest.approx(owned.rho)
    assert own.threshold < owned.threshold < 1.5 * own.threshold
    text = " ".join(str(said).split())
    assert f"a category needs about {own.threshold:,} rows to be kept" in text
    assert f"a category needs about {owned.threshold:,} owners (more where one owner has several) to be kept" in text
    assert comments(found).columns["visits", "why"].endswith(" owners")
    assert comments(found).columns["people", "job"].endswith(" rows")


@pytest.mark.parametrize(
    "words",
    [
        "people is declared to have 200 rows",
        "can own 60 rows of visits",
        "visits.day has 5,000 cells",
        "2 domains are learned",
    ],
)
def test_warnings_say_what_is_tiny_generous_huge_and_learned(said, words):
    assert any(words in w for w in said.warnings), said.warnings


def test_a_weak_epsilon_and_a_large_delta_are_warned_of(plan):
    warnings = plan.explain(epsilon=20.0, delta=0.01).warnings
    assert any("promises little" in w for w in warnings)
    assert any("above one in the 200 declared rows" in w for w in warnings)
    assert not any("promises little" in w for w in plan.explain(epsilon=1.0, delta=1e-6).warnings)


def test_the_text_fits_eighty_columns_and_has_every_section(said, shop):
    for text in (str(said), str(shop.explain(epsilon=0.5, delta=1e-7))):
        assert max(map(len, text.splitlines())) <= 80
        for section in (
            "The promise",
            "stands for at most",
            "Foreign keys",
            "Tables",
            "Where the budget goes",
            "How well links",
            "Time and memory",
        ):
            assert section in text
    assert "Domains that are learned" in str(said)
    assert "Mind" in str(said)


def test_a_smaller_epsilon_means_more_noise(plan):
    def noise(epsilon):
        return [s.sigma for s in plan.explain(epsilon=epsilon, delta=1e-6).budget if s.sigma is not None]

    assert all(a > 2 * b for a, b in zip(noise(0.5), noise(2.0), strict=True))


def test_a_mechanism_is_named_with_its_reason(shop, plan):
    tables = {t.table: t for t in shop.explain(epsilon=1, delta=1e-6).tables}
    assert tables["customers"].mechanism in {"independent", "mst", "aim"}
    assert tables["customers"].why.startswith("because")
    assert tables["wishlist"].mechanism == "none"
    forced = replace(shop, tables=tuple(replace(t, mechanism="mst") for t in shop.tables))
    assert {t.mechanism for t in forced.explain(epsilon=1, delta=1e-6).tables} == {"mst", "none"}
    assert {t.table: t.mechanism for t in plan.explain(epsilon=1, delta=1e-6).tables}["people"] == "auto"


def test_no_column_is_listed_twice():
    plan = Plan.from_toml(
        TOML.replace(
            'pay = { type = "float64", domain',
            'note = { type = "text", domain = "opaque" }\npay = { type = "float64", domain',
        )
    )
    (people, _) = plan.explain(epsilon=1.0, delta=1e-6).tables
    assert people.modelled == ("sex", "job", "pay")
    assert people.made_up == ("id", "note")
    assert people.nulls == ("note",)


def test_links_are_predicted_from_public_facts(shop):
    def predicted(plan, epsilon):
        return {(f.table, f.key): f for f in plan.explain(epsilon=epsilon, delta=1e-6).forecast.links}

    weak, strong = predicted(shop, 0.1), predicted(shop, 10.0)
    assert set(weak) == set(strong) == {(r.table, r.key) for r in shop.compile().relations if r.is_learned}
    for relation, found in strong.items():
        assert 0 < found.learned < weak[relation].learned <= weak[relation].at_random <= 200
        assert 2 <= found.best_k <= shop.k
        assert found.best_max_degree is None
    assert "best k" in str(shop.explain(epsilon=10.0, delta=1e-6))
    more = replace(shop, tables=tuple(replace(t, rows=10**6) for t in shop.tables))
    assert all(f.learned < strong[r].learned for r, f in predicted(more, 10.0).items())


def test_a_bound_is_recommended_where_sizes_are_declared(shop):
    def bound(epsilon, orders):
        sizes = {"customers": 10_000, "orders": orders}
        tables = tuple(replace(t, rows=sizes.get(t.name)) for t in shop.tables)
        found = replace(shop, tables=tables).explain(epsilon=epsilon, delta=1e-6).forecast
        assert found.guessed == ("employees", "wishlist", "order_items")
        (link,) = (f for f in found.links if f.table == "orders")
        return link.best_max_degree

    assert 1 <= bound(0.5, 20_000) < bound(0.5, 300_000)


def test_no_bound_above_1_is_recommended_for_a_unique_key():
    text = TOML.replace("max_degree = 60", 'max_degree = 3\nmethod = "pgd"').replace("bins = 5000", "bins = 5")
    text = text.replace("[tables.visits]\n", "[tables.visits]\nrows = 100000\n").replace("rows = 200", "rows = 100000")
    unique = text.replace("[tables.visits]\n", '[tables.visits]\nunique = [["person"]]\n')

    def best(toml):
        (link,) = Plan.from_toml(toml).explain(epsilon=10.0, delta=1e-6).forecast.links
        return link.best_max_degree

    assert best(text) > best(unique) == 1


def test_advice_on_bounds_is_the_same_everywhere(plan, said):
    """Owned rows in files: a bound is cheap. Where a row may have no owner, or under record: noise grows with it."""
    dear = Plan.from_toml(TOML.replace('person = { type = "int64", nullable = false', 'person = { type = "int64"'))
    for found, cheap in ((plan, True), (dear, False), (replace(plan, neighbours="record"), False)):
        (warning,) = (w for w in found.explain(epsilon=1.0, delta=1e-6).warnings if "can own 60 rows" in w)
        note, *_ = comments(found).keys["visits", "person"]
        assert ("hides next to nothing" in warning) == ("hides next to nothing" in note) == cheap
        assert "in proportion" in warning
        assert "in proportion" in note


def test_guessed_rows_are_said_above_what_rests_on_them(plan, said):
    text = str(said)
    assert text.index("visits declares no rows") < text.index("How well links can be learned") < text.index("Time and")
    assert "is taken to have 10,000" in text.replace("\n ", "")
    declared = TOML.replace("[tables.visits]\n", "[tables.visits]\nrows = 1000\n")
    assert "guessed" not in str(Plan.from_toml(declared).explain(epsilon=1.0, delta=1e-6))


def test_time_and_memory_grow_with_rows_columns_and_mechanism(plan):
    def takes(text):
        found = Plan.from_toml(text).explain(epsilon=1.0, delta=1e-6).forecast
        return found.seconds, found.memory

    few = TOML.replace("bins = 5000", "bins = 50")
    many = few.replace("rows = 200", "rows = 20000000")
    assert takes(many)[0] > 10 * takes(few)[0]
    assert takes(many)[1] > 10 * takes(few)[1]
    independent, aim = (few.replace("rows = 200", f'rows = 200\nmechanism = "{m}"') for m in ("independent", "aim"))
    assert takes(aim)[0] > takes(independent)[0]


def test_values_are_plain_and_finite(said):
    assert json.loads(json.dumps(said.to_dict(), allow_nan=False))["epsilon"] == 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (math.nan, 1e-6), (1, 0), (1, 1)])
def test_nonsense_is_refused(plan, epsilon, delta):
    with pytest.raises(UsageError):
        plan.explain(epsilon=epsilon, delta=delta)
