"""A copy woven on Spark's executors is the copy that `sample` weaves, and is written from there."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpweave as dw
from dpweave.engines.ibis.source import IbisSource
from dpweave.errors import SourceError, TargetError, UsageError
from dpweave.model.spark_copy import Weaving, spark_schema, woven_on_spark
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.arrow_types import arrow_schema
from dpweave.schema.database import Column, Type
from dpweave.weaving import parts
from dpweave.weaving.parts import WeavingJob, divide
from tests.backends import every_type
from tests.weaving.test_parts import fitted, small
from tests.weaving.test_weaver import KIND, frame

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["small"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


def assert_same(model: dw.Model, copy: Any) -> None:
    database = model.sample(scale=2.0, seed=3)
    assert list(copy) == list(database)
    for name, table in database.items():
        shown = spark_schema(arrow_schema(database.schema[name]))
        assert copy[name].toArrow().cast(shown) == table.cast(shown)
    assert copy.repairs == dict(database.repairs)


@pytest.mark.parametrize("world", ["chain", "composite keys"])
def test_the_same_database_comes_of_executors(spark: Any, small: None, world: str) -> None:
    """With rules that settle values for later parts, and numbers that go on inside rows of all parts."""
    model = fitted(world)
    assert divide(model.plan, model.blueprint.expected_rows(2.0))[0] >= 3
    copy = model.sample_spark(spark, scale=2.0, seed=3)
    assert_same(model, copy)
    copy.close()


def test_parts_whose_numbers_end_too_early_are_counted_again(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one byte end at 127, so later parts lose rows that they would have by themselves."""
    monkeypatch.setattr(parts, "PART_VALUES", 140)
    key = ColumnPlan(Column("id", Type("integer", bits=8), nullable=False), None)
    plan = Plan((TablePlan("people", (key, KIND), ("id",)),), protect=("people",))
    model = dw.fit({"people": frame(120, kind=list("abc") * 40)}, plan, epsilon=50.0, delta=1e-5, insecure_seed=0)
    copy = model.sample_spark(spark, scale=2.0, seed=3)
    assert_same(model, copy)
    assert copy["people"].count() == 127


def test_it_is_written_by_the_executors(spark: Any, tmp_path: Path) -> None:
    model = fitted("few owners")
    copy, database = model.sample_spark(spark, seed=1), model.sample(seed=1)
    copy.write(str(tmp_path / "copy"))
    copy.write_tables()
    for name, table in database.items():
        assert pq.read_table(tmp_path / "copy" / name).cast(table.schema) == table
        assert spark.table(name).count() == table.num_rows
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        copy.write(str(tmp_path / "copy"))
    copy.write(str(tmp_path / "copy"), overwrite=True)
    copy.close()
    for name in database:
        spark.sql(f"DROP TABLE {name}")


def die(content: bytes, blamed: Path | None) -> Any:
    """What an executor does that runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_lost_executor_leaves_no_copy(spark: Any) -> None:
    """Locally no task is tried again."""
    model = fitted("few owners")
    weaving = Weaving(b"", None, die, WeavingJob(1.0, 0, 1, frozenset()))
    with pytest.raises(TargetError, match="Spark could not weave the copy, of which nothing was written"):
        woven_on_spark(spark, weaving, model.plan)


def test_a_job_that_fails_in_a_fit_is_said_and_charges_are_kept(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = ibis.pyspark.from_connection(spark)
    spark.createDataFrame([(i, "abc"[i % 3]) for i in range(60)], "id bigint, kind string").createOrReplaceTempView("p")
    key = ColumnPlan(Column("id", Type("integer"), nullable=False), None)
    plan = Plan((TablePlan("p", (key, KIND), ("id",)),), protect=("p",))
    ledger, run = tmp_path / "ledger.jsonl", IbisSource._run

    def lost(source: IbisSource, query: str, schema: pa.Schema) -> Any:
        charged = ledger.exists() and '"charge"' in ledger.read_text()
        return run(source, "SELECT raise_error('42 is private')" if charged else query, schema)

    monkeypatch.setattr(IbisSource, "_run", lost)
    with pytest.raises(SourceError, match="a job of Spark failed, as where executors are lost") as caught:
        dw.fit(connection, plan, epsilon=1.0, delta=1e-6, insecure_seed=0, ledger=ledger)
    assert "42" not in str(caught.value)
    assert '"charge"' in ledger.read_text()
    spark.catalog.dropTempView("p")


def test_what_cannot_be_asked_for_is_refused_before_spark_is_told(tmp_path: Path) -> None:
    model = fitted("few owners")
    with pytest.raises(UsageError, match="scale must be a positive number"):
        model.sample_spark(None, scale=0.0)
    with pytest.raises(UsageError, match="seed must be a whole number"):
        model.sample_spark(None, seed=-1)


def test_every_type_has_one_in_spark() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    table, rows = every_type()
    shown = spark_schema(arrow_schema(table))
    assert len(from_arrow_schema(shown, prefer_timestamp_ntz=True).fields) == len(table.columns)
    assert rows.cast(shown).num_rows == rows.num_rows
    assert pa.types.is_string(shown.field("clock").type)
