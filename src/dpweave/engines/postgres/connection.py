"""Connecting to PostgreSQL: labels without credentials, and errors in our own words, for source and sink alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpweave.errors import SourceError, TargetError

CONNECT_SECONDS = 10


def connect(url: str, *, error: type[SourceError | TargetError]) -> Any:
    """Open a session in UTC and UTF-8 with autocommit; what the URL leaves out comes from the ``PG…`` variables."""
    try:
        import psycopg
    except ImportError:
        raise error("PostgreSQL needs the extra: pip install 'dpweave[postgres]'") from None
    try:
        options = {} if "connect_timeout" in url else {"connect_timeout": CONNECT_SECONDS}
        connection = psycopg.connect(url, autocommit=True, **options)
        connection.execute("SET TIMEZONE = 'UTC'")
        connection.execute("SET CLIENT_ENCODING = 'UTF8'")
    except psycopg.Error as failure:
        raise error(f"{label(url)}: {_refusal(failure)}") from None
    return connection


def refuse_mistyped(path: str | Path, *, error: type[SourceError | TargetError]) -> None:
    """Refuse a path that was meant as the address of a server, without repeating it: it may hold a password."""
    if re.search(r":[^/]*@|\bpassword\s*=", str(path), re.IGNORECASE) and not Path(path).exists():
        raise error("this looks like the address of a server, which begins with postgresql://, mysql:// or mariadb://")


def refuse_unescaped(url: str, *, error: type[SourceError | TargetError]) -> None:
    """Refuse a URL whose password ends elsewhere than its owner meant: drivers, and labels, take the rest of it for a
    host, a port or a database.
    """
    scheme, _, rest = url.partition("://")
    authority, _, database = rest.split("?", 1)[0].partition("/")
    beyond = re.sub(r"^[^?#]*", "", rest)
    if "@" in database or (authority.count("@") > 1 if scheme.startswith("postgres") else "@" in beyond):
        raise error(
            "the address of the server is not clear: in a user name, a password and the name of a database, write %40"
            " for @, %3A for :, %2F for /, %3F for ? and %23 for #"
        )


def label(url: str) -> str:
    """Return host and database of a URL, and nothing else of it.

    >>> label("postgresql://ann:s3cret@db.example.org:5433/shop?sslmode=require")
    'postgresql://db.example.org:5433/shop'
    """
    import psycopg

    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql"
    host = str(parts.get("host") or "localhost")
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{'localhost' if host.startswith('/') else host}{port}/{parts.get('dbname') or ''}"


def reason(error: Exception) -> str | None:
    """Say what the server's error code means; its message stays out, since it quotes values."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    code = error.sqlstate
    if code is None:
        return "the connection was lost" if isinstance(error, psycopg.OperationalError) else None
    for prefix, words in _CODES.items():
        if code.startswith(prefix):
            return words
    return f"the server refused a statement (SQLSTATE {code})"


_CODES = {
    "08": "the connection was lost",
    "57P": "the server is shutting down or dropped the connection",
    "57014": "the server cancelled a statement that took too long",
    "42501": "permission is denied",
    "42P01": "a table is no longer there",
    "42703": "a column is no longer there",
    "42P07": "a table of that name exists already",
    "42710": "a type of that name exists already",
    "42804": "a foreign key joins columns of different types",
    "2BP01": "other tables or views depend on what would be replaced",
    "53100": "the server's disk is full",
    "53": "the server ran out of memory or connections",
    "54": "a limit of the server is passed",
    "23": "rows break a key, a unique constraint or a NOT NULL of the schema",
    "22021": "a text holds a character that PostgreSQL cannot store",
    "22001": "a text is longer than its column",
    "22": "a value does not fit the type of its column",
    "25006": "the server allows reading only",
}


def _refusal(error: Exception) -> str:
    """Say why a connection failed. Often there is no code, only libpq's words, which we look into and drop."""
    words = str(error).lower()
    if "password" in words or "authentication" in words or getattr(error, "sqlstate", None) in {"28P01", "28000"}:
        return "the server refused the user name or password"
    if "role" in words and "does not exist" in words:
        return "the server refused the user name or password"
    if "database" in words and "does not exist" in words:
        return "there is no such database on the server"
    if "invalid" in words and ("uri" in words or "connection option" in words):
        return "the URL is not of the form postgresql://user:password@host:port/database"
    return "the server cannot be reached"
