"""A folder of Parquet or CSV files, one table each, read through DuckDB."""

# ruff: noqa: S608 - statements are built from constants and quoted names

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dpweave.engines.duckdb.source import DuckDBSource, memory, twin
from dpweave.engines.duckdb.types import type_of_duckdb
from dpweave.engines.folder.data_package import PACKAGE_FILE, database_of, package_in
from dpweave.engines.frames.source import refuse_twins
from dpweave.engines.source_base import ROW
from dpweave.errors import SourceError
from dpweave.schema.database import Column, Database, Table, Type

if TYPE_CHECKING:
    from pathlib import Path


def open_folder(folder: Path) -> DuckDBSource:
    """Lay an in-memory DuckDB over the files: ``orders.parquet``, ``orders.csv``, or ``orders/`` full of Parquet parts.

    Types come from the Parquet footers. CSV has none, and guessing them would mean reading rows, so its columns are
    text until the plan or a ``datapackage.json`` beside the files says otherwise; that file may declare keys as well.
    """
    files = _files(folder)
    if not files:
        raise SourceError(f"the folder {folder} holds no .parquet and no .csv file")
    refuse_twins(list(files), of="tables")
    connection = memory()
    _keep_casts_out_of_readers(connection)
    name = folder.name or str(folder)
    views = [_view(connection, table, path) for table, path in sorted(files.items())]
    stored = Database(tuple(table for table, _ in views))
    numbered = frozenset(table.name for table, has_numbers in views if has_numbers)
    package = folder / PACKAGE_FILE
    if not package.is_file():
        untyped = frozenset(table for table, path in files.items() if path.suffix.lower() == ".csv")
        return DuckDBSource(
            connection, name=name, schema=stored, numbered=numbered, declares_keys=False, untyped=untyped
        )
    declared = database_of(package_in(package))[0]
    _require_held(declared, stored, package=package)
    return DuckDBSource(connection, name=name, schema=declared, stored=stored, numbered=numbered)


def _require_held(declared: Database, stored: Database, *, package: Path) -> None:
    for table in declared:
        for column in table.columns:
            if table.name not in stored or column.name not in stored[table.name].column:
                raise SourceError(
                    f"{package} describes {table.name!r}.{column.name!r}, which no file of its folder holds"
                )


def _keep_casts_out_of_readers(connection: Any) -> None:
    """Forbid an optimisation of DuckDB 2 that moves TRY_CAST into the CSV reader, where a bad value is an error."""
    known = {name for (name,) in connection.con.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    if "type_pushdown" in known:
        connection.con.execute("SET disabled_optimizers = 'type_pushdown'")


def _files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        is_parts = path.is_dir() and any(path.glob("**/*.parquet"))
        if is_parts or path.suffix.lower() in {".parquet", ".csv"}:
            name = path.name if is_parts else unquote(path.stem)
            if name in found:
                raise SourceError(f"the folder {folder} holds two files for the table {name!r}; keep one")
            found[name] = path
    return found


def _view(connection: Any, name: str, path: Path) -> tuple[Table, bool]:
    """Lay a view over the files of one table; return the table, and whether there is a view that numbers its rows."""
    import duckdb

    from dpweave.engines.ddl import quoted
    from dpweave.engines.duckdb.source import reason

    where = "'" + str(path).replace("'", "''") + "'"
    if path.suffix.lower() == ".csv":
        columns = _header(path)
        refuse_twins(columns, of=f"columns of {name!r}")
        listed = ", ".join("'" + c.replace("'", "''") + "': 'VARCHAR'" for c in columns)
        reader = (
            f"read_csv({where}, auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
            f"nullstr = '', allow_quoted_nulls = false, columns = {{{listed}}})"
        )
        described = [(c, Type("text")) for c in columns]
        numbers = None
    else:
        files = sorted(str(f) for f in path.glob("**/*.parquet")) if path.is_dir() else [str(path)]
        listed = ", ".join("'" + f.replace("'", "''") + "'" for f in files)
        reader = f"read_parquet([{listed}])"
        try:
            rows = connection.con.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()
            described = [(row[0], type_of_duckdb(row[1])) for row in rows]
            taken = {c.lower() for c, _ in described} & {"file_row_number", ROW}
            numbers = None if taken else _parquet_numbers(connection, files)
        except duckdb.Error as error:
            raise SourceError(f"{path} cannot be read: {reason(error) or 'it is not a Parquet file'}") from None
    connection.con.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {reader}")
    if numbers:
        connection.con.execute(f'CREATE VIEW {quoted(twin(name))} AS SELECT *, {numbers} AS "{ROW}" FROM {reader}')
    return Table(name, tuple(Column(c, t) for c, t in described)), bool(numbers)


def _parquet_numbers(connection: Any, files: list[str]) -> str | None:
    """Return an expression that numbers the rows of a Parquet file by their place in it; None where none is lasting.

    That is so for several files: DuckDB may leave out some that a query filters away,
    as it does in ``key=value`` folders, and counts the others anew.
    """
    import duckdb

    if len(files) != 1:
        return None
    try:
        connection.con.execute("DESCRIBE SELECT file_row_number FROM read_parquet(?)", [files])
    except duckdb.Error:
        return None
    found = connection.con.execute("SELECT file_name FROM parquet_file_metadata(?)", [files]).fetchall()
    return "file_row_number" if found == [(files[0],)] else None  # else a name that DuckDB takes for a pattern


def _header(path: Path) -> list[str]:
    """Read the first line, which is public: it names the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise SourceError(f"{path} cannot be read as CSV in UTF-8") from None
    if not header or any(not c for c in header):
        raise SourceError(f"{path} needs a header line that names every column")
    return header
