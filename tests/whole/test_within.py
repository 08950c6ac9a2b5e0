"""Keys that stay within units: a father in the household, a payment for a rental of the same customer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.links.wiring import within_groups as module
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.model.coded_database import encode
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.privacy.certificate import statement
from dpweave.privacy.sensitivity import Movement, movement, units_of
from dpweave.report.integrity import check
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Categories
from dpweave.weaving import parts

ID = Column("id", Type("integer"), nullable=False)


def kind(*values: str) -> ColumnPlan:
    return ColumnPlan(Column("kind", Type("text"), nullable=False), Categories(values))


def number(name: str, *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type("integer"), nullable=nullable), None)


def key(column: str, target: str, role: str, bound: int = 5, **options: object) -> KeyPlan:
    return KeyPlan(ForeignKey((column,), target, ("id",)), role, bound, **options)  # type: ignore[arg-type]


def families(**options: object) -> Plan:
    person = TablePlan(
        "person",
        (ColumnPlan(ID, None), number("home"), number("father", nullable=True), kind("man", "woman", "child")),
        ("id",),
        keys=(key("home", "home", "owning", 6), key("father", "person", "linking", 4, within=True, **options)),
    )
    return Plan((TablePlan("home", (ColumnPlan(ID, None), kind("town", "farm")), ("id",)), person), protect=("home",))


def people(homes: int = 1500) -> dict[str, pd.DataFrame]:
    """Each home has a man, a woman and up to three children of the man."""
    rng = np.random.default_rng(0)
    rows = []
    for home in range(homes):
        man = len(rows)
        rows += [(home, None, "man"), (home, None, "woman")]
        rows += [(home, man, "child")] * int(rng.integers(0, 4))
    person = pd.DataFrame(rows, columns=["home", "father", "kind"])
    person.insert(0, "id", np.arange(len(person)))
    return {
        "home": pd.DataFrame({"id": np.arange(homes), "kind": rng.choice(["town", "farm"], homes)}),
        "person": person,
    }


@pytest.mark.parametrize("acyclic", [True, False])
@pytest.mark.parametrize("method", ["map", "random", "pgd"])
def test_fathers_are_in_the_home(method: str, acyclic: bool) -> None:
    plan, source = families(method=method, acyclic=acyclic), people()
    model = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=0)
    for seed in range(3):
        copy = model.sample(seed=seed)
        assert [c for c in check(model.plan, copy, encode(model.plan, copy), public={}) if not c.passed] == []
        person = copy.to_pandas()["person"].set_index("id")
        led = person.dropna(subset="father")
        fathers = person.loc[led.father.astype(int)]
        assert (fathers.home.to_numpy() == led.home.to_numpy()).all()
        assert (fathers.index.to_numpy() != led.index.to_numpy()).all()
        alone = copy.repairs.get("person.father within its unit", 0)
        wanted = source["person"].father.notna().mean() * len(person)
        assert len(led) + alone == pytest.approx(wanted, rel=0.1)
        if method == "map":  # men, where the home has any
            men = set(person[person.kind == "man"].home)
            assert (fathers.kind == "man")[[h in men for h in fathers.home]].mean() > 0.9


def test_a_copy_that_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_VALUES", 4000)
    model = dw.fit(people(), families(acyclic=True), epsilon=50.0, delta=1e-5, insecure_seed=0)
    copy = model.sample(scale=2.0, seed=3)
    assert isinstance(copy.tables, parts.Parts)
    assert [c for c in check(model.plan, copy, encode(model.plan, copy), public={}) if not c.passed] == []
    assert copy["person"]["father"].null_count < 0.8 * copy["person"].num_rows


def test_links_that_a_circle_costs_are_counted() -> None:
    """Everybody in a home leads to somebody there. Without a circle somebody cannot,
    and there is nobody to make room for.
    """
    homes = 400
    person = pd.DataFrame({"id": np.arange(2 * homes), "home": np.repeat(np.arange(homes), 2), "kind": "man"})
    person["father"] = (person.id ^ 1).astype(float)
    source = {"home": people(homes)["home"], "person": person}
    plan = families(method="random", acyclic=True)
    copy = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=0).sample(seed=0)
    assert copy.repairs["person.father within its unit"] > 0.4 * homes


def test_persons_who_belong_together_come_together() -> None:
    """Homes have a child and a parent of its own colour. Nothing about a home tells the
    colour, so rows alone would be mixed.
    """
    rng = np.random.default_rng(0)
    homes = 2000
    colours = [f"{who}{c}" for who in ("child", "parent") for c in range(4)]
    plan = families()
    home, person = plan.tables
    plan = replace(plan, tables=(home, replace(person, columns=(*person.columns[:3], kind(*colours)))))
    colour = rng.integers(0, 4, homes)
    rows = pd.DataFrame({"id": np.arange(2 * homes), "home": np.repeat(np.arange(homes), 2)})
    rows["father"] = np.where(rows.id % 2, rows.id - 1, np.nan)
    rows["kind"] = [f"{('parent', 'child')[i % 2]}{colour[i // 2]}" for i in range(2 * homes)]
    model = dw.fit({"home": people(homes)["home"], "person": rows}, plan, epsilon=8.0, delta=1e-5, insecure_seed=0)
    copy = model.sample(seed=0)
    assert [c for c in check(plan, copy, encode(plan, copy), public={}) if not c.passed] == []
    made = copy.to_pandas()["person"].set_index("id")
    led = made.dropna(subset="father")
    fathers = made.loc[led.father.astype(int)]
    assert len(led) > 0.9 * homes
    assert fathers.kind.str.startswith("parent").mean() > 0.95
    assert (fathers.kind.str[-1].to_numpy() == led.kind.str[-1].to_numpy()).mean() > 0.9  # by chance 0.25
    persons = made.groupby("home").size()
    assert (persons == 2).mean() > 0.995  # numbers of rows are those counted, which have noise; moving changes none
    assert persons.max() == 2


def test_beds_are_given_to_those_who_are_there_in_the_end() -> None:
    """A key to another table of the unit, declared before the one by which persons move in."""
    home, person = families().tables
    bed = TablePlan(
        "bed",
        (ColumnPlan(ID, None), number("home"), kind("low", "high")),
        ("id",),
        keys=(key("home", "home", "owning", 6),),
    )
    sleeps = key("bed", "bed", "linking", 2, within=True)
    person = replace(
        person, columns=(*person.columns, number("bed", nullable=True)), keys=(person.keys[0], sleeps, person.keys[1])
    )
    plan = Plan((home, bed, person), protect=("home",))
    assert [r.key for r in plan.compile().relations if r.table == "person"] == ["home", "father", "bed"]
    source = people(600)
    rows = source["person"]
    source["bed"] = pd.DataFrame(
        {"id": rows.id, "home": rows.home, "kind": np.where(rows.kind == "child", "low", "high")}
    )
    rows["bed"] = rows.id.astype(float)
    copy = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=0).sample(seed=0)
    assert [c for c in check(plan, copy, encode(plan, copy), public={}) if not c.passed] == []
    assert copy["person"]["bed"].null_count < 0.2 * copy["person"].num_rows


def test_payments_of_a_customer_are_for_what_that_customer_rented() -> None:
    """Nothing about a customer tells in which month it rents, so payments that were given to customers one by one would
    find no rental of their own month.
    """
    months = tuple("abcdef")
    customer = TablePlan("customer", (ColumnPlan(ID, None), kind("x", "y")), ("id",))
    rental = TablePlan(
        "rental",
        (ColumnPlan(ID, None), number("customer"), kind(*months)),
        ("id",),
        keys=(key("customer", "customer", "owning", 8),),
    )
    payment = TablePlan(
        "payment",
        (ColumnPlan(ID, None), number("customer"), number("rental", nullable=True), kind(*months)),
        ("id",),
        keys=(key("customer", "customer", "owning", 8), key("rental", "rental", "linking", 1, within=True)),
    )
    plan = Plan((customer, rental, payment), protect=("customer",))
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(600), rng.integers(1, 7, 600))
    rentals = pd.DataFrame({"id": np.arange(len(owner)), "customer": owner})
    rentals["kind"] = np.array(months)[rng.integers(0, 6, len(owner))]
    payments = rentals.assign(rental=rentals.id.where(rng.random(len(owner)) < 0.8))
    source = {"customer": pd.DataFrame({"id": np.arange(600), "kind": "x"}), "rental": rentals, "payment": payments}
    model = dw.fit(source, plan, epsilon=20.0, delta=1e-5, insecure_seed=0)
    copy = model.sample(seed=0)
    assert [c for c in check(model.plan, copy, encode(model.plan, copy), public={}) if not c.passed] == []
    made = copy.to_pandas()
    led = made["payment"].dropna(subset="rental")
    there = made["rental"].set_index("id").loc[led.rental.astype(int)]
    assert (there.customer.to_numpy() == led.customer.to_numpy()).all()
    assert (there.kind.to_numpy() == led.kind.to_numpy()).mean() > 0.65  # by chance 0.17; one by one 0.45
    assert len(led) == pytest.approx(0.8 * len(made["payment"]), rel=0.1)


def test_less_noise_hides_a_link_that_stays_within_its_unit() -> None:
    plan = families()
    loose = replace(
        plan,
        tables=(
            plan.tables[0],
            replace(plan.tables[1], keys=(plan.tables[1].keys[0], replace(plan.tables[1].keys[1], within=False))),
        ),
    )
    view = next(r.view for r in plan.compile().relations if r.key == "father")
    assert movement(plan.promise, view, ("kind", "father.kind"), "home") == Movement(6, 0)
    assert movement(loose.promise, view, ("kind", "father.kind"), "home") == Movement(6 + 4 * 6, 6)
    assert units_of(loose.promise, view) is None
    assert units_of(plan.promise, view).columns is None  # type: ignore[union-attr]
    assert "father.home.kind" not in view.attribute  # which is that of the child's own home
    assert "Links by person.father that leave their unit are not counted" in statement(plan.promise)


def test_links_that_leave_their_unit_count_as_leading_nowhere() -> None:
    """Whatever is declared, the promise holds: what breaks the rule is not counted."""
    source = people(400)
    source["person"]["father"] = source["person"]["father"].where(source["person"]["father"].isna(), 0)
    model = dw.fit(source, families(), epsilon=50.0, delta=1e-5, insecure_seed=0)
    there = model.tables["person"].marginal(("?father",))
    assert there[1] / there.sum() < 0.02


def test_another_table_of_the_same_unit_and_a_mandatory_key() -> None:
    rng = np.random.default_rng(1)
    plan = Plan(
        (
            TablePlan("customer", (ColumnPlan(ID, None), kind("a", "b")), ("id",)),
            TablePlan(
                "rental", (ColumnPlan(ID, None), number("customer"), kind("a", "b")), ("id",),
                keys=(key("customer", "customer", "owning", 8),),
            ),
            TablePlan(
                "payment", (ColumnPlan(ID, None), number("customer"), number("rental"), kind("a", "b")), ("id",),
                unique=(("rental",),),
                keys=(key("customer", "customer", "owning", 8), key("rental", "rental", "linking", 1, within=True)),
            ),
        ),
        protect=("customer",),
    )  # fmt: skip
    owner = np.repeat(np.arange(800), rng.integers(0, 6, 800))
    mark = rng.choice(["a", "b"], len(owner))
    source = {
        "customer": pd.DataFrame({"id": np.arange(800), "kind": rng.choice(["a", "b"], 800)}),
        "rental": pd.DataFrame({"id": np.arange(len(owner)), "customer": owner, "kind": mark}),
        "payment": pd.DataFrame(
            {"id": np.arange(len(owner)), "customer": owner, "rental": np.arange(len(owner)), "kind": mark}
        ),
    }
    copy = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=0).sample(seed=1)
    assert [c for c in check(plan, copy, encode(plan, copy), public={}) if not c.passed] == []
    made = copy.to_pandas()
    rental = made["rental"].set_index("id").loc[made["payment"].rental]
    assert (rental.customer.to_numpy() == made["payment"].customer.to_numpy()).all()
    assert len(made["payment"]) > 0.6 * len(owner)
    # A row that must have a partner and finds none is left out, and counted.
    assert len(made["payment"]) + copy.repairs["payment.rental within its unit"] == pytest.approx(len(owner), rel=0.1)


def test_both_keys_of_a_junction() -> None:
    """They are learned together, which knows no units."""
    couple = TablePlan(
        "couple",
        (number("one"), number("other")),
        ("one", "other"),
        keys=(key("one", "person", "owning", 4), key("other", "person", "linking", 4, within=True)),
    )
    home, person = families().tables
    plan = Plan((home, replace(person, keys=person.keys[:1]), couple), protect=("home",))
    source = people()
    pairs = source["person"].merge(source["person"], on="home", suffixes=("", "_other"))
    pairs = pairs[(pairs.id < pairs.id_other) & (pairs.kind != "child")]
    source["couple"] = pd.DataFrame({"one": pairs.id.to_numpy(), "other": pairs.id_other.to_numpy()})
    copy = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=0).sample(seed=1)
    assert [c for c in check(plan, copy, encode(plan, copy), public={}) if not c.passed and not c.advisory] == []
    assert copy["couple"].num_rows > 0.3 * len(pairs)


def test_the_plan_keeps_it_and_reports_find_it_broken() -> None:
    plan, tables = families(), people(30)
    assert Plan.from_toml(plan.to_toml()) == plan
    import pyarrow as pa

    real = {n: pa.Table.from_pandas(t, preserve_index=False) for n, t in tables.items()}
    rule = "leads to a row of its own unit"
    assert all(c.passed for c in check(plan, real, encode(plan, real), public={}) if c.rule == rule)
    stray = tables["person"].copy()
    stray.loc[stray.index[-1], "father"] = 0
    real["person"] = pa.Table.from_pandas(stray, preserve_index=False)
    assert [c.passed for c in check(plan, real, encode(plan, real), public={}) if c.rule == rule] == [False]


def test_where_it_makes_no_sense_it_is_refused() -> None:
    plan = families()
    home, person = plan.tables
    owning, father = person.keys
    with pytest.raises(PlanError, match=r"within of the foreign key 'father' .* must be true or false, not 'no'"):
        Plan.from_toml(plan.to_toml().replace("within = true", 'within = "no"'))
    for wrong in (
        replace(person, keys=(replace(owning, within=True), replace(father, within=False))),
        replace(person, keys=(owning, replace(father, key=ForeignKey(("father",), "home", ("id",))))),
    ):
        with pytest.raises(PlanError, match="cannot stay within units"):
            _ = Plan((home, wrong), protect=("home",))
    with pytest.raises(PlanError, match="cannot stay within units"):
        Plan((home, replace(person, keys=(replace(owning, role="linking"), father))), protect=("home", "person"))
    with pytest.raises(PlanError):  # nobody owns a person
        Plan((home, replace(person, keys=(replace(owning, role="linking"), father))), protect=("home",))
    first = key("first", "person", "linking", within=True)
    hall = TablePlan(
        "hall",
        (ColumnPlan(ID, None), number("home"), number("first", nullable=True)),
        ("id",),
        keys=(key("home", "home", "owning"), first),
    )
    inside = replace(person, keys=(replace(owning, key=ForeignKey(("home",), "hall", ("id",))),))
    with pytest.raises(PlanError, match="is drawn after those of 'hall'"):
        Plan((home, hall, inside), protect=("home",))
    shared = replace(father, key=ForeignKey(("home", "father"), "person", ("home", "id")))
    unique = replace(person, unique=(("home", "id"),), keys=(owning, shared))
    with pytest.raises(PlanError, match="shares columns"):
        Plan((home, unique), protect=("home",))


@given(st.data())
def test_rows_meet_in_their_group_within_the_bound(data: st.DataObject) -> None:
    groups = st.lists(st.integers(0, 4), max_size=25)
    left, right = (np.array(data.draw(groups), dtype=np.int64) for _ in range(2))
    same = data.draw(st.booleans())
    home = UnitGroups(left, left, np.arange(len(left))) if same else UnitGroups(left, right)
    bound = data.draw(st.integers(1, 3))
    barred = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(home.right), max_size=len(home.right))), dtype=bool
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAIRS", data.draw(st.sampled_from([1, 7, 1 << 22])))
        target = assign_within_groups(
            home, bound=bound, rng=np.random.default_rng(0), log_odds=lambda _, j: np.where(barred[j], -np.inf, 0.0)
        )
    led = np.flatnonzero(target >= 0)
    assert (home.right[target[led]] == left[led]).all()
    assert not barred[target[led]].any()
    if same:
        assert (target[led] != led).all()
    degree = np.bincount(target[led], minlength=len(home.right))
    assert (degree <= bound).all()
    for row in np.flatnonzero(target < 0):  # no room is left where a row leads nowhere
        free = (home.right == left[row]) & (degree < bound) & ~barred
        free[row : row + same] = False
        assert not free.any()


def test_likelier_partners_are_chosen_as_often_as_they_are_likelier() -> None:
    rows = 20_000
    home = UnitGroups(np.repeat(np.arange(rows), 1), np.repeat(np.arange(rows), 3))
    odds = np.log(np.tile([1.0, 2.0, 5.0], rows))
    target = assign_within_groups(home, bound=None, rng=np.random.default_rng(0), log_odds=lambda _, j: odds[j])
    assert np.bincount(target % 3) / rows == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)
