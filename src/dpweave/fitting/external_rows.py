"""Tables made elsewhere: read, checked against the plan and coded, before anything is spent.

A synthetic table is public once its cost is charged, so a domain that the plan wants
learned is taken from its values for nothing. What can be wrong with it is refused here:
a missing file, column or type, a value outside its domain, no rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.engines.frames.source import as_arrow
from dpweave.errors import PlanError, SourceError, UsageError, nearest
from dpweave.schema.arrow_codes import encode_column, is_outside
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Learn
from dpweave.tables.domains.learned_domains import public_domain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.entries import ColumnPlan, TablePlan
    from dpweave.plan.plan import Plan


@dataclass(frozen=True)
class ExternalRows:
    """The rows of one table made elsewhere, as codes, and where they came from."""

    codes: Mapping[str, IntArray]
    rows: int
    source: str


def read_external_rows(plan: Plan, given: Mapping[str, object] | None) -> tuple[Plan, dict[str, ExternalRows]]:
    """Read what ``plan`` says is made elsewhere; a table in ``given`` comes from there, whatever path the plan names.

    Returns the plan with the domains that such tables leave to be learned filled in.
    """
    wanted = {t.name: t for t in plan.tables if t.external is not None}
    for name in given or {}:
        if name not in wanted:
            raise UsageError(
                f"external brings a table {name!r} whose mechanism in the plan is not 'external':"
                f" {nearest(name, wanted)}"
            )
    found = {}
    for name, table in wanted.items():
        rows, source = _read(table, (given or {}).get(name))
        if not rows.num_rows:
            raise PlanError(f"the table {name!r} that was made elsewhere has no rows; bring at least one")
        codes = {}
        for column in table.modelled:
            values = _column(rows, name, column)
            if isinstance(column.domain, Learn):
                domain = public_domain(column.column, values.unique().to_pylist(), bins=column.domain.bins)
                plan = plan.replace_domain(name, column.name, domain)
            codes[column.name] = _codes(name, plan.table[name].column[column.name], values)
        found[name] = ExternalRows(codes, rows.num_rows, source)
    return plan, found


def _read(table: TablePlan, given: object | None) -> tuple[pa.Table, str]:
    """Rows as Arrow, and where they came from. Columns that the plan does not know are refused."""
    assert table.external is not None
    path = given if isinstance(given, str | Path) else table.external.path
    if given is not None and not isinstance(given, str | Path):
        rows, source = as_arrow(given, name=table.name), "given to fit"
    elif path is not None:
        rows, source = _read_file(Path(path), table.name), Path(path).name
    else:
        raise UsageError(
            f"the rows of {table.name!r} are made elsewhere and nowhere to be found; name a path in the plan or give"
            f" them to fit as external={{{table.name!r}: rows}}"
        )
    for name in rows.column_names:
        if name not in table.column:
            raise PlanError(
                f"the table {table.name!r} that was made elsewhere has a column {name!r} that the plan does not know: "
                f"{nearest(name, table.column)}"
            )
    return rows, source


def _read_file(path: Path, name: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv}
    if path.suffix.lower() not in readers:
        raise UsageError(f"the table {name!r} cannot be read from {path}: its name must end in .parquet or .csv")
    if not path.is_file():
        raise SourceError(f"the table {name!r} cannot be read from {path}: there is no such file")
    try:
        return readers[path.suffix.lower()](path)
    except (OSError, pa.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged or of another format"
        raise SourceError(f"the table {name!r} cannot be read from {path}: {why}") from None


def _column(rows: pa.Table, table: str, column: ColumnPlan) -> pa.Array:
    """Return one column in the plan's type; a value that this type cannot hold is an error, not null."""
    import pyarrow as pa

    if column.name not in rows.column_names:
        raise PlanError(
            f"the table {table!r} that was made elsewhere has no column {column.name!r}; its mechanism needs it"
        )
    values = rows[column.name]
    kind = arrow_type(column.column.type)
    try:
        return pa.concat_arrays(values.cast(kind).chunks) if values.num_chunks else pa.array([], kind)
    except (pa.ArrowException, NotImplementedError):
        raise PlanError(
            f"column {column.name!r} of the table {table!r} that was made elsewhere is {values.type}, with values that"
            f" are not of type {column.column.type}; make them so or change the plan"
        ) from None


def _codes(table: str, column: ColumnPlan, values: pa.Array) -> IntArray:
    assert column.domain is not None
    assert not isinstance(column.domain, Learn)
    codec = Codec(column.column, column.domain)
    outside = int(is_outside(codec, values).sum())
    if outside:
        raise PlanError(
            f"column {column.name!r} of the table {table!r} that was made elsewhere has {outside:,} values outside its "
            "domain in the plan, or null where none is allowed; widen the domain or mend the table"
        )
    return encode_column(codec, values)
