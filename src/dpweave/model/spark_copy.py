"""A copy woven by the executors of a Spark session, part by part: rows never pass through the driver.

One task weaves one part. As in :mod:`dpweave.model.part_workers`, all parts rest on the first one, and what rows and
numbers of a part are depends on what the parts before it count. So there are three jobs: the first part, which leaves
what all share; the numbers of the others, wired without a word from each other; and the others themselves, each told
what is before it. Where rules settle values for later parts, one task weaves all parts, one after the other. Whoever
it is that weaves a part, it comes out the same, and a lost task is simply run again.

dpweave must be installed where the executors run.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from dpweave.engines.stream import BATCH_ROWS
from dpweave.errors import TargetError
from dpweave.model.part_workers import Wired
from dpweave.plan.rules import settling_order
from dpweave.schema.arrow_types import arrow_schema
from dpweave.weaving.known_links import KnownLinks
from dpweave.weaving.parts import EarlierRows, SharedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from dpweave.model.part_workers import Wirable
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Database
    from dpweave.weaving.parts import WeavingJob
    from dpweave.weaving.weaver import Weaver

_SAID = "kind string, name string, content binary"
"""What tasks hand on: rows of a table as Arrow, or a value for the driver."""
_ROWS, _REPAIRS, _SHARED, _COUNTED = "rows", "repairs", "shared", "counted"


class SparkCopy(Mapping[str, Any]):
    """Tables by name as Spark data frames, which the executors hold and write. The rows of each are woven already."""

    def __init__(self, schema: Database, frames: Mapping[str, Any], held: Iterable[Any], repairs: Mapping[str, int]):
        self.schema = schema
        self._frames, self._held = dict(frames), tuple(held)
        self.repairs = dict(repairs)
        """How many rows had to change so that each declared rule holds."""

    def __getitem__(self, name: str) -> Any:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def write(self, folder: str, *, overwrite: bool = False) -> None:
        """Write a folder of Parquet files for each table into ``folder``, from the executors."""
        for name, frame in self._frames.items():
            frame.write.mode("overwrite" if overwrite else "error").parquet(f"{folder}/{name}")

    def write_tables(self, *, overwrite: bool = False) -> None:
        """Write every table into the session's current database, under its own name."""
        for name, frame in self._frames.items():
            frame.write.mode("overwrite" if overwrite else "error").saveAsTable("`" + name.replace("`", "``") + "`")

    def close(self) -> None:
        """Let the executors forget the rows."""
        for frame in self._held:
            frame.unpersist()


@dataclass(frozen=True)
class Weaving:
    """What every task is told: a model as the bytes of its file, how to load that, and which database to weave."""

    content: bytes
    loaded_from: Path | None
    load: Callable[[bytes, Path | None], Wirable]
    job: WeavingJob
    shared_rows: SharedRows = field(default_factory=SharedRows)
    """What the first part left."""
    fits: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    counted: tuple[EarlierRows, ...] = ()
    """What each part counts, as far as that is known; the first of them is the first part."""

    def known(self, model: Wirable) -> KnownLinks:
        """The links of a model, with what the first part fitted."""
        return KnownLinks(model.plan.compile(), model.release, {**model.fits, **self.fits})

    def before(self, index: int) -> SharedRows:
        """What a part must know of those before it, which have been counted."""
        earlier = deepcopy(self.shared_rows.earlier)
        for part in self.counted[1:index]:
            earlier.add(part)
        return replace(self.shared_rows, owned=dict(self.shared_rows.owned), hopes={}, wait=None, _earlier=earlier)


class _NotYet(BaseException):
    """A part needs the parts before it while it is being wired."""


def woven_on_spark(session: Any, weaving: Weaving, plan: Plan) -> SparkCopy:
    """Weave a database in parts on the executors of a session."""
    count, held = weaving.job.count, []

    def run(parts: int, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], start: int = 0) -> Any:
        said = session.range(start, start + parts, 1, parts).mapInArrow(task, _SAID).persist()
        held.append(said)
        return said

    try:
        if count == 1 or settling_order(plan.constraints):
            frames = [run(1, partial(_in_turn, weaving))]
        else:
            first = run(1, partial(_first, weaving))
            shared_rows, fits = _one(first, _SHARED)
            weaving = replace(weaving, shared_rows=shared_rows, fits=fits, counted=(EarlierRows(),))
            weaving = replace(weaving, counted=_counts(weaving, partial(run, start=1)))
            frames = [first, run(count - 1, partial(_later, weaving), 1)]
        repairs: dict[str, int] = {}
        for frame in frames:
            for row in frame.filter(f"kind = '{_REPAIRS}'").select("content").collect():
                for rule, changed in pickle.loads(bytes(row.content)).items():  # noqa: S301 - our own process
                    repairs[rule] = repairs.get(rule, 0) + changed
        return SparkCopy(plan.database.stored, _tables(plan.database.stored, frames), held, repairs)
    except BaseException as error:
        with suppress(Exception):
            for frame in held:
                frame.unpersist()
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
            raise
        said = [line for line in str(error).strip().splitlines() if "Error: " in line]  # of a copy: nothing private
        why = said[-1].strip() if said else type(error).__name__
        raise TargetError(f"Spark could not weave the copy, of which nothing was written: {why}") from error


def _one(frame: Any, kind: str) -> Any:
    (row,) = frame.filter(f"kind = '{kind}'").select("content").collect()
    return pickle.loads(bytes(row.content))  # noqa: S301 - our own process


def _counts(weaving: Weaving, run: Callable[..., Any]) -> tuple[EarlierRows, ...]:
    """What each part counts. A part that needs those before it is wired by itself, once they are known."""
    others = run(weaving.job.count - 1, partial(_counted, weaving, alone=False)).filter(f"kind = '{_COUNTED}'")
    said = {int(row.name): pickle.loads(bytes(row.content)) for row in others.collect()}  # noqa: S301
    before = deepcopy(weaving.shared_rows.earlier)
    for index in range(1, weaving.job.count):
        wired: Wired | None = said[index]
        if wired is None or not before.leave_room(wired.hopes):
            wired = _one(run(1, partial(_counted, weaving, alone=True), start=index), _COUNTED)
        assert wired is not None
        before.add(wired.counted)
        weaving = replace(weaving, counted=(*weaving.counted, wired.counted))
    return weaving.counted


# -- on the executors --------------------------------------------------------------------------------------------------


def _indices(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _says(*rows: tuple[str, str, bytes]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds, names, contents = zip(*rows, strict=True)
    columns = [pa.array(kinds, pa.string()), pa.array(names, pa.string()), pa.array(contents, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["kind", "name", "content"])


def _rows(weaver: Weaver, tables: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
    """A part as it is handed on: its rows in pieces, and what rules changed."""
    import pyarrow as pa

    for name, table in tables.items():
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            with io.BytesIO() as out:
                with pa.ipc.new_stream(out, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                    writer.write_batch(batch)
                yield _says((_ROWS, name, out.getvalue()))
    yield _says((_REPAIRS, "", pickle.dumps(dict(weaver.repairs))))


def _woven(model: Wirable, weaving: Weaving, index: int, known: KnownLinks, shared_rows: SharedRows) -> Any:
    with model.blaming_its_file():
        weaver = model.wired(weaving.job, index, known, shared_rows)
        return weaver, weaver.tables()


def _in_turn(weaving: Weaving, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in _indices(batches):
        model = weaving.load(weaving.content, weaving.loaded_from)
        known, shared_rows = weaving.known(model), SharedRows(weaving.job.common)
        for index in range(weaving.job.count):
            yield from _rows(*_woven(model, weaving, index, known, shared_rows))


def _first(weaving: Weaving, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in _indices(batches):
        model = weaving.load(weaving.content, weaving.loaded_from)
        known, shared_rows = weaving.known(model), SharedRows(weaving.job.common)
        yield from _rows(*_woven(model, weaving, 0, known, shared_rows))
        yield _says((_SHARED, "", pickle.dumps((shared_rows, known.fits))))


def _counted(weaving: Weaving, batches: Iterable[pa.RecordBatch], *, alone: bool) -> Iterator[pa.RecordBatch]:
    def not_yet() -> EarlierRows:
        raise _NotYet

    model = weaving.load(weaving.content, weaving.loaded_from)
    known = weaving.known(model)
    for index in _indices(batches):
        shared_rows = weaving.before(index)
        wired = None
        try:
            with model.blaming_its_file():
                found = replace(shared_rows, wait=None if alone else not_yet)
                wired = Wired(model.wired(weaving.job, index, known, found).counted(), found.hopes)
        except _NotYet:
            pass
        yield _says((_COUNTED, str(index), pickle.dumps(wired)))


def _later(weaving: Weaving, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    model = weaving.load(weaving.content, weaving.loaded_from)
    known = weaving.known(model)
    for index in _indices(batches):
        yield from _rows(*_woven(model, weaving, index, known, weaving.before(index)))


# -- as tables of Spark ------------------------------------------------------------------------------------------------


def _tables(database: Database, frames: Iterable[Any]) -> dict[str, Any]:
    from pyspark.sql.pandas.types import from_arrow_schema

    found = {}
    for table in database:
        schema = spark_schema(arrow_schema(table))
        shape = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        chosen = [f.filter(f.kind == _ROWS).filter(f.name == table.name).select("content") for f in frames]
        found[table.name] = reduce(lambda a, b: a.union(b), chosen).mapInArrow(partial(_decoded, schema), shape)
    return found


def _decoded(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for content in batch.column(0):
            with pa.ipc.open_stream(content.as_buffer()) as reader:
                for rows in reader:
                    columns = [rows.column(f.name).cast(f.type) for f in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The next wider types that Spark has: no numbers without a sign, no times of day, no more than 38 digits.

    >>> import pyarrow as pa
    >>> spark_schema(pa.schema({"n": pa.uint32(), "at": pa.time64("us"), "big": pa.uint64()})).types
    [DataType(int64), DataType(string), Decimal128Type(decimal128(20, 0))]
    """
    import pyarrow as pa

    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}

    def seen(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_time(kind) or pa.types.is_decimal256(kind):
            return pa.string()
        return wider.get(kind, kind)

    return pa.schema([pa.field(f.name, seen(f.type)) for f in schema])
