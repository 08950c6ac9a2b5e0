"""Engines that count: one Ibis expression per request, run where the data lives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.engines.mysql.connection import SCHEMES
from dpweave.engines.postgres.connection import refuse_mistyped, refuse_unescaped
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from dpweave.engines.source_base import Source

__all__ = ["open_source"]


def open_source(source: object, *, schema: str | None = None, views: Collection[str] = ()) -> Source:
    """Open whatever holds the private rows, read-only.

    ``source`` is a path or URL (``shop.duckdb``, ``shop.sqlite``, ``postgresql://…``, ``mysql://…``, ``mariadb://…``,
    a folder of Parquet or CSV), a mapping from table names to data frames (anything Arrow can read: pandas, polars,
    pyarrow), an Ibis connection, or a source that is open already. No row is read, and no
    message holds a user name or a password.

    ``schema`` names the schema of a PostgreSQL database, or the database of a MySQL server, whose tables are meant;
    ``views`` are views of a server that are taken for tables.
    """
    from dpweave.engines.source_base import Source

    if isinstance(source, Source):
        return source
    if not (isinstance(source, str) and "://" in source) and (schema is not None or views):
        raise SourceError(
            "a schema can be chosen, and views be taken for tables, on a server that is named by its URL:"
            " postgresql://…, mysql://… or mariadb://…"
        )
    if isinstance(source, Mapping):
        from dpweave.engines.frames.source import open_frames

        return open_frames(source)
    if source == "":  # which a path would take for the current folder
        raise SourceError("the source is empty; perhaps a variable of the shell is not set")
    if isinstance(source, str) and "://" in source:
        refuse_unescaped(source, error=SourceError)
    if isinstance(source, str) and source.startswith(("postgresql://", "postgres://")):
        from dpweave.engines.postgres.source import open_postgres

        return open_postgres(source, schema=schema, views=views)
    if isinstance(source, str) and source.startswith(SCHEMES):
        from dpweave.engines.mysql.source import open_mysql

        return open_mysql(source, schema=schema, views=views)
    if isinstance(source, str) and "://" in source:
        scheme = source.split("://", 1)[0]
        raise SourceError(
            f"the source has the scheme {scheme!r}; known are postgresql, mysql and mariadb, and an Ibis connection"
            " opens any other engine"
        )
    if isinstance(source, str | Path):
        refuse_mistyped(source, error=SourceError)
        return _open_path(Path(source).expanduser())
    return _open_connection(source)


def _open_path(path: Path) -> Source:
    if path.is_dir():
        from dpweave.engines.folder.source import open_folder

        return open_folder(path)
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        raise SourceError(f"there is no file or folder {path}") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    if head[8:12] == b"DUCK":
        from dpweave.engines.duckdb.source import open_duckdb

        return open_duckdb(path)
    if head.startswith(b"SQLite format 3") or (not head and path.suffix in {".sqlite", ".sqlite3", ".db"}):
        from dpweave.engines.sqlite.source import open_sqlite

        return open_sqlite(path)
    raise SourceError(
        f"{path} is neither a DuckDB nor a SQLite file; a Parquet or CSV file belongs into a folder named as the source"
    )


def _open_connection(source: object) -> Source:
    import ibis

    if not isinstance(source, ibis.BaseBackend):
        raise SourceError(
            f"a source is a path, a URL, a mapping of data frames or an Ibis connection, not {type(source).__name__}"
        )
    if source.name == "mysql":
        raise SourceError(
            "an Ibis connection to MySQL has settings of its own session, which would have to change; name its URL"
            " instead: mysql://user@host/database"
        )
    from dpweave.engines.duckdb import source as duckdb
    from dpweave.engines.ibis import source as live
    from dpweave.engines.postgres import source as postgres
    from dpweave.engines.sqlite import source as sqlite

    wrappers = {"duckdb": duckdb.wrap_duckdb, "sqlite": sqlite.wrap_sqlite, "postgres": postgres.wrap_postgres}
    return wrappers.get(source.name, live.wrap_connection)(source)
