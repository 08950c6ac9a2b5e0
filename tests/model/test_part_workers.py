"""Parts woven by several processes: the same database, in memory of their own, and nothing left where one dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import dpweave as dw
from dpweave.cli import main
from dpweave.errors import ModelFileError, TargetError, UsageError
from dpweave.model import part_workers
from dpweave.model.part_workers import woven_by_workers
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.database import Column, Type
from dpweave.weaving import parts
from dpweave.weaving.parts import EarlierRows, SharedRows, WeavingJob, divide
from tests.weaving.test_parts import fitted, small
from tests.weaving.test_weaver import KIND, frame

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["small"]


def written(model: dw.Model, folder: Path, **how: float) -> dict[str, pa.Table]:
    database = model.sample(scale=2.0, seed=3, **how)
    database.write(folder)
    found = {path.stem: pq.read_table(path) for path in folder.glob("*.parquet")}
    assert {name: table.num_rows for name, table in found.items()} == database.rows
    return {**found, "repairs": dict(database.repairs)}


@pytest.mark.parametrize(
    ("world", "workers"), [("chain", 3), ("composite keys", 2), ("few owners", 2), ("circular", 2)]
)
def test_the_same_database_comes_of_any_number_of_workers(
    small: None, tmp_path: Path, world: str, workers: int
) -> None:
    """With rules that settle values for later parts, numbers that go on inside rows of all parts, common owners."""
    model = fitted(world)
    assert divide(model.plan, model.blueprint.expected_rows(2.0))[0] >= 3
    assert written(model, tmp_path / "two", workers=workers) == written(model, tmp_path / "one")


def test_a_part_whose_numbers_no_longer_fit_is_wired_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one byte end at 127, so later parts lose rows that they would have by themselves."""
    monkeypatch.setattr(parts, "PART_VALUES", 140)
    key = ColumnPlan(Column("id", Type("integer", bits=8), nullable=False), None)
    plan = Plan((TablePlan("people", (key, KIND), ("id",)),), protect=("people",))
    model = dw.fit({"people": frame(120, kind=list("abc") * 40)}, plan, epsilon=50.0, delta=1e-5, insecure_seed=0)
    found = written(model, tmp_path / "two", workers=2)
    assert found == written(model, tmp_path / "one")
    assert found["people"].num_rows == 127


def test_a_worker_that_is_killed_leaves_nothing_behind(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[part_workers._Worker] = []

    class Noted(part_workers._Worker):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(part_workers, "_Worker", Noted)

    def told(what: str, share: float) -> None:
        if made:
            made[0]._process.kill()

    with pytest.raises(TargetError, match=r"part \d+ of \d+ ended by the signal SIGKILL; nothing was written"):
        fitted("composite keys").sample(scale=4.0, workers=2).write(tmp_path / "copy", progress=told)
    assert not list(tmp_path.iterdir())
    assert len(made) == 2
    assert all(worker._process.poll() is not None for worker in made)


def test_what_goes_wrong_in_a_worker_is_said_here(tmp_path: Path) -> None:
    plan = fitted("composite keys").plan
    job = WeavingJob(1.0, 0, 2, frozenset())
    with pytest.raises(ModelFileError, match="cannot be read"):
        list(woven_by_workers(2, job, SharedRows(), model=tmp_path / "gone.dpw", loaded_from=None, plan=plan))


def test_the_command_takes_workers(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted("composite keys").save(tmp_path / "model.dpw")
    for workers in ("1", "2"):
        out = ["-o", str(tmp_path / workers), "--workers", workers, "-q"]
        monkeypatch.setattr("sys.argv", ["dpweave", "sample", str(tmp_path / "model.dpw"), *out])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    one, two = (pq.read_table(tmp_path / workers / "shop.parquet") for workers in ("1", "2"))
    assert one == two


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_must_be_a_whole_number(workers: float) -> None:
    with pytest.raises(UsageError, match="workers must be a whole number of at least 1"):
        fitted("composite keys").sample(workers=workers)  # type: ignore[arg-type]


def test_nobody_waits_for_what_is_known() -> None:
    shared = SharedRows(wait=lambda: EarlierRows({"t": 7}))
    assert shared.hopes_to_fit(("t", "id"), 5, 128)
    assert not shared.hopes_to_fit(("t", "id"), 128, 128)
    assert shared.hopes == {("t", "id"): (5, 128)}
    assert EarlierRows({"t": 122}).leave_room(shared.hopes)
    assert not EarlierRows({"t": 123}).leave_room(shared.hopes)
    assert shared.earlier.rows == {"t": 7}
    assert not shared.hopes_to_fit(("t", "id"), 5, 128)
