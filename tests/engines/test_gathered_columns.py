"""Gathered columns: joined in every engine as they are made of Arrow tables, and worth what they are there for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.engines.opening import open_source
from dpweave.engines.source_base import ROW
from dpweave.engines.writing import write
from dpweave.errors import DpweaveError, SchemaError
from dpweave.explain.draft_notes import comments
from dpweave.plan.plan import Plan
from dpweave.report.fidelity import fidelity
from dpweave.schema.gathered import gathered_column

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backends import PostgresServer
    from tests.mariadb_server import MariaDBServer

GENRES = ("Drama", "Comedy", "War")
ID = {"type": "int64", "nullable": False, "domain": "key"}


def key(column: str, target: str, role: str = "attribute", **more: Any) -> dict[str, Any]:
    return {"columns": [column], "references": target, "target": ["id"], "role": role, **more}


def gathered(value: object, column: str = "genre_id.name", kind: str = "boolean") -> dict[str, Any]:
    where = {"table": "film_genre", "key": "film_id", "column": column, "value": value}
    return {"type": kind, "nullable": False, "domain": [False, True], "gathered": where}


def plan_of(**columns: dict[str, Any]) -> Plan:
    """Users who have seen films, whose genres lie behind a junction."""
    return Plan.from_dict(
        {
            "protect": ["users"],
            "public": ["film", "genre", "film_genre"],
            "tables": {
                "film": {"primary_key": ["id"], "columns": {"id": ID, **columns}},
                "genre": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": ID,
                        "name": {"type": "text", "domain": "opaque"},
                        "since": {"type": "int64", "domain": "learn"},
                    },
                },
                "film_genre": {
                    "primary_key": ["film_id", "genre_id"],
                    "columns": {"film_id": ID, "genre_id": ID, "main": {"type": "boolean", "domain": [False, True]}},
                    "keys": {"film_id": key("film_id", "film"), "genre_id": key("genre_id", "genre")},
                },
                "users": {
                    "primary_key": ["id"],
                    "columns": {"id": ID, "sex": {"type": "text", "nullable": False, "domain": ["f", "m"]}},
                },
                "seen": {
                    "primary_key": ["id"],
                    "columns": {"id": ID, "user_id": ID, "film_id": ID},
                    "keys": {
                        "user_id": key("user_id", "users", "owning", max_degree=6),
                        "film_id": key("film_id", "film"),
                    },
                },
            },
        }
    )


@pytest.fixture(scope="module")
def plan() -> Plan:
    count = {"type": "int64", "nullable": False, "domain": "learn"}
    return plan_of(
        **{f"is_{g}": gathered(g) for g in GENRES},
        old=gathered(1900, "genre_id.since"),
        main=gathered(True, "main"),
        genres={**count, "gathered": {"table": "film_genre", "key": "film_id"}},
    )


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """Women see dramas, men see others. Some films have no genre, one genre has no name."""
    rng = np.random.default_rng(0)
    films, users = 40, 1500
    pairs = [(f, g) for f in range(films - 3) for g in range(4) if rng.random() < 0.4]
    drama = np.isin(np.arange(films), [f for f, g in pairs if g == 0])
    sex = rng.choice(["f", "m"], users)
    who = np.repeat(np.arange(users), rng.integers(1, 6, users))
    weights = {s: np.where(drama == (s == "f"), 5.0, 1.0) for s in "fm"}
    seen = np.array([rng.choice(films, p=weights[sex[w]] / weights[sex[w]].sum()) for w in who])
    main = [None, True, False]
    return {
        "film": pa.table({"id": np.arange(films)}),
        "genre": pa.table({"id": [1, 2, 3, 4], "name": [*GENRES, None], "since": [1900, 1900, 1950, None]}),
        "film_genre": pa.table(
            {
                "film_id": [f for f, _ in pairs],
                "genre_id": [g + 1 for _, g in pairs],
                "main": [main[int(i)] for i in rng.integers(3, size=len(pairs))],
            }
        ),
        "users": pa.table({"id": np.arange(users), "sex": sex}),
        "seen": pa.table({"id": np.arange(len(who)), "user_id": who, "film_id": seen}),
    }


@pytest.mark.parametrize("engine", ["frames", "duckdb", "sqlite", "csv", "postgres", "mariadb"])
def test_engines_join_what_arrow_tables_say(
    engine: str, plan: Plan, tables: dict[str, pa.Table], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: Any = tables
    if engine in ("postgres", "mariadb"):
        server: PostgresServer | MariaDBServer = request.getfixturevalue(engine)
        source = server.fresh()
    elif engine != "frames":
        source = str(tmp_path / {"csv": "folder.csv"}.get(engine, f"d.{engine}"))
    if engine != "frames":
        write(plan.database.stored, tables, source, **({"overwrite": True} if "://" in str(source) else {}))
    with open_source(source) as opened:
        opened.declare(plan.database)
        found = opened.whole("film").sort_by("id")
        numbered = opened.fetch(opened.numbered("film", alone="is_Drama"))
    assert found.column_names == [c.name for c in plan.database["film"].columns]
    for column in plan.database["film"].gathered:
        said = gathered_column(tables, plan.database, "film", column).to_pylist()
        assert found[column.name].to_pylist() == said, column.name
        assert len(set(said)) > 1
    assert set(numbered.column_names) == {"is_Drama", ROW}
    assert sum(bool(v) for v in numbered["is_Drama"].to_pylist()) == sum(found["is_Drama"].to_pylist())


def share_of_dramas(tables: dict[str, pa.Table], drama: np.ndarray) -> dict[str, float]:
    seen = tables["seen"].to_pandas().merge(tables["users"].to_pandas(), left_on="user_id", right_on="id")
    return {s: float(drama[g["film_id"]].mean()) for s, g in seen.groupby("sex")}


def test_links_know_what_lies_behind_a_junction(plan: Plan, tables: dict[str, pa.Table], tmp_path: Path) -> None:
    some = plan_of(is_Drama=gathered("Drama"))
    model = dw.fit(tables, some, epsilon=4.0, delta=1e-6, insecure_seed=1)
    copy = model.sample(seed=1)
    assert copy["film"].equals(tables["film"].cast(copy["film"].schema))
    drama = np.array(gathered_column(tables, some.database, "film", some.database["film"].column["is_Drama"]))
    real, found = (share_of_dramas(t, drama) for t in (tables, copy))
    assert real["f"] - real["m"] > 0.5
    assert all(abs(real[s] - found[s]) < 0.1 for s in "fm")
    assert not [c.name for c in fidelity(model, copy).checks if not c.passed and not c.advisory]
    model.save(tmp_path / "m.dpw")
    again = dw.load(tmp_path / "m.dpw")
    assert again.plan == model.plan
    again.sample(seed=1).write(tmp_path / "copy.duckdb")
    evaluation = dw.evaluate(tables, copy, model.plan, k=2, learners=False)
    off = next(e.mean for e in evaluation.errors if "film" in e.where)
    assert off["synthetic"] < off["random wiring"] / 4
    with open_source(str(tmp_path / "copy.duckdb")) as opened:
        assert set(opened.database["film"].column) == {"id"}


def test_a_plan_keeps_what_is_gathered(plan: Plan) -> None:
    assert Plan.from_toml(plan.to_toml()) == plan
    assert plan.database.stored["film"].columns == plan.database["film"].columns[:1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": "film_gender"}, "not there, 'film_gender'"),
        ({"key": "film"}, "not there, 'film'"),
        ({"key": "genre_id"}, "leads to 'genre'"),
        ({"table": "seen", "column": "id", "value": 1}, "'seen', which is not public"),
        ({"column": "genre.name"}, "no foreign key 'genre'"),
        ({"column": "genre_id.nome"}, "no column 'nome'"),
        ({"value": 3}, "a value that does not fit"),
        ({"column": "genre_id.since"}, "a value that does not fit"),
        ({"value": None}, "both a column and a value"),
    ],
)
def test_wrong_columns_are_refused(change: dict[str, Any], words: str) -> None:
    column = gathered("Drama")
    where = {**column["gathered"], **change}
    with pytest.raises(DpweaveError, match=words):
        plan_of(is_drama={**column, "gathered": {k: v for k, v in where.items() if v is not None}})


def test_a_draft_points_at_junctions() -> None:
    said = comments(plan_of()).tables
    assert any('gathered = { table = "film_genre", key = "film_id"' in line for line in said["film"])
    assert not any("gathered" in line for line in said["genre"])  # no private row leads there


def test_a_gathered_column_has_one_type_and_no_nulls() -> None:
    with pytest.raises(SchemaError, match="of type boolean with nullable = false, not int64"):
        plan_of(is_drama=gathered("Drama", kind="int64"))
    whole = plan_of(is_drama=gathered("Drama")).database["film"].column["is_drama"]
    with pytest.raises(SchemaError, match="not boolean and nullable"):
        replace(whole, nullable=True)
