"""A plan and a model of a stranger: names and values that would be statements if anything took them for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    """x"; DROP TABLE victims; --""",
    """x`; DROP TABLE victims; -- x""",
    """x'; DROP TABLE victims; --""",
    """x\\'; DROP TABLE victims; --""",
    """x\\"); DROP TABLE victims; --""",
    """x]; DROP TABLE victims; --""",
    """x$$; DROP TABLE victims; --""",
    """x%s {0} :a ?; /* x""",
)
TABLE = HOSTILE[0]


def tables() -> dict[str, pa.Table]:
    """One table of a hostile name, with columns of hostile names that hold hostile values."""
    rng = np.random.default_rng(0)
    values = {name: pa.array(rng.choice(HOSTILE, 200)) for name in HOSTILE[1:]}
    links = {"up": pa.array([None if i % 3 else i for i in range(200)], pa.int64())}
    return {TABLE: pa.table({"id": np.arange(200), **links, **values})}


def plan() -> dw.Plan:
    """A plan whose categories are hostile too; half of them are learned."""
    text = [
        f"protect = [{toml(TABLE)}]",
        f"[tables.{toml(TABLE)}]",
        'primary_key = ["id"]',
        'mechanism = "independent"',
    ]
    text += [f"[tables.{toml(TABLE)}.columns]", 'id = { type = "int64", nullable = false, domain = "key" }']
    text += ['up = { type = "int64", domain = "key" }']
    for i, name in enumerate(HOSTILE[1:]):
        domain = '"learn"' if i % 2 else "[" + ", ".join(map(toml, HOSTILE)) + "]"
        text.append(f'{toml(name)} = {{ type = "text", nullable = true, domain = {domain} }}')
    return dw.Plan.from_toml("\n".join(text))


def toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def fit(source: object) -> dw.Model:
    return dw.fit(source, plan(), epsilon=50.0, insecure_seed=1)


@pytest.fixture(scope="module")
def model() -> dw.Model:
    return fit(tables())


def require_text(source: object) -> None:
    """The copy is a source as good as any, and what it holds is what the stranger wrote, and text."""
    again = fit(source).sample(seed=1)[TABLE]
    for name in HOSTILE[1:]:
        assert {*again[name].to_pylist()} <= {*HOSTILE, None, "(other)"}
    assert again.num_rows > 150


@pytest.mark.parametrize("target", ["c.sqlite", "c.duckdb", "c.csv", "c"])
def test_in_files(model: dw.Model, tmp_path: Path, target: str) -> None:
    (tmp_path / "place").mkdir()
    model.sample(seed=1).write(tmp_path / "place" / target)
    assert [p.name for p in (tmp_path / "place").iterdir()] == [target]
    assert [p.name for p in tmp_path.iterdir()] == ["place"]
    require_text(tmp_path / "place" / target)


def test_names_that_are_paths_lead_nowhere(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    source = {"../../x": pa.table({"id": range(50), "../y": ["f", "m"] * 25})}
    copy = dw.fit(source, dw.Plan.draft(source, protect=["../../x"]), epsilon=9.0, insecure_seed=1).sample(seed=1)
    for target in ("c.sqlite", "c.duckdb", "c.csv", "c"):
        copy.write(place / target)
    found = {str(p.relative_to(place)) for p in tmp_path.rglob("*") if p.is_file()}
    written = {"c.csv/..%2F..%2Fx.csv", "c/..%2F..%2Fx.parquet", "c.csv/datapackage.json", "c/datapackage.json"}
    assert found == {"c.sqlite", "c.duckdb"} | written


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_on_servers(model: dw.Model, request: pytest.FixtureRequest, name: str) -> None:
    server: Any = request.getfixturevalue(name)
    url = server.fresh()
    server.run("CREATE TABLE victims (id int)", "INSERT INTO victims VALUES (1), (2)", url=url)
    for _ in range(2):
        model.sample(seed=1).write(url, overwrite=True)
    require_text(url)
    server.run("INSERT INTO victims VALUES (3)", url=url)  # fails if the table is gone
