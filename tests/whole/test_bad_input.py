"""Bad input gets one sentence from our own exceptions, with the name of what is wrong
and no private value, and nothing half-written.
"""

from __future__ import annotations

import json
import math
import zipfile
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpweave as dw
from dpweave.errors import (
    BudgetError,
    DpweaveError,
    LedgerError,
    ModelFileError,
    PlanError,
    SchemaError,
    SourceError,
    UsageError,
)
from dpweave.plan.plan import Plan
from dpweave.privacy.ledger import set_cap

if TYPE_CHECKING:
    from pathlib import Path

SECRET = 471104711
"""A value that no message may quote."""


def _plan(*, nullable: bool = True, max_degree: object = 3, orders: str = "") -> Plan:
    return Plan.from_toml(f"""
protect = ["users"]
[tables.users]
primary_key = ["id"]
mechanism = "independent"
columns = {{id = {{type = "int64", nullable = false, domain = "key"}}, age = {{type = "int64", domain = {{low = 0, high = 99, bins = 4}}}}}}
[tables.orders]
primary_key = ["id"]
mechanism = "independent"
columns = {{id = {{type = "int64", nullable = false, domain = "key"}}, user = {{type = "int64", nullable = {str(nullable).lower()}, domain = "key"}}, kind = {{type = "text", domain = "learn"}}}}
keys = {{user = {{columns = ["user"], references = "users", target = ["id"], role = "owning", max_degree = {max_degree}}}}}
{orders}
""")  # noqa: E501


def _frames(users=(1, 2, 3), ages=(20, 30, 40), orders=(1, 2), of=(1, 2), kinds=("a", "b")) -> dict[str, pa.Table]:
    return {
        "users": pa.table({"id": pa.array(users, pa.int64()), "age": pa.array(ages, pa.int64())}),
        "orders": pa.table(
            {"id": pa.array(orders, pa.int64()), "user": pa.array(of, pa.int64()), "kind": pa.array(kinds, pa.string())}
        ),
    }


def _fit(frames=None, plan=None, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "insecure_seed": 0} | more
    return dw.fit(_frames() if frames is None else frames, _plan() if plan is None else plan, **settings)


def _one_sentence(error: DpweaveError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert str(SECRET) not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_epsilon(epsilon, tmp_path):
    with pytest.raises(UsageError, match="epsilon") as error:
        _fit(epsilon=epsilon, ledger=tmp_path / "l.jsonl")
    _one_sentence(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delta", [0, 1, 0.0, 1.0, -1e-9, 2, math.nan, "1e-6", None])
def test_bad_delta(delta, tmp_path):
    with pytest.raises(UsageError, match="delta") as error:
        _fit(delta=delta, ledger=tmp_path / "l.jsonl")
    _one_sentence(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bound", [0, -3, 1.5, '"many"', "true"])
def test_bad_max_degree(bound):
    with pytest.raises(PlanError, match="max_degree of the foreign key 'user' of 'orders'") as error:
        _plan(max_degree=bound)
    _one_sentence(error.value)


def test_no_such_table(tmp_path):
    frames = _frames()
    del frames["orders"]
    with pytest.raises(SourceError, match="no table 'orders'") as error:
        _fit(frames, ledger=tmp_path / "l.jsonl")
    _one_sentence(error.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DpweaveError, match="custmers"):
        dw.Plan.draft(frames, protect=["custmers"])


def test_missing_primary_key():
    with pytest.raises(PlanError, match="'users' has no primary key"):
        Plan.from_toml('protect = ["users"]\n[tables.users.columns]\nage = {type = "int64", domain = "learn"}')


def test_foreign_key_to_nowhere():
    data = _plan().to_dict()
    data["tables"]["orders"]["keys"]["user"]["references"] = "people"
    with pytest.raises(SchemaError, match="'user' of 'orders' leads to a table 'people'"):
        Plan.from_dict(data)
    data["tables"]["orders"]["keys"]["user"] |= {"references": "users", "target": ["uid"]}
    with pytest.raises(SchemaError, match="column 'uid'"):
        Plan.from_dict(data)


def test_duplicate_primary_keys_are_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(SourceError, match=r"'users' share the same id") as error:
        _fit(_frames(users=(SECRET, SECRET, 3)), ledger=tmp_path / "l.jsonl")
    _one_sentence(error.value)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    assert "charge" not in kinds


def test_dangling_references_count_as_null():
    model = _fit(_frames(of=(1, SECRET)), epsilon=100.0)
    made = model.sample(seed=0)
    users = set(made["users"]["id"].to_pylist())
    assert set(made["orders"]["user"].to_pylist()) - {None} <= users


def test_dangling_references_of_a_mandatory_key():
    made = _fit(_frames(of=(1, SECRET)), _plan(nullable=False), epsilon=100.0).sample(seed=0)
    assert None not in made["orders"]["user"].to_pylist()


@pytest.mark.parametrize(
    "frames",
    [
        _frames(ages=(None, None, None), kinds=(None, None)),
        _frames(orders=(), of=(), kinds=()),
        _frames(users=(), ages=(), orders=(), of=(), kinds=()),
        _frames(ages=(-(2**63), 2**63 - 1, SECRET)),
        _frames(kinds=("\0", "🦆" * 1000)),
    ],
    ids=["all-null columns", "empty table", "no rows at all", "out of range", "odd text"],
)
def test_odd_rows_go_through(frames):
    made = _fit(frames).sample(seed=1)
    assert set(made) == {"users", "orders"}
    assert str(SECRET) not in str(made["orders"]["kind"].to_pylist())


def test_a_plan_for_another_schema():
    frames = _frames()
    frames["users"] = frames["users"].drop_columns(["age"])
    with pytest.raises(PlanError, match="'users' has no column 'age'"):
        _fit(frames)
    frames["users"] = frames["users"].append_column("age", pa.array([[1]] * 3))
    with pytest.raises(DpweaveError, match="age"):
        _fit(frames)


def test_broken_bounds_under_record(tmp_path):
    data = _plan(max_degree=1).to_dict() | {"neighbours": "record"}
    with pytest.raises(SourceError, match="'user'") as error:
        _fit(_frames(users=(SECRET, 2, 3), of=(SECRET, SECRET)), Plan.from_dict(data), ledger=tmp_path / "l.jsonl")
    _one_sentence(error.value)
    assert "charge" not in (tmp_path / "l.jsonl").read_text()


@pytest.mark.parametrize("content", [b"not a ledger\n", b'{"n": 1}\n', b"\x00\xff\n\n", b'{"n": 2, "chain": "x"}\n'])
def test_unreadable_ledgers_stop_everything(content, tmp_path):
    path = tmp_path / "l.jsonl"
    path.write_bytes(content)
    with pytest.raises(LedgerError) as error:
        _fit(ledger=path)
    _one_sentence(error.value)
    assert path.read_bytes() == content


def test_a_ledger_that_lost_its_middle(tmp_path):
    path = tmp_path / "l.jsonl"
    _fit(ledger=path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    with pytest.raises(LedgerError):
        _fit(ledger=path)


def test_a_ledger_torn_in_its_last_line_goes_on(tmp_path):
    path = tmp_path / "l.jsonl"
    _fit(ledger=path)
    path.write_bytes(path.read_bytes()[:-10])
    _fit(ledger=path)


def test_a_ledger_where_no_file_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BudgetError) as error:
        _fit(ledger=tmp_path / "file" / "l.jsonl")
    _one_sentence(error.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.dpw"
    _fit().save(path)
    return path


def test_truncated_and_damaged_models(saved, tmp_path):
    whole = saved.read_bytes()
    for i, cut in enumerate((0, 1, 10, len(whole) // 2, len(whole) - 1)):
        path = tmp_path / f"{i}.dpw"
        path.write_bytes(whole[:cut])
        with pytest.raises(ModelFileError) as error:
            dw.load(path)
        _one_sentence(error.value)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    (tmp_path / "flipped.dpw").write_bytes(flipped)
    try:
        dw.load(tmp_path / "flipped.dpw")
    except ModelFileError as error:
        _one_sentence(error)


@pytest.mark.parametrize("part", ["manifest.json", "plan.toml", "certificate.json", "release.json", "arrays.arrow"])
@pytest.mark.parametrize("how", ["gone", "garbage", "empty object"])
def test_models_that_lack_a_part(saved, tmp_path, part, how):
    path = tmp_path / "m.dpw"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if name != part:
                new.writestr(name, old.read(name))
            elif how != "gone":
                new.writestr(name, b"\xff\x00garbage" if how == "garbage" else b"{}")
    with pytest.raises(ModelFileError) as error:
        dw.load(path)
    _one_sentence(error.value)


def test_models_that_are_not_there(tmp_path):
    with pytest.raises(ModelFileError, match="cannot be read"):
        dw.load(tmp_path / "none.dpw")
    with pytest.raises(ModelFileError):
        dw.load(tmp_path)


def test_saving_where_nothing_can_be_saved(tmp_path):
    model = _fit()
    with pytest.raises(DpweaveError, match="cannot be written"):
        model.save(tmp_path / "none" / "m.dpw")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scale", "seed"), [(0, 0), (-1, 0), (math.nan, 0), (math.inf, 0), ("2", 0), (1.0, -1), (1.0, 1.5), (1.0, "x")]
)
def test_bad_samples(saved, scale, seed):
    with pytest.raises(UsageError):
        dw.load(saved).sample(scale=scale, seed=seed)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"SQLite format 3\x00broken"])
def test_sources_that_are_no_database(content, tmp_path):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(DpweaveError) as error:
        dw.Plan.draft(path, protect=["users"])
    _one_sentence(error.value)
    with pytest.raises(SourceError, match="no file or folder"):
        dw.Plan.draft(tmp_path / "none.duckdb", protect=["users"])


def test_a_source_that_fails_in_the_middle_says_nothing_private(tmp_path):
    """Driver messages quote values; ours name the database and the kind of trouble."""
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, age BIGINT)")
        connection.execute(f"INSERT INTO users VALUES ({SECRET}, 1)")
    from dpweave.engines.opening import open_source

    with open_source(path) as source:
        rows = source.table("users")
        broken = rows.select(x=rows.id.cast("string").cast("date"))
        with pytest.raises(SourceError) as error:
            source.fetch(broken)
    _one_sentence(error.value)


@pytest.mark.parametrize(
    "bad", [f"{SECRET},8,9", str(SECRET), f'{SECRET},"a'], ids=["too many fields", "too few", "open quote"]
)
def test_a_line_that_does_not_fit_its_csv_header_is_refused_before_anything_is_charged(tmp_path, bad):
    (tmp_path / "people.csv").write_text("id,x\n" + "".join(f"{i},{i % 3}\n" for i in range(300)))
    (tmp_path / "visits.csv").write_text(
        "person,y\n" + "".join(f"{i % 300},{i % 5}\n" for i in range(900)) + f"{bad}\n"
    )
    fields = {"people": ("id", "x"), "visits": ("person", "y")}
    resources = [
        {"name": t, "path": f"{t}.csv", "schema": {"fields": [{"name": c, "type": "integer"} for c in f]}}
        for t, f in fields.items()
    ]
    resources[0]["schema"]["primaryKey"] = ["id"]
    key = {"fields": ["person"], "reference": {"resource": "people", "fields": ["id"]}}
    resources[1]["schema"]["foreignKeys"] = [key]
    (tmp_path / "datapackage.json").write_text(json.dumps({"name": "d", "resources": resources}))
    plan = dw.Plan.draft(tmp_path, protect=["people"])
    with pytest.raises(SourceError, match="a CSV file has a line that does not fit its header") as refused:
        dw.fit(tmp_path, plan, epsilon=1, delta=1e-6, ledger=tmp_path / "ledger.jsonl")
    assert str(SECRET) not in str(refused.value)
    assert _charges(tmp_path / "ledger.jsonl") == 0


def test_a_damaged_parquet_file_is_refused_before_anything_is_charged(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    values = pa.array(np.random.default_rng(0).integers(0, 1 << 40, 5000))
    table = pa.table(
        {"id": pa.array(range(5000)), "x": values}, schema=pa.schema([("id", "int64", False), ("x", "int64", False)])
    )
    pq.write_table(table, folder / "people.parquet", use_dictionary=False)
    column = pq.read_metadata(folder / "people.parquet").row_group(0).column(1)
    content = bytearray((folder / "people.parquet").read_bytes())
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    (folder / "people.parquet").write_bytes(content)
    plan = dw.Plan.draft(folder, protect=["people"])
    with pytest.raises(SourceError, match="'people' cannot be read to their end"):
        dw.fit(folder, plan, epsilon=1, delta=1e-6, ledger=tmp_path / "ledger.jsonl")
    assert _charges(tmp_path / "ledger.jsonl") == 0


def test_no_file_is_read_where_the_budget_is_used_up(tmp_path):
    folder, book = tmp_path / "data", tmp_path / "ledger.jsonl"
    folder.mkdir()
    (folder / "people.csv").write_text("id,x\n" + "".join(f"{i},{i % 3}\n" for i in range(300)))
    plan = dw.Plan.draft(folder, protect=["people"])
    dw.fit(folder, plan, epsilon=1, delta=1e-6, ledger=book)
    set_cap(book, database="data", epsilon=1.0, delta=1e-6)
    (folder / "people.csv").write_text("id,x\n1,2,3\n")
    with pytest.raises(BudgetError):
        dw.fit(folder, plan, epsilon=1, delta=1e-6, ledger=book)


def _charges(book: Path) -> int:
    return sum(json.loads(line)["kind"] == "charge" for line in book.read_text().splitlines())
