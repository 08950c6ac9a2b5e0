"""Plans: TOML without loss, unknown keys refused with a hint, drafts that read no row."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.cli.screen import after_draft
from dpweave.engines.opening import open_source
from dpweave.errors import PlanError, SourceError, TargetError
from dpweave.explain.draft_notes import draft_text, not_copied
from dpweave.plan.entries import ColumnPlan, KeyPlan, Shares, TablePlan, WorkloadPlan
from dpweave.plan.plan import Plan
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Bins, Categories, Learn, Opaque, even_bins

SHOP = """
CREATE TABLE countries (code TEXT PRIMARY KEY, name TEXT);
CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT, country TEXT REFERENCES countries, born DATE,
  vip BOOLEAN NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers, total DECIMAL(8,2),
  placed TIMESTAMP);
CREATE TABLE items (order_id INTEGER REFERENCES orders, line INTEGER, kind TEXT, price DOUBLE, PRIMARY KEY (order_id,
  line));
CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES staff, grade SMALLINT, note TEXT);
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(SHOP)
    return path


@pytest.fixture
def plan(shop) -> Plan:
    return dw.Plan.draft(shop, protect=["customers", "staff"], public=["countries"])


def test_a_draft_knows_who_owns_what(plan):
    roles = {(t.name, k.key.name): k.role for t in plan.tables for k in t.keys}
    assert sorted(roles.values()) == ["attribute", "linking", "owning", "owning"]
    assert plan.promise.owned_rows("customers", "items") == 100
    assert plan.table["customers"].column["email"].domain == Opaque()
    assert plan.table["customers"].column["vip"].domain == Categories((False, True))
    assert plan.table["customers"].column["born"].domain == Learn()
    assert plan.table["orders"].column["customer"].domain is None
    assert plan.table["staff"].column["note"].domain == Opaque()


def test_a_decimal_without_places_does_not_lose_its_cents(tmp_path):
    path = tmp_path / "pay.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE pay (id INTEGER PRIMARY KEY, amount NUMERIC, fee DECIMAL(8,2), number NUMERIC UNIQUE)"
        )
        connection.executemany("INSERT INTO pay VALUES (?, ?, ?, ?)", [(i, 0.25, 0.25, i) for i in range(400)])
    connection.close()
    drafted, text = draft_text(path, protect=("pay",))
    types = {c.name: str(c.column.type) for c in drafted.table["pay"].columns}
    assert types == {"id": "int64", "amount": "float64", "fee": "decimal(8,2)", "number": "decimal"}
    assert text.count("declared without places, so read as a float") == 1
    declared = drafted.replace_domain("pay", "amount", even_bins(Type("float", bits=64), 0.0, 1.0, 4))
    copy = dw.fit(path, declared, epsilon=50.0, delta=1e-6, insecure_seed=1).sample(seed=1)
    drawn = [v for v in copy["pay"]["amount"].to_pylist() if v is not None]
    assert sum(0.25 <= v < 0.5 for v in drawn) > 0.9 * len(drawn)
    bare = Plan.from_toml(drafted.to_toml().replace('"float64"', '"decimal"'))
    assert any("pay.amount is a decimal without places" in w for w in bare.explain(epsilon=1.0, delta=1e-6).warnings)
    assert not any("without places" in w for w in drafted.explain(epsilon=1.0, delta=1e-6).warnings)


def test_a_text_that_is_a_key_by_name_is_not_called_prose(tmp_path):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE people (id INTEGER PRIMARY KEY, title_id TEXT, title TEXT, age INTEGER CHECK (age > 0))"
        )
    drafted, text = draft_text(tmp_path / "a.duckdb", protect=("people",))
    notes = {line.split(" = ")[0]: line.partition("  # ")[2] for line in text.splitlines()}
    assert notes["title_id"].startswith("looks like a key that is not declared")
    assert notes["title"] == "looks like an identifier or prose"
    left_out = not_copied(tmp_path / "a.duckdb")
    assert left_out == ("people: CHECK((age > 0))",)
    screen = after_draft(drafted, tmp_path / "plan.toml", left_out=left_out).replace("\n", " ")
    assert "identifiers or prose: people.title." in screen
    assert "look like keys: people.title_id." in screen
    for said in (screen, text.replace("\n# ", " ")):
        assert "Not copied, CHECK constraints and views of the source: people: CHECK((age > 0))." in said


def test_a_draft_of_csv_says_what_to_declare(tmp_path):
    (tmp_path / "people.csv").write_text("id,birthDate,paid_amount,city\n1,1980-02-03,2.50,Rome\n")
    _, text = draft_text(tmp_path, protect=("people",))
    assert "The file of people says no types" in text
    said = {line.split(" = ")[0]: line.partition("perhaps ")[2] for line in text.splitlines() if "  # " in line}
    assert said == {"birthDate": 'type = "date"', "paid_amount": 'type = "decimal(12,2)"', "city": ""}
    for kind in ("date", "decimal(12,2)"):
        text = text.replace('type = "text", domain = "learn" }', f'type = "{kind}", domain = "learn" }}', 1)
    typed = Plan.from_toml(text)
    with open_source(tmp_path) as source:
        source.declare(typed.database)
        (row,) = source.fetch(source.table("people").select("birthDate", "paid_amount")).to_pylist()
    assert row == {"birthDate": date(1980, 2, 3), "paid_amount": Decimal("2.50")}
    (tmp_path / "datapackage.json").write_text(
        '{"resources": [{"name": "people", "path": "people.csv", "schema":'
        ' {"fields": [{"name": "id", "type": "integer"}, {"name": "city"}], "primaryKey": "id"}}]}'
    )
    assert "says no types" not in draft_text(tmp_path, protect=("people",))[1]


def test_an_unknown_column_of_a_workload_is_answered_with_each_name_once(plan):
    with pytest.raises(PlanError, match=r"there is no column 'orders\.zzzzzzzzzzzz'") as refused:
        replace(plan, workloads=(WorkloadPlan(("orders.zzzzzzzzzzzz", "customers.born")),))
    assert str(refused.value).count("orders.customer") == 1


def test_a_draft_reads_no_row():
    full = pa.table({"id": [1, 2, 3], "x": [7, 8, 9], "word": ["a", "b", "c"]})
    drafted = [dw.Plan.draft({"t": frame}, protect=["t"]).to_toml() for frame in (full, full.slice(0, 0))]
    assert drafted[0] == drafted[1]


def test_toml_without_loss(plan, tmp_path):
    plan.save(tmp_path / "plan.toml")
    assert Plan.load(tmp_path / "plan.toml") == plan
    assert list(tmp_path.glob("*.part")) == []


def _plan_with(columns: tuple[ColumnPlan, ...], **more) -> Plan:
    key = ColumnPlan(Column("id", Type("integer"), nullable=False), None)
    return Plan((TablePlan("t", (key, *columns), ("id",)),), ("t",), **more)


def test_every_domain_survives_toml():
    kinds = {
        "a": (Type("integer"), Categories((3, 1, 2))),
        "b": (Type("text", length=9), Categories(("x", "ü", 'quo"te'), other=True)),
        "c": (Type("float"), Bins((0.0, 0.1, 1e300), step=0.01)),
        "d": (Type("decimal", precision=8, scale=2), Bins((Decimal("0.10"), Decimal("0.20")))),
        "e": (Type("date"), Bins((date(2020, 1, 1), date(2021, 1, 1)))),
        "f": (Type("timestamp"), Bins((datetime(2020, 1, 1), datetime(2021, 1, 1)))),
        "g": (Type("timestamp", zone=True), Bins((datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)))),
        "h": (Type("time"), Bins((time(1), time(2)))),
        "i": (Type("integer"), Learn(low=0, high=9, bins=3)),
        "j": (Type("date"), Learn(low=date(2020, 1, 1))),
        "k": (Type("boolean"), Categories((False, True))),
        "l": (Type("enum", values=("a,b", "c")), Categories(("a,b", "c"))),
        "m": (Type("json"), Opaque()),
        "n": (Type("decimal", precision=8, scale=2), Categories((Decimal("0.10"), Decimal("0.20")))),
        "o": (Type("text"), Categories((), other=True)),
        "p": (Type("decimal", precision=8, scale=2), Learn(low=Decimal("0.10"), high=Decimal("9.90"))),
        "q": (
            Type("decimal", precision=8, scale=2),
            Bins((Decimal("0.10"), Decimal("0.90")), spots=((Decimal("0.10"), Decimal("0.20"), 7.5),)),
        ),
    }
    plan = _plan_with(tuple(ColumnPlan(Column(n, k), d) for n, (k, d) in kinds.items()))
    assert Plan.from_toml(plan.to_toml()) == plan


def test_odd_names_survive_toml():
    odd = ("a.b", 'with "quotes"', "naïve ☃", "1st", "a = b", "#hash?")
    columns = tuple(ColumnPlan(Column(n, Type("integer")), Learn()) for n in odd[:5])
    plan = _plan_with(columns)
    assert Plan.from_toml(plan.to_toml()) == plan


def test_a_range_becomes_even_bins(plan):
    data = plan.to_dict()
    data["tables"]["staff"]["columns"]["grade"]["domain"] = {"low": 1, "high": 9, "bins": 3}
    assert Plan.from_dict(data).table["staff"].column["grade"].domain == even_bins(Type("integer", bits=16), 1, 9, 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(protct=["x"]), "unknown key 'protct': did you mean 'protect'"),
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d.update(k=1), "k must be"),
        (lambda d: d.update(tables={}), "no tables"),
        (lambda d: d.update(protect="customers"), "protect must be a list"),
        (lambda d: d.update(neighbours="both"), "neighbours must be"),
        (lambda d: d["budget"].update(tabels=1), "did you mean 'tables'"),
        (lambda d: d["budget"].update(tables=0), "budget share tables"),
        (lambda d: d["budget"].update(tables=float("nan")), "budget share tables"),
        (lambda d: d["budget"].update(delta_domains=1.0), "below 1"),
        (lambda d: d["tables"]["orders"].update(mechansm="mst"), "did you mean 'mechanism'"),
        (lambda d: d["tables"]["orders"].update(mechanism="mts"), "mechanism 'mts'"),
        (lambda d: d["tables"]["orders"].update(rows=-1), "rows of table 'orders'"),
        (lambda d: d["tables"]["orders"]["columns"]["total"].update(domain="lern"), "tables.orders.columns.total"),
        (lambda d: d["tables"]["orders"]["columns"]["total"].update(domain={"low": 0}), "low and high"),
        (
            lambda d: d["tables"]["orders"]["columns"]["total"].update(
                domain={"edges": [0, 5, 9], "spots": [[4, 6, 1]]}
            ),
            "columns.total: the spot from 4.* to 6.* does not lie inside one bin",
        ),
        (
            lambda d: d["tables"]["orders"]["columns"]["total"].update(
                domain={"edges": [0, 5, 9], "spots": [[4, 5, 0]]}
            ),
            "weight of the spot from 4.* must be positive",
        ),
        (
            lambda d: d["tables"]["orders"]["columns"]["total"].update(domain={"edges": [0, 5, 9], "spots": [[4, 5]]}),
            "columns.total: its domain does not fit",
        ),
        (lambda d: d["tables"]["orders"]["columns"]["total"].update(domain={"low": 5, "high": 1}), "is empty"),
        (
            lambda d: d["tables"]["orders"]["columns"]["total"].update(domain={"low": "a", "high": "b"}),
            "tables.orders.columns.total",
        ),
        (
            lambda d: d["tables"]["orders"]["columns"]["total"].update(domain=["a"]),
            "columns.total: its domain does not fit the type decimal",
        ),
        (lambda d: d["tables"]["orders"]["columns"]["total"].update(type="money"), "no column type 'money'"),
        (lambda d: d["tables"]["orders"]["columns"]["total"].pop("type"), "lacks 'type'"),
        (
            lambda d: d["tables"]["orders"]["keys"]["customer"].update(max_degree=0),
            "max_degree of the foreign key 'customer'",
        ),
        (
            lambda d: d["tables"]["orders"]["keys"]["customer"].update(max_degree=2.5),
            "max_degree of the foreign key 'customer'",
        ),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].update(role="owner"), "role 'owner'"),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].update(role="attribute"), "leads to a private table"),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].update(method="mapp"), "method 'mapp'"),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].update(references="custmers"), "did you mean 'customers'"),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].pop("role"), "lacks 'role'"),
        (lambda d: d["tables"]["orders"]["keys"]["customer"].update(weight=0), "weight of .*positive number"),
        (
            lambda d: d["tables"]["orders"]["keys"]["customer"].update(weight=1e-320),
            "from 1e-06 to 1e\\+06, not 1e-320",
        ),
        (lambda d: d["tables"]["orders"].update(weight=1e308), "weight of table 'orders'.*not 1e\\+308"),
        (lambda d: d["tables"]["orders"].update(weight=float("nan")), "weight of table 'orders'"),
        (lambda d: d["budget"].update(links=1e308), "budget share links"),
        (lambda d: d["tables"]["staff"].pop("primary_key"), "'staff'"),
        (lambda d: d["tables"].update(orders="x"), "tables.orders must be a table"),
        (lambda d: d["tables"]["orders"]["columns"]["customer"].update(domain=[1, 2]), "customer"),
    ],
)
def test_bad_plans_are_refused_with_the_place_and_a_hint(plan, change, says):
    data = plan.to_dict()
    change(data)
    with pytest.raises(PlanError, match=says):
        Plan.from_dict(data)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"protect = [", b""])
def test_files_that_are_no_plan(content, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(PlanError):
        Plan.load(path)
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "none.toml")


def test_a_plan_for_another_schema(plan, tmp_path):
    other = tmp_path / "other.duckdb"
    changes = {
        "CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER, grade SMALLINT, note TEXT)": (
            SourceError,
            "no table 'countries'",
        ),
        SHOP.replace("grade", "rank"): (PlanError, "'staff' has no column 'grade'"),
        SHOP.replace("grade SMALLINT", "grade DATE"): (PlanError, "staff.grade is date"),
    }
    for ddl, (trouble, says) in changes.items():
        other.unlink(missing_ok=True)
        with duckdb.connect(str(other)) as connection:
            connection.execute(ddl)
        with pytest.raises(trouble, match=says):
            dw.fit(other, plan, epsilon=1.0, delta=1e-6, ledger=tmp_path / "ledger.jsonl")
        assert not (tmp_path / "ledger.jsonl").exists()


def test_two_owning_keys():
    users = TablePlan("users", (ColumnPlan(Column("id", Type("integer"), nullable=False), None),), ("id",))
    columns = tuple(ColumnPlan(Column(c, Type("integer")), None) for c in ("id", "a", "b"))
    keys = tuple(KeyPlan(ForeignKey((c,), "users", ("id",)), "owning", 1) for c in ("a", "b"))
    with pytest.raises(PlanError, match="two owning keys, 'a' and 'b'"):
        Plan((users, TablePlan("orders", columns, ("id",), keys=keys)), ("users",))


def test_a_domain_for_a_key_to_private_rows_is_refused(plan):
    with pytest.raises(PlanError, match="customer"):
        plan.replace_domain("orders", "customer", Categories((1, 2, 3)))


def test_saving_where_nothing_can_be_written(plan, tmp_path):
    with pytest.raises(TargetError, match="cannot be written"):
        plan.save(tmp_path / "nowhere" / "plan.toml")


def test_shares_are_checked():
    for wrong in (0, -1, float("inf"), float("nan"), True, "much"):
        with pytest.raises(PlanError):
            Shares(tables=wrong)
    assert replace(Shares(), tables=2).tables == 2


# -- what cannot be kept is refused before anything is spent ---------------------------------------------------------


def _dated(lower: object, upper: object, **rule: object) -> Plan:
    return Plan.from_toml(f"""
protect = ["clients"]
constraints = [{{ table = "orders", lower = "made", upper = "sent" }}, {{ table = "orders", lower = "joined", upper = "made", key = "client" }}]
[tables.clients]
primary_key = ["id"]
[tables.clients.columns]
id = {{ type = "int64", nullable = false, domain = "key" }}
joined = {{ type = "int64", domain = {{ low = 0, high = 99, bins = 10 }} }}
[tables.orders]
primary_key = ["id"]
[tables.orders.columns]
id = {{ type = "int64", nullable = false, domain = "key" }}
client = {{ type = "int64", nullable = false, domain = "key" }}
made = {{ type = "int64", domain = {lower} }}
sent = {{ type = "int64", domain = {upper} }}
[tables.orders.keys.client]
columns = ["client"]
references = "clients"
target = ["id"]
role = "owning"
max_degree = 3
""")  # noqa: E501


@pytest.mark.parametrize(
    ("lower", "upper", "says"),
    [
        ("{ low = 50, high = 99, bins = 5 }", "{ low = 0, high = 49, bins = 5 }", "contradicts the declared domains"),
        ("{ low = 0, high = 99, bins = 5 }", "[1, 2, 3]", "could not be kept within the declared domains"),
        ("{ low = 10, high = 99, bins = 5 }", "{ low = 0, high = 99, bins = 5 }", "could not be kept"),
        ("{ low = 0, high = 49, bins = 5 }", "{ low = 0, high = 99, bins = 5 }", "let 'made' begin no lower"),
    ],
)
def test_a_rule_that_contradicts_a_domain(lower, upper, says, tmp_path):
    plan = _dated(lower, upper)
    frames = {
        "clients": pa.table({"id": [1], "joined": [1]}),
        "orders": pa.table({"id": [1], "client": [1], "made": [1], "sent": [1]}),
    }
    with pytest.raises(PlanError, match=says):
        dw.fit(frames, plan, epsilon=1.0, delta=1e-6, ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()
    assert _dated("{ low = 0, high = 99, bins = 5 }", '"learn"').explain(epsilon=1.0, delta=1e-6).budget


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([{"columns": ["made"], "dependent": "sent"}, {"columns": ["sent"], "dependent": "made"}], "in a circle"),
        (
            [{"columns": ["made"], "dependent": "sent"}, {"columns": ["kind"], "dependent": "sent"}],
            "both decide 'sent'",
        ),
        ([{"columns": ["made"], "dependent": "kind"}, {"lower": "made", "upper": "sent"}], "both decide 'made'"),
        ([{"lower": "made", "upper": "sent"}, {"lower": "made", "upper": "sent"}], "declared twice"),
    ],
)
def test_rules_that_would_undo_each_other(rules, says):
    columns = tuple(ColumnPlan(Column(n, Type("integer")), Bins((0, 9))) for n in ("made", "sent", "kind"))
    data = _plan_with(columns).to_dict() | {"constraints": [{"table": "t", **rule} for rule in rules]}
    with pytest.raises(PlanError, match=says):
        Plan.from_dict(data)


def test_a_promised_bound_that_declared_rows_cannot_keep():
    data = _dated('"learn"', '"learn"').to_dict() | {"neighbours": "record"}
    data["tables"]["clients"]["rows"] = 100
    data["tables"]["orders"] |= {"rows": 300}
    assert Plan.from_dict(data).neighbours == "record"
    data["tables"]["orders"]["keys"]["client"]["max_degree"] = 1
    with pytest.raises(PlanError, match=r"max_degree = 1 .* raise it to at least 3"):
        Plan.from_dict(data)
    assert Plan.from_dict(data | {"on_excess": "truncate"}).on_excess == "truncate"


@pytest.mark.parametrize(("unique", "order_by"), [("UNIQUE", None), ("", "granted")])
def test_one_row_of_an_owner_comes_after_no_other(tmp_path, unique, order_by):
    with duckdb.connect(tmp_path / "bank.duckdb") as made:
        made.execute("CREATE TABLE account (id INTEGER PRIMARY KEY)")
        made.execute(f"CREATE TABLE loan (account INTEGER NOT NULL {unique} REFERENCES account (id), granted DATE)")
    plan = Plan.draft(str(tmp_path / "bank.duckdb"), protect=["account"])
    assert plan.table["loan"].keys[0].order_by == order_by
