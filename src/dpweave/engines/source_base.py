"""What every source is: a catalogue, Ibis tables over it, and a way to run an expression without saying too much."""

from __future__ import annotations

import itertools
import secrets
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from dpweave.engines.gathered_columns import with_gathered
from dpweave.errors import DpweaveError, SourceError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type


TEMPORARY = "_dpweave_"
"""Begins the name of everything that we store in an engine for the time of a session."""


BATCH_ROWS = 65_536
ROW = f"{TEMPORARY}row"
"""Name of the column that numbers rows."""
AS_TEXT = frozenset({"uuid", "json", "array", "enum", "unknown"})
"""Kinds that every engine hands out as text, so that comparing, hashing and counting them is the same everywhere."""
EXACT = frozenset({"integer", "uuid"})
"""Kinds of which two values are equal as read just where they are equal as stored: no collation, no zero with a sign.
"""


class Source(ABC):
    """A private database, open for reading.

    Ask with Ibis expressions over :meth:`table` and run them with :meth:`fetch`, never with Ibis's own ``execute``:
    that one lets driver messages through, which quote values.
    """

    name: str
    """A label for ledger and messages: a file's name, or host and database. Never a user, never a password."""
    embedded: bool
    """Whether the engine runs inside this process, so that coded columns may be held in memory behind the wall."""
    declares_keys: bool
    """Whether the catalogue can hold keys; where it cannot, they come from the plan."""
    untyped: frozenset[str] = frozenset()
    """Tables whose columns are text because nothing says of what type they are, such as CSV files."""
    views: frozenset[str] = frozenset()
    """Views that were asked for by name and stand among the tables of the catalogue."""
    can_materialise: bool
    """Whether temporary tables are allowed here."""
    sums_units: bool = True
    """Whether the engine itself can add up units at any size; elsewhere codes of rows are fetched for that."""

    def __init__(self, connection: Any, *, name: str, owned: bool) -> None:
        self.connection: ibis.BaseBackend = connection
        self.name = name
        self._owned = owned
        self._declared: Database | None = None
        self._prefix = f"{TEMPORARY}{secrets.token_hex(4)}_"  # two sources may share a connection
        self._temporary: list[str] = []
        self._numbered: dict[tuple[str, str | None], ibis.Table] = {}
        self._raw_numbered: dict[str, ibis.Table | None] = {}

    @property
    @final
    def hands_out_codes(self) -> bool:
        """Whether rows keep their numbers from one query to the next, so that codes of columns can be fetched one by
        one, and put together behind the wall.
        """
        return self.embedded or self.can_materialise

    @property
    @final
    def sums_in_engine(self) -> bool:
        """Whether sums over units are made by the engine, which hands out no row for them."""
        return not self.embedded and (self.sums_units or not self.can_materialise)

    @property
    @final
    def database(self) -> Database:
        """The schema: what the catalogue says, or what :meth:`declare` was given. Reads no row."""
        return self._declared or self.catalogue

    @cached_property
    @final
    def catalogue(self) -> Database:
        """What the engine itself says about tables, types and keys."""
        with self.masked("its catalogue cannot be read"):
            return self._reflect()

    @cached_property
    @final
    def not_copied(self) -> tuple[str, ...]:
        """CHECK constraints and views, in words: no plan holds them, so no copy has them. Reads the catalogue alone."""
        with self.masked("its catalogue cannot be read"):
            return self._not_copied()

    @final
    def declare(self, database: Database) -> None:
        """Take keys and types from a plan. A column of another stored type is cast, with null for failures."""
        self._require_apart([self._stored(table.name) for table in database])
        for table in database:
            stored = self._stored(table.name)
            self._require_readable(stored)
            for column in table.stored.columns:
                if column.name not in stored.column:
                    hint = nearest(column.name, stored.column)
                    raise SourceError(f"table {table.name!r} of {self.name} has no column {column.name!r}: {hint}")
                have = stored.column[column.name].type
                if not self._can_cast(have, column.type):
                    raise SourceError(
                        f"column {column.name!r} of {table.name!r} is {have} in {self.name} and {column.type} in the "
                        f"plan, and this engine has no cast that is safe on every value"
                    )
        self._declared = database
        self._numbered.clear()
        self._raw_numbered.clear()

    @final
    def require_tables(self, names: Iterable[str]) -> None:
        """Refuse names that are no tables here, or tables that may not be read."""
        for name in names:
            self._require_readable(self._stored(name))

    @final
    def require_whole(self, names: Iterable[str]) -> None:
        """Refuse what could not be read later. Files and frames are read to their end; engines answer for their own."""
        for name in names:
            self._require_whole(self._stored(name))

    @final
    def proves_unique(self, name: str, columns: Iterable[str]) -> bool:
        """Whether the engine proves, of all rows that :meth:`table` gives, that no two
        agree on ``columns`` and none is null.

        A declared key is no proof: it may hold for a part of the rows, or tell apart what is equal once it is read.
        """
        if name not in self.catalogue:
            return False
        stored, read, names = self._engine_table(name), self._shown(name), set(columns)
        return (
            bool(stored.primary_key)
            and names.issuperset(stored.primary_key)
            and all(stored.column[c].type == read.column[c].type for c in stored.primary_key)
            and all(stored.column[c].type.kind in EXACT for c in stored.primary_key)
            and self._proves_primary_key(stored)
        )

    @final
    def table(self, name: str) -> ibis.Table:
        """Return the table as an Ibis expression, its columns named and typed as in :attr:`database`.

        UUID, JSON, enum and array columns are text. A value that is not of its column's type is null (in SQLite).
        """
        return self._expression(name, verbatim=None)

    @final
    def numbered(self, name: str, *, alone: str | None = None) -> ibis.Table:
        """Return :meth:`table` with a column :data:`ROW`: a whole number for each row, from 0 with few gaps.

        The numbers are the same in every query. They are the engine's own where it has some; otherwise the table is
        copied once into a temporary one, so this is for engines in this process. ``alone`` names the one column that is
        needed: queries of wide tables are slow to make.
        """
        if (name, alone) not in self._numbered:
            raw = self._numbered_by_engine(name)
            if raw is not None:
                self._numbered[name, alone] = self._expression(name, verbatim=None, raw=raw, alone=alone)
            elif alone is not None:
                self._numbered[name, alone] = self.numbered(name).select(alone, ROW)
            else:
                import ibis

                numbers = {ROW: ibis.row_number().cast("int64")}
                self._numbered[name, None] = self.materialise(self.table(name).mutate(**numbers))
        return self._numbered[name, alone]

    def _numbered_by_engine(self, name: str) -> ibis.Table | None:
        if name not in self._raw_numbered:
            taken = next((c for c in self._shown(name).column if c.lower() == ROW), None)
            if taken is not None:
                raise SourceError(f"column {taken!r} of {name!r} has a name that is ours; rename it")
            self._raw_numbered[name] = self._raw_with_numbers(self._stored(name))
        return self._raw_numbered[name]

    @final
    def fetch(self, expression: ibis.Expr) -> pa.Table:
        """Run an expression where the data lives and return its rows."""
        import pyarrow as pa

        batches, schema = self._prepared(expression)
        with self.masked("a query failed"):
            return pa.Table.from_batches(list(batches), schema=schema)

    @final
    def stream(self, expression: ibis.Expr) -> Iterator[pa.RecordBatch]:
        """Run an expression and return its rows in batches, so that memory stays bounded."""
        batches, _ = self._prepared(expression)
        with self.masked("a query failed"):
            yield from batches

    @final
    def read(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Return all rows of a table in batches, in the model's Arrow types (for public tables, for ``evaluate``).

        ``columns`` names those that are read; without it, all.
        """
        import pyarrow as pa

        from dpweave.schema.arrow_types import arrow_schema

        schema = arrow_schema(self._shown(name))
        rows = self._expression(name, verbatim=frozenset(schema.names))
        if columns is not None:
            schema, rows = pa.schema([schema.field(c) for c in columns]), rows.select(*columns)
        for batch in self.stream(rows):
            yield pa.RecordBatch.from_arrays(
                [total_cast(a, f.type) for a, f in zip(batch.columns, schema, strict=True)], schema=schema
            )

    @final
    def whole(self, name: str) -> pa.Table:
        """Return all rows of a table at once."""
        import pyarrow as pa

        from dpweave.schema.arrow_types import arrow_schema

        return pa.Table.from_batches(self.read(name), schema=arrow_schema(self._shown(name)))

    @final
    def materialise(self, expression: ibis.Table) -> ibis.Table:
        """Store an expression in a temporary table, gone with the session; if not allowed, return it as is."""
        if not self.can_materialise:
            return expression
        name = f"{self._prefix}{len(self._temporary)}"
        with self.masked("a temporary table cannot be made"):
            self._create_temporary(name, self.compile(expression))
        self._temporary.append(name)
        return database_table(self.connection, name, expression.schema())

    @final
    def compile(self, expression: ibis.Expr) -> str:
        """Return the SQL of an expression, with what it needs (lookup tables, functions) registered."""
        ready = self._with_lookups(expression.as_table())
        self.connection._run_pre_execute_hooks(ready)
        return str(self.connection.compile(ready))

    @abstractmethod
    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """Return a 64-bit hash of a text, for an order by nothing but the text. Engines differ in the function."""

    @final
    def close(self) -> None:
        """Let go of the engine. A connection that was handed in stays open, without what we stored in it."""
        if self._owned:
            self._disconnect()
            return
        with self.masked("its temporary tables cannot be dropped"):
            while self._temporary:
                self._drop_temporary(self._temporary.pop())

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def masked(self, what: str) -> Iterator[None]:
        """Turn an engine's error into a sentence of our own: driver messages quote values, and URLs hold passwords."""
        try:
            yield
        except DpweaveError:
            raise
        except Exception as error:  # noqa: BLE001 - every driver has its own tree, and none of its messages may pass
            raise SourceError(f"{self.name}: {self._reason(error) or f'{what} ({type(error).__name__})'}") from None

    def _prepared(self, expression: ibis.Expr) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        with self.masked("a query failed"):
            query = self.compile(expression)
            schema = arrow_of_ibis(expression.as_table().schema())
            return self._run(query, schema), schema

    def _expression(
        self,
        name: str,
        *,
        verbatim: frozenset[str] | None,
        raw: ibis.Table | None = None,
        alone: str | None = None,
    ) -> ibis.Table:
        """Select a table's columns, or the one that is asked for ``alone``; those in ``verbatim`` (by default the keys)
        come without a check of each value.
        """
        stored, declared = self._stored(name), self._shown(name)
        self._require_readable(stored)
        numbers = {} if raw is None else {ROW: raw[ROW]}
        raw = self._raw(stored, declared.stored) if raw is None else raw
        plain = declared.key_columns if verbatim is None else verbatim
        gathered = [c for c in declared.gathered if alone in (None, c.name)]
        typed = {
            c.name: self._typed(raw[c.name], stored.column[c.name].type, c.type, verbatim=c.name in plain)
            for c in declared.stored.columns
            if gathered or alone in (None, c.name)
        }
        rows = raw.select(*(value.name(c) for c, value in (typed | numbers).items()))  # a column may be called "self"
        if not gathered:
            return rows
        rows = with_gathered(rows, gathered, self.database, self.table)
        return rows.select(*(c.name for c in declared.columns if alone in (None, c.name)), *numbers)

    def _shown(self, name: str) -> Table:
        return self.database[name] if name in self.database else self._stored(name)

    def _stored(self, name: str) -> Table:
        if name in self.catalogue:
            return self._engine_table(name)
        with self.masked("its catalogue cannot be read"):
            is_view = self._is_view(name)
        if is_view:
            raise SourceError(
                f"{name!r} of {self.name} is a view and not a table; name the tables it is made of, or"
                " list it under views in the plan, as 'dpweave draft --view' does"
            )
        raise SourceError(f"{self.name} has no table {name!r}: {nearest(name, self.catalogue.names)}")

    @abstractmethod
    def _reflect(self) -> Database: ...

    def _not_copied(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def _engine_table(self, name: str) -> Table:
        """Return a table of the catalogue in the types that the engine itself has for it."""

    @abstractmethod
    def _is_view(self, name: str) -> bool: ...

    @abstractmethod
    def _proves_primary_key(self, stored: Table) -> bool:
        """Whether the engine itself proves that the primary key is unique and not null
        in all rows that a query gives.
        """

    @abstractmethod
    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        """Replace in-memory tables where Ibis would need permission to write to send them."""

    @abstractmethod
    def _require_readable(self, table: Table) -> None: ...

    def _require_apart(self, tables: list[Table]) -> None:  # noqa: B027 - most engines store each row in one table
        """Refuse tables that have rows in common."""

    def _require_whole(self, table: Table) -> None:  # noqa: B027 - most engines read what they hold
        """Refuse a table that could not be read later: read its file or frame to the end."""

    @abstractmethod
    def _raw(self, stored: Table, declared: Table) -> ibis.Table: ...

    def _raw_with_numbers(self, stored: Table) -> ibis.Table | None:  # noqa: ARG002
        """Return the stored table with a column :data:`ROW`, or None where the engine has no lasting numbers."""
        return None

    @abstractmethod
    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any: ...

    @abstractmethod
    def _can_cast(self, stored: Type, declared: Type) -> bool: ...

    @abstractmethod
    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _create_temporary(self, name: str, query: str) -> None: ...

    @abstractmethod
    def _drop_temporary(self, name: str) -> None: ...

    @abstractmethod
    def _disconnect(self) -> None: ...

    @abstractmethod
    def _reason(self, error: Exception) -> str | None:
        """Say what went wrong in our own words, or nothing where the class name must do."""


def database_table(
    connection: Any, name: str, schema: Any, *, catalog: str | None = None, namespace: str | None = None
) -> ibis.Table:
    """Name a table that is known to be there, without Ibis asking the catalogue again."""
    import ibis.expr.operations as ops

    place = ops.Namespace(catalog=catalog, database=namespace)
    table: ibis.Table = ops.DatabaseTable(name, schema=schema, source=connection, namespace=place).to_expr()
    return table


def ibis_type(type: Type) -> Any:  # noqa: A002 - the model's word
    """Return the Ibis type of a model type; text stands for the kinds that travel as text."""
    import ibis.expr.datatypes as dt

    match type.kind:
        case "integer":
            return dt.dtype(str(type))
        case "float":
            return dt.float32 if type.bits == 32 else dt.float64
        case "decimal":
            return dt.Decimal(type.precision, type.scale)
        case "timestamp":
            return dt.Timestamp(timezone="UTC" if type.zone else None)
        case "boolean" | "date" | "time":
            return dt.dtype(type.kind)
        case "bytes":
            return dt.binary
        case _:
            return dt.string


def raw_schema(table: Table, *, loose: frozenset[str] = frozenset()) -> Any:
    """Return the Ibis schema of a stored table; what travels as text is unknown to Ibis, so that it writes a cast.

    So are kinds in ``loose``, for which an engine has types that hold more than ours.
    """
    import ibis.expr.datatypes as dt
    import ibis.expr.schema as sch

    unknown = AS_TEXT | loose
    return sch.Schema({c.name: dt.unknown if c.type.kind in unknown else ibis_type(c.type) for c in table.columns})


def arrow_of_ibis(schema: Any) -> pa.Schema:
    """Return the Arrow schema of an expression's result, microseconds and UTC as in the model."""
    import pyarrow as pa

    from dpweave.engines.ibis.types import type_of_ibis
    from dpweave.schema.arrow_types import arrow_type

    return pa.schema([pa.field(name, arrow_type(type_of_ibis(dtype))) for name, dtype in schema.items()])


def batches_of_rows(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Turn a cursor's rows into record batches, with null for what does not fit its column."""
    import pyarrow as pa

    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, BATCH_ROWS)):
        columns = zip(*chunk, strict=True)
        yield pa.RecordBatch.from_arrays(
            [total_array(values, f.type) for values, f in zip(columns, schema, strict=True)], schema=schema
        )


def total_array(values: Iterable[Any], type: pa.DataType) -> pa.Array:  # noqa: A002
    """Build an array of the type; a value that cannot be one is null, since an error would tell about it."""
    import pyarrow as pa

    held = list(values)
    try:
        return pa.array(held, type=type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_fitting(v, type) for v in held], type=type)


def total_cast(array: pa.Array, type: pa.DataType) -> pa.Array:  # noqa: A002
    """Cast an array; a value that cannot be cast is null."""
    import pyarrow as pa

    if array.type == type:
        return array
    try:
        return array.cast(type)
    except (pa.ArrowException, NotImplementedError):
        return total_array(array.to_pylist(), type)


def _fitting(value: Any, type: pa.DataType) -> Any:  # noqa: A002
    import pyarrow as pa

    for candidate in (value, str(value)) if pa.types.is_string(type) else (value,):
        try:
            return pa.scalar(candidate, type=type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return None
