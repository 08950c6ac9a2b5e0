"""Large databases in parts: what holds for one part holds for all of them together, on schemas of every shape."""

from __future__ import annotations

import dataclasses
import functools
import json
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpweave as dw
from dpweave.cli import main
from dpweave.errors import TargetError
from dpweave.links.map_learner import MAP
from dpweave.model.synthetic_database import SyntheticDatabase
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Determined, Ordered
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Bins, Opaque
from dpweave.weaving import parts
from dpweave.weaving.parts import EarlierRows, Part, Parts, WeavingJob, Woven, divide
from tests.weaving.test_weaver import ID, KIND, assert_keys_hold, frame, key, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dpweave.links.link_method import LinkProblem

    World = tuple[Plan, dict[str, pd.DataFrame]]


def kinds(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).choice(list("abc"), rows)


def whole(name: str) -> ColumnPlan:
    return ColumnPlan(number(name, nullable=False), None)


def chain() -> World:
    """Households own persons, who own trips; rules hold within and between tables."""
    days = [ColumnPlan(number(n), Bins(tuple(range(0, 101, 10)))) for n in ("came", "left")]
    group = ColumnPlan(Column("group", Type("text")), KIND.domain)
    plan = Plan(
        (
            TablePlan("household", (ColumnPlan(ID, None), KIND, days[0]), ("id",)),
            TablePlan(
                "person", (ColumnPlan(ID, None), KIND, group, whole("home"), *days), ("id",),
                keys=(key("home", "household", "owning", 6),),
            ),
            TablePlan("trip", (ColumnPlan(ID, None), KIND, whole("who")), ("id",), keys=(key("who", "person", "owning", 4),)),  # noqa: E501
        ),
        protect=("household",),
        constraints=(
            Ordered("person", "came", "left"),
            Ordered("person", "came", "came", key="home"),
            Determined("person", ("kind",), "group"),
        ),
    )  # fmt: skip
    rows = np.repeat(np.arange(80), np.arange(80) % 4 + 1)
    came = np.arange(len(rows)) % 60
    source = {
        "household": frame(80, kind=kinds(80), came=np.arange(80) % 40),
        "person": frame(
            len(rows), kind=kinds(len(rows)), group=kinds(len(rows) + 1)[1:], home=rows, came=came, left=came + 10
        ),
        "trip": frame(2 * len(rows), kind=kinds(2 * len(rows)), who=np.arange(2 * len(rows)) // 2),
    }
    return plan, source


def junction(*, public: bool) -> World:
    """Users and items, which are public or protected, in pairs that never repeat."""
    plan = Plan(
        (
            TablePlan("user", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan("item", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan(
                "likes", (whole("user"), whole("item")), ("user", "item"),
                keys=(key("user", "user", "owning", 12), key("item", "item", "attribute" if public else "linking", 60)),
            ),
        ),
        protect=("user",) if public else ("user", "item"),
        public=("item",) if public else (),
    )  # fmt: skip
    pairs = np.unique(np.random.default_rng(1).integers(0, (300, 30), (2000, 2)), axis=0)
    source = {
        "user": frame(300, kind=kinds(300)),
        "item": frame(30, kind=kinds(30)),
        "likes": pd.DataFrame({"user": pairs[:, 0], "item": pairs[:, 1]}),
    }
    return plan, source


def itself() -> World:
    """People with bosses, in no circle."""
    plan = Plan(
        (
            TablePlan(
                "people", (ColumnPlan(ID, None), KIND, ColumnPlan(number("boss"), None)), ("id",),
                keys=(key("boss", "people", "linking", acyclic=True),),
            ),
        ),
        protect=("people",),
    )  # fmt: skip
    boss = np.where(np.arange(600) < 60, np.nan, np.arange(600) // 3)
    return plan, {"people": frame(600, kind=kinds(600), boss=boss)}


def composite() -> World:
    """Keys numbered within an owner, within a public row, and within both; text that is unique; a badge for some."""
    plan = Plan(
        (
            TablePlan("country", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan(
                "shop", (whole("country"), whole("nr"), KIND, ColumnPlan(Column("code", Type("text")), Opaque())),
                ("country", "nr"), unique=(("code",),), keys=(key("country", "country", "attribute", None),),
            ),
            TablePlan(
                "sale", (whole("country"), whole("shop"), whole("line"), KIND), ("country", "shop", "line"),
                keys=(KeyPlan(ForeignKey(("country", "shop"), "shop", ("country", "nr")), "owning", 5),),
            ),
            TablePlan(
                "licence", (whole("country"), whole("nr"), KIND), ("country", "nr"),
                keys=(KeyPlan(ForeignKey(("country", "nr"), "shop", ("country", "nr")), "owning", 1),),
            ),
        ),
        protect=("shop",),
        public=("country",),
    )  # fmt: skip
    country, nr = np.arange(150) % 5, np.arange(150) // 5
    at = np.repeat(np.arange(150), 3)
    source = {
        "country": frame(5, kind=list("abcab")),
        "shop": pd.DataFrame({"country": country, "nr": nr, "kind": kinds(150), "code": [f"c{i}" for i in range(150)]}),
        "sale": pd.DataFrame(
            {"country": country[at], "shop": nr[at], "line": np.tile([1, 2, 3], 150), "kind": kinds(450)}
        ),
        "licence": pd.DataFrame({"country": country[::2], "nr": nr[::2], "kind": kinds(75)}),
    }
    return plan, source


def few_owners() -> World:
    """Eight firms own thousands of orders: orders are divided, firms are not."""
    plan = Plan(
        (
            TablePlan("firm", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan("detail", (ColumnPlan(ID, None), KIND), ("id",), keys=(key("id", "firm", "owning", 1),)),
            TablePlan(
                "orders", (whole("firm"), whole("nr"), KIND), ("firm", "nr"), keys=(key("firm", "firm", "owning", 300),)
            ),
        ),
        protect=("firm",),
    )  # fmt: skip
    firm = np.repeat(np.arange(8), np.arange(8) * 40 + 60)
    within = np.concatenate([np.arange(n) for n in np.bincount(firm)])
    source = {
        "firm": frame(8, kind=list("abcabcab")),
        "detail": frame(8, kind=list("abcabcab")),
        "orders": pd.DataFrame({"firm": firm, "nr": within, "kind": kinds(len(firm))}),
    }
    return plan, source


def circular() -> World:
    """Stores have chiefs among their staff."""
    plan = Plan(
        (
            TablePlan(
                "store", (ColumnPlan(ID, None), ColumnPlan(number("chief"), None)), ("id",),
                keys=(key("chief", "staff", "linking"),),
            ),
            TablePlan("staff", (ColumnPlan(ID, None), KIND, whole("store")), ("id",), keys=(key("store", "store", "owning", 8),)),  # noqa: E501
        ),
        protect=("store",),
    )  # fmt: skip
    source = {
        "store": frame(150, chief=np.arange(150) * 4),
        "staff": frame(600, kind=kinds(600), store=np.arange(600) // 4),
    }
    return plan, source


WORLDS: dict[str, Callable[[], World]] = {
    "chain": chain,
    "junction with a public side": lambda: junction(public=True),
    "junction of two protected tables": lambda: junction(public=False),
    "self-reference": itself,
    "composite keys": composite,
    "few owners": few_owners,
    "circular": circular,
}


@functools.cache
def fitted(world: str) -> dw.Model:
    plan, source = WORLDS[world]()
    return dw.fit(source, plan, epsilon=200.0, delta=1e-5, insecure_seed=0)


@pytest.fixture(scope="module", params=list(WORLDS))
def model(request: pytest.FixtureRequest) -> dw.Model:
    return fitted(request.param)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some hundred rows."""
    monkeypatch.setattr(parts, "PART_VALUES", 1500)
    monkeypatch.setattr(parts, "FEW", 12)


def test_parts_together_are_a_database(model: dw.Model, small: None) -> None:
    plan = model.plan
    database = model.sample(scale=2.0, seed=3)
    assert isinstance(database.tables, Parts)
    assert database.tables.count >= 3
    tables = database.to_pandas()
    assert list(database) == list(plan.database.names)
    assert_keys_hold(plan, tables)
    assert database.rows == {name: len(t) for name, t in tables.items()}
    count, common = divide(plan, model.blueprint.expected_rows(2.0))
    assert count == database.tables.count
    one = Weaving(model).whole(scale=2.0, seed=3)
    for name in plan.database.names:
        if name in plan.public:
            assert database[name].equals(model.public[name])
        elif name in plan.promise.owning:
            assert len(tables[name]) == pytest.approx(one[name].num_rows, rel=0.1)
        else:
            assert len(tables[name]) == round(2.0 * model.sizes[name])
    for name in common:
        assert database[name].num_rows == one[name].num_rows
    assert set(database.repairs) == {str(c) for c in plan.constraints}


class Weaving:
    """The same model without parts."""

    def __init__(self, model: dw.Model) -> None:
        self.model = model

    def whole(self, *, scale: float, seed: int) -> dict[str, pa.Table]:
        (only,) = self.model._weave(WeavingJob(scale, seed, 1, frozenset()), None)
        return dict(only.tables)


def test_the_same_seed_gives_the_same_and_small_databases_have_one_part(
    model: dw.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = model.sample(scale=2.0, seed=4)
    assert not isinstance(plain.tables, Parts)
    assert dict(plain) == Weaving(model).whole(scale=2.0, seed=4)
    monkeypatch.setattr(parts, "PART_VALUES", 1500)
    one, two, other = (model.sample(scale=2.0, seed=s) for s in (4, 4, 5))
    assert dict(one) == dict(two)
    private = model.plan.promise.private
    assert any(one[n] != other[n] for n in private)
    streamed: dict[str, list[pa.Table]] = {}
    for part in one.tables.stream():  # type: ignore[attr-defined]
        for name, table in part.items():
            streamed.setdefault(name, []).append(table)
    assert {n: pa.concat_tables(t) for n, t in streamed.items()} == dict(one)
    public_and_common = [n for n, t in streamed.items() if len(t) == 1]
    assert set(model.plan.public) <= set(public_and_common)


def test_parts_differ_from_each_other(model: dw.Model, small: None) -> None:
    first, second, *_ = model.sample(scale=2.0, seed=6).tables.stream()  # type: ignore[attr-defined]
    assert any(not first[n].slice(0, t.num_rows).equals(t.slice(0, first[n].num_rows)) for n, t in second.items())


def test_written_parts_read_back_whole(model: dw.Model, small: None, tmp_path: Path) -> None:
    read_back(model, tmp_path, "copy.duckdb")


@pytest.mark.parametrize("target", ["copy", "copy.csv", "copy.sqlite"])
def test_every_target_takes_parts(small: None, tmp_path: Path, target: str) -> None:
    read_back(fitted("composite keys"), tmp_path, target)


def read_back(model: dw.Model, folder: Path, target: str) -> None:
    database = model.sample(scale=2.0, seed=7)
    assert isinstance(database.tables, Parts)
    told: list[tuple[str, float]] = []
    database.write(folder / target, progress=lambda what, share: told.append((what, share)))
    assert "gathered" not in vars(database.tables)
    assert [p.name for p in folder.iterdir()] == [target]
    shares = [share for what, share in told if what == "weaving"]
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert all(a <= b for a, b in pairwise(shares))
    from dpweave.cli.read_copy import read_copy

    with read_copy(str(folder / target), model.plan) as back:
        assert back.rows == database.rows
        for name, table in database.items():
            rows = [sorted(map(repr, t.to_pylist())) for t in (table, back[name])]
            assert rows[0] == rows[1], name


def test_rules_hold_over_all_parts(small: None) -> None:
    database = fitted("chain").sample(scale=3.0)
    tables = database.to_pandas()
    person = tables["person"].merge(tables["household"], left_on="home", right_on="id", suffixes=("", "_home"))
    assert not (person.came > person.left).any()
    assert not (person.came_home > person.came).any()
    assert (person.groupby("kind")["group"].nunique(dropna=False) == 1).all()
    assert sum(database.repairs.values()) > 0


def test_no_circles_over_all_parts(small: None) -> None:
    people = fitted("self-reference").sample(scale=3.0).to_pandas()["people"]
    boss = dict(zip(people.id, people.boss, strict=True))
    assert people.boss.isna().mean() == pytest.approx(0.1, abs=0.05)
    for start in boss:
        at, steps = start, 0
        while at == at and steps <= len(boss):  # not a number ends the walk
            at, steps = boss[at], steps + 1
        assert steps <= len(boss)


def test_degrees_of_common_owners_are_shared_out_exactly(small: None) -> None:
    model = fitted("few owners")
    count, common = divide(model.plan, model.blueprint.expected_rows(1.0))
    assert count > 2
    assert common == {"firm", "detail"}
    made = model.sample(seed=1).to_pandas()
    one = {n: t.to_pandas() for n, t in Weaving(model).whole(scale=1.0, seed=1).items()}
    assert len(made["orders"]) == len(one["orders"])
    assert made["firm"].equals(one["firm"])
    sizes = [t["orders"].groupby("firm").size() for t in (made, one)]
    assert sizes[0].equals(sizes[1])
    assert (made["orders"].groupby("firm").nr.agg(lambda x: sorted(x) == list(range(1, len(x) + 1)))).all()


def test_numbers_inside_a_public_row_go_on_over_parts(small: None) -> None:
    made = fitted("composite keys").sample(scale=3.0).to_pandas()
    assert (made["shop"].groupby("country").nr.agg(lambda x: sorted(x) == list(range(1, len(x) + 1)))).all()
    assert made["shop"].code.is_unique


def test_links_are_as_good_as_in_one_part(small: None) -> None:
    plan, source = junction(public=True)
    alike = pd.DataFrame(
        {
            "user": np.repeat(np.arange(300), 4),
            "item": np.tile(np.arange(4), 300) * 3 + np.repeat(np.arange(300) % 3, 4),
        }
    )
    source = {
        **source,
        "user": frame(300, kind=list("abc") * 100),
        "item": frame(30, kind=list("abc") * 10),
        "likes": alike,
    }
    model = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=1)

    def agreement(tables: dict[str, pd.DataFrame]) -> float:
        likes = tables["likes"].merge(tables["user"], left_on="user", right_on="id")
        return float((likes.merge(tables["item"], left_on="item", right_on="id").eval("kind_x == kind_y")).mean())

    parted = agreement(model.sample(scale=2.0).to_pandas())
    assert parted == pytest.approx(
        agreement({n: t.to_pandas() for n, t in Weaving(model).whole(scale=2.0, seed=0).items()}), abs=0.03
    )
    assert parted > 0.9


@pytest.mark.parametrize("users", [300, 3000])
def test_links_are_learned_from_a_part_whatever_the_size(monkeypatch: pytest.MonkeyPatch, users: int) -> None:
    monkeypatch.setattr(parts, "PART_VALUES", 1000)
    monkeypatch.setattr(parts, "ENOUGH_ROWS", 50)
    plan, source = junction(public=True)
    tastes = np.repeat(np.arange(users) % 3, 4)
    likes = pd.DataFrame({"user": np.repeat(np.arange(users), 4), "item": np.tile(np.arange(4), users) * 3 + tastes})
    kinds = {n: list("abc") * (n // 3) for n in (30, users)}
    source = {
        **source,
        "user": frame(users, kind=kinds[users]),
        "item": frame(30, kind=kinds[30]),
        "likes": likes.sample(frac=1.0, random_state=1),
    }
    seen: list[LinkProblem] = []
    ask = MAP.ask

    def spy(self: MAP, window: object, problem: LinkProblem, **options: object) -> object:
        seen.append(problem)
        return ask(self, window, problem, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(MAP, "ask", spy)
    model = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=1)
    (problem,) = (p for p in seen if p.right_rows == 30)
    assert 100 < problem.links < 500  # a part has 1000 values: rows of both tables, with two columns each
    assert problem.selective == pytest.approx(30 / (4 * users), rel=0.2)  # as it is for the whole
    made = model.sample().to_pandas()
    assert len(made["likes"]) == pytest.approx(4 * users, rel=0.05)
    both = made["likes"].merge(made["user"], left_on="user", right_on="id")
    both = both.merge(made["item"], left_on="item", right_on="id")
    assert both.eval("kind_x == kind_y").mean() > 0.9


def test_the_pilot_has_enough_of_every_table_and_is_bounded_all_the_same() -> None:
    plan, _ = junction(public=True)
    assert parts.pilot(plan, {"user": 1e3, "item": 30.0, "likes": 1e4}) == (Part(0, 1), frozenset())
    many = {"user": 1e7, "item": 30.0, "likes": 1e8}
    count, common = divide(plan, many)
    assert parts.pilot(plan, many) == (Part(0, count), common)
    few = {"user": parts.ENOUGH_ROWS * count / 2, "item": 30.0, "likes": 1.1e8}
    assert parts.pilot(plan, few)[0].count == int(few["user"] // parts.ENOUGH_ROWS)
    handful = {"user": 200.0, "item": 30.0, "likes": 1.1e8}
    assert parts.pilot(plan, handful)[0].count == -(-divide(plan, handful)[0] // parts.PILOT_PARTS)


def test_what_cannot_be_divided_stays_whole(small: None) -> None:
    plan, _ = junction(public=True)
    pairs_of_public = dataclasses.replace(
        plan,
        tables=(
            *plan.tables,
            TablePlan(
                "seen", (whole("item"), whole("user"), KIND), ("item",),
                keys=(key("item", "item", "attribute", None), key("user", "user", "owning", 3)),
            ),
        ),
    )  # fmt: skip
    rows = {"user": 1000.0, "item": 30.0, "likes": 9000.0, "seen": 30.0}
    assert divide(plan, rows) == (14, frozenset())
    # One row per public item over all parts, each owned by a user: users cannot be divided either, but likes can.
    assert divide(pairs_of_public, rows) == (1, frozenset())


def test_protected_tables_that_own_nothing_are_common_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = junction(public=False)
    monkeypatch.setattr(parts, "PART_VALUES", 10_000)
    assert divide(plan, {"user": 1e5, "item": 4e3, "likes": 1e6}) == (221, frozenset({"item"}))
    assert divide(plan, {"user": 1e5, "item": 6e3, "likes": 1e6})[1] == frozenset()


def test_shares_add_up() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 100):
        every = [Part(i, count) for i in range(count)]
        for total in (0.0, 0.49, 1.0, 2.5, 99.6, 12345.0, -3.0):
            assert sum(p.share(total) for p in every) == max(0, round(total))
        totals = rng.integers(0, 50, 200)
        shares = np.array([p.shares(totals, p.starts(200, np.random.default_rng(1))) for p in every])
        assert (shares.sum(axis=0) == totals).all()
        assert (np.abs(shares - totals / count) < 1).all()


def test_numbering_goes_on() -> None:
    earlier = EarlierRows()
    rng = np.random.default_rng(2)
    counted = np.zeros(10, dtype=np.int64)
    for _ in range(5):
        group = rng.integers(0, 10, 12)
        assert (earlier.reached(("t", "nr"), group) == counted[group]).all()
        assert (earlier.reached(("t", "other"), group) == 0).all()
        earlier.add(EarlierRows(numbers={("t", "nr"): np.unique(group, return_counts=True)}))
        counted += np.bincount(group, minlength=10)
        assert earlier.furthest(("t", "nr")) == counted.max()


def broken(times: int, table: pa.Table) -> Iterator[Woven]:
    for _ in range(times):
        yield Woven({"people": table}, {})
    raise MemoryError


def test_a_fault_while_weaving_leaves_nothing_behind(tmp_path: Path) -> None:
    plan, _ = itself()
    table = pa.table({"id": [1], "kind": ["a"], "boss": pa.nulls(1, pa.int64())})
    database = SyntheticDatabase(plan.database, Parts(lambda: broken(2, table), ["people"], 3))
    with pytest.raises(MemoryError):
        database.write(tmp_path / "copy.duckdb")
    assert not list(tmp_path.iterdir())


def test_no_part_is_held_while_the_next_one_is_made(tmp_path: Path) -> None:
    plan, _ = itself()
    made: list[weakref.ref[pa.Table]] = []

    def one(nth: int) -> Woven:
        table = pa.table({"id": [nth], "kind": ["a"], "boss": pa.nulls(1, pa.int64())})
        made.append(weakref.ref(table))
        return Woven({"people": table}, {"rule": 2})

    def weave() -> Iterator[Woven]:
        for nth in range(4):
            assert [table() for table in made] == [None] * nth
            yield one(nth)

    database = SyntheticDatabase(plan.database, (tables := Parts(weave, ["people"], 4)), tables.repairs)
    database.write(tmp_path / "copy")
    assert len(made) == 4
    assert database.rows == {"people": 4}
    assert database.repairs == {"rule": 8}


def test_a_target_that_exists_is_refused_before_anything_is_woven(tmp_path: Path) -> None:
    plan, _ = itself()
    (tmp_path / "copy.duckdb").write_bytes(b"")
    database = SyntheticDatabase(plan.database, Parts(lambda: broken(0, pa.table({})), ["people"], 3))
    with pytest.raises(TargetError, match="exists already"):
        database.write(tmp_path / "copy.duckdb")


def test_foreign_keys_of_a_written_copy_are_declared_and_hold(small: None, tmp_path: Path) -> None:
    fitted("composite keys").sample(scale=3.0).write(tmp_path / "copy.duckdb")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as connection:
        found = connection.execute(
            "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY'"
        ).fetchone()
    assert found == (3,)


def test_the_command_line_never_holds_a_large_copy(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def whole(parts: Parts) -> None:
        raise AssertionError(f"{parts.count} parts were put together")

    fitted("composite keys").save(tmp_path / "shops.dpw")
    monkeypatch.setattr(Parts, "gathered", property(whole))
    monkeypatch.setattr(
        "sys.argv",
        ["dpweave", "sample", str(tmp_path / "shops.dpw"), "-o", str(tmp_path / "copy"), "--scale", "2", "--json"],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"]["shop"] == pq.read_metadata(tmp_path / "copy" / "shop.parquet").num_rows > 250


@pytest.mark.parametrize("method", ["map", "random"])
def test_a_bound_smaller_than_the_number_of_parts_costs_no_links_and_holds_over_all_of_them(monkeypatch, method):
    link = dataclasses.replace(key("shop", "shop", "linking", 3), method=method)
    shop = ColumnPlan(number("shop", nullable=True), None)
    plan = Plan(
        (
            TablePlan("shop", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan("user", (ColumnPlan(ID, None), KIND, shop), ("id",), keys=(link,)),
        ),
        protect=("user", "shop"),
    )
    linked = np.repeat(np.arange(120), 3)[:280]
    target = pd.Series([*linked, *[None] * 1720], dtype="Int64")
    source = {"shop": frame(120, kind=kinds(120)), "user": frame(2000, kind=kinds(2000), shop=target)}
    model = dw.fit(source, plan, epsilon=200.0, delta=1e-6, insecure_seed=1)
    monkeypatch.setattr(parts, "PART_VALUES", 900)
    count, common = divide(plan, model.blueprint.expected_rows(1.0))
    assert count > 3
    assert common == {"shop"}
    found = model.sample(seed=1)["user"]["shop"].drop_null().to_pandas()
    assert found.value_counts().max() <= 3
    assert abs(len(found) - 280) <= 8
