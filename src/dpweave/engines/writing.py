"""Writers: the original schema with new rows, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.engines.postgres.connection import refuse_mistyped, refuse_unescaped
from dpweave.engines.staging import require_writable
from dpweave.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from dpweave.schema.database import Database

__all__ = ["FORMATS", "require_free", "write"]

FORMATS = ("duckdb", "sqlite", "postgresql", "mysql", "parquet", "csv")
SERVERS = ("postgresql", "mysql")
_SCHEMES = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_SUFFIXES = {
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".csv": "csv",
    ".parquet": "parquet",
}


def write(
    database: Database,
    tables: Mapping[str, pa.Table | Iterable[pa.RecordBatch]],
    target: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word users know from every writer
    overwrite: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Write ``tables`` to ``target`` with the schema ``database``: types, keys, uniqueness, nullability.

    The kind of target comes from ``format``, else from its name: ``postgresql://…``, ``mysql://…``, ``mariadb://…``, a
    file ``.duckdb``, ``.sqlite`` or ``.db``; anything else is a folder of Parquet files, or of CSV files where its name
    ends in ``.csv``. A folder gets a ``datapackage.json`` (Frictionless) that keeps types and keys, and
    that a later read honours.

    Tables may be iterables of record batches: they are consumed one batch at a time, so memory does not grow with them.
    It is all or nothing: files are written beside the target and renamed at the end, so are tables of MySQL, and
    PostgreSQL gets one transaction. A target that exists is refused unless ``overwrite`` is given.

    ``progress`` is told the table and the share of it that is written (0 and 1 alone where its length is unknown).
    """
    kind = _kind(target, format)
    _require_tables(database, tables)
    require_free(target, format=format, overwrite=overwrite)
    from dpweave.engines.stream import Stream

    streams = {t.name: Stream(t, tables[t.name], progress) for t in database}
    match kind:
        case "postgresql":
            from dpweave.engines.postgres.sink import write_postgres

            write_postgres(database, streams, str(target), overwrite=overwrite)
        case "mysql":
            from dpweave.engines.mysql.sink import write_mysql

            write_mysql(database, streams, str(target), overwrite=overwrite)
        case "duckdb":
            from dpweave.engines.duckdb.sink import write_duckdb

            write_duckdb(database, streams, Path(target))
        case "sqlite":
            from dpweave.engines.sqlite.sink import write_sqlite

            write_sqlite(database, streams, Path(target))
        case _:
            from dpweave.engines.folder.sink import write_folder

            write_folder(database, streams, Path(target), format=kind)


def require_free(
    target: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    overwrite: bool,
    database: Database | None = None,
) -> None:
    """Refuse a target that is taken or cannot be written, before any work is done.

    A server is asked to make the tables, and to forget them again, if it is known for which ``database``.
    """
    kind = _kind(target, format)
    if kind in SERVERS:
        if database is not None:
            from dpweave.engines.mysql import sink as mysql
            from dpweave.engines.postgres import sink as postgres

            room = {"postgresql": postgres.require_room, "mysql": mysql.require_room}[kind]
            room(database, str(target), overwrite=overwrite)
        return
    path = Path(target).expanduser()
    if not path.parent.is_dir():
        raise TargetError(f"there is no folder {path.parent} to write {path.name} into")
    require_writable(path)
    if not path.exists():
        return
    if not overwrite:
        raise TargetError(
            f"the target {path} exists already; choose another name, or overwrite it with --force (overwrite=True in"
            " Python)"
        )
    is_folder = _kind(target, format) in {"parquet", "csv"}
    if path.is_dir() != is_folder:
        raise TargetError(
            f"the target {path} is a {'folder' if path.is_dir() else 'file'} and will not be replaced by the other"
        )
    if path.is_mount():
        raise TargetError(f"the folder {path} is a mount point and cannot be replaced; name a folder inside it")
    if is_folder and any(path.iterdir()) and not (path / "datapackage.json").is_file():
        raise TargetError(f"the folder {path} was not written by dpweave and will not be replaced; choose another")


def _kind(target: str | Path, asked: str | None) -> str:
    if target == "":  # which a path would take for the current folder
        raise TargetError("the target is empty; perhaps a variable of the shell is not set")
    if asked is not None and asked not in FORMATS:
        raise UsageError(f"there is no format {asked!r}; known are {', '.join(FORMATS)}")
    if isinstance(target, str) and "://" in target:
        scheme = target.split("://", 1)[0]
        if scheme not in _SCHEMES:
            raise TargetError(f"the target has the scheme {scheme!r}; known are postgresql, mysql and mariadb")
        refuse_unescaped(target, error=TargetError)
        return _SCHEMES[scheme]
    refuse_mistyped(target, error=TargetError)
    return asked or _SUFFIXES.get(Path(target).suffix.lower(), "parquet")


def _require_tables(database: Database, tables: Mapping[str, object]) -> None:
    for name in database.names:
        if name not in tables:
            raise TargetError(f"the schema has a table {name!r} and no rows were given for it")
    for name in tables:
        database[name]
