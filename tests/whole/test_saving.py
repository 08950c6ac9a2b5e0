"""A model is paid for once: whatever was saved can be loaded, and saved and loaded again, and stays the same."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.links.link_method import METHODS
from dpweave.plan.mechanisms import BUILT_IN
from dpweave.plan.plan import Plan
from tests.fitting.test_external_rows import TOML, rows_made

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(3)
OWNER = np.repeat(np.arange(80), RNG.integers(0, 4, 80))
SOURCE = {
    "users": pa.table(
        {"id": np.arange(80), "sex": RNG.choice(["f", "m"], 80), "age": pa.array(RNG.integers(0, 100, 80))}
    ),
    "films": pa.table({"id": np.arange(30), "genre": RNG.choice(["drama", "comedy", "noir"], 30)}),
    "views": pa.table(
        {
            "id": np.arange(len(OWNER)),
            "user": OWNER,
            "film": RNG.integers(0, 30, len(OWNER)),
            "stars": RNG.integers(1, 4, len(OWNER)),
        }
    ),
}


def fitted(mechanism: str, method: str = "auto", epsilon: float = 8.0) -> dw.Model:
    """A model all of whose tables are by one mechanism; of tables made elsewhere there is one."""
    plan = Plan.from_toml(TOML)
    names = {t.name: mechanism for t in plan.tables}
    if mechanism == "external":
        names |= {"films": "independent", "views": "independent"}
    tables = [
        replace(
            t,
            mechanism=names[t.name],
            external=t.external if names[t.name] == "external" else None,
            keys=tuple(replace(k, method=method) for k in t.keys),
        )
        for t in plan.tables
    ]
    plan = replace(plan, tables=tuple(tables))
    external = {"users": rows_made(60)} if mechanism == "external" else None
    return dw.fit(SOURCE, plan, epsilon=epsilon, delta=1e-5, external=external, insecure_seed=1)


def same(one: dw.Model, other: dw.Model) -> bool:
    first, second = one.sample(seed=5), other.sample(seed=5)
    return all(first[t].equals(second[t]) for t in first)


@pytest.mark.parametrize(
    ("mechanism", "method"),
    [*((m, "auto") for m in BUILT_IN), *(("independent", m) for m in METHODS)],
)
def test_a_loaded_model_can_be_saved_again(tmp_path: Path, mechanism: str, method: str) -> None:
    model, first, second = fitted(mechanism, method), tmp_path / "first.dpw", tmp_path / "second.dpw"
    model.save(first)
    loaded = dw.load(first)
    loaded.save(second)
    assert same(model, dw.load(second))
    assert first.read_bytes() == second.read_bytes()
    loaded.save(first)  # onto itself
    assert same(model, dw.load(first))
    assert dw.load(second).certificate == model.certificate


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("epsilon", [8.0, 0.4])
def test_automatic_tables_that_lost_the_name_of_their_mechanism_are_readable(tmp_path: Path, epsilon: float) -> None:
    """Versions before wrote such files when a loaded model was saved."""
    path = tmp_path / "m.dpw"
    model = fitted("auto", epsilon=epsilon)
    model.save(path)
    parts = contents(path)
    manifest = json.loads(parts["manifest.json"])
    for table in manifest["tables"].values():
        table["state"] = table["state"]["state"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (parts | {"manifest.json": json.dumps(manifest).encode()}).items():
            archive.writestr(name, content)
    assert same(model, dw.load(path))
