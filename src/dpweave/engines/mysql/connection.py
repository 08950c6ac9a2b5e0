"""Connecting to MySQL and MariaDB: labels without credentials, and errors in our own words, for source and sink alike.

Values travel as bytes, as the server spells them: the driver converts nothing, so that nothing it says or does depends
on a value.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpweave.errors import SourceError, TargetError

SCHEMES = ("mysql://", "mariadb://")
CONNECT_SECONDS = 10
PATIENCE = 86_400
"""Seconds that the server waits for us, who compute between two queries and between two batches of a result."""
_PARAMETERS = {
    "socket": "unix_socket",
    "unix_socket": "unix_socket",
    "ssl_ca": "ssl_ca",
    "ssl_cert": "ssl_cert",
    "ssl_key": "ssl_key",
    "connect_timeout": "connect_timeout",
    "read_default_file": "read_default_file",
}
"""What a URL may say after its question mark, and what the driver calls it."""


def connect(url: str, *, modes: str, database: str | None = None, error: type[SourceError | TargetError]) -> Any:
    """Open a session in UTC and UTF-8 with autocommit and these SQL modes.

    ``database`` stands for the one that the URL names. What the URL leaves out comes from ``MYSQL_PWD``
    and from the section ``[client]`` of ``~/.my.cnf``.
    """
    try:
        import pymysql
        from pymysql.converters import conversions
    except ImportError:
        raise error("MySQL and MariaDB need the extra: pip install 'dpweave[mysql]'") from None
    encoders = {kind: encode for kind, encode in conversions.items() if not isinstance(kind, int)}
    arguments = _arguments(url, database, error)
    try:
        _require_answer(arguments.get("unix_socket"))
        connection = pymysql.connect(**arguments, autocommit=True, charset="utf8mb4", conv=encoders, use_unicode=False)
        session = {
            "sql_mode": f"'{modes}'",
            "time_zone": "'+00:00'",
            "sql_big_selects": "1",  # else the server refuses queries that look large
            "sql_select_limit": "DEFAULT",
            "wait_timeout": PATIENCE,
            "net_write_timeout": PATIENCE,
        }
        run(connection, f"SET {', '.join(f'SESSION {name} = {value}' for name, value in session.items())}")
    except (pymysql.MySQLError, OSError, ValueError) as failure:  # the last by a file of options, or by an odd name
        raise error(f"{label(url, database)}: {_refusal(failure)}") from None
    return connection


def _require_answer(path: str | None) -> None:
    """Try a socket first: the driver leaves it open where nobody answers."""
    if path is not None:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect(path)


def run(connection: Any, statement: str, arguments: Iterable[str] = ()) -> list[tuple[str | None, ...]]:
    """Run a statement about tables, not about rows, and return what it says as text."""
    with connection.cursor() as cursor:
        cursor.execute(statement, tuple(arguments) or None)
        return [
            tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in row) for row in cursor.fetchall()
        ]


def one(connection: Any, query: str, arguments: Iterable[str] = ()) -> str | None:
    """Return the first value that a query about tables gives."""
    rows = run(connection, query, arguments)
    return rows[0][0] if rows else None


def label(url: str, database: str | None = None) -> str:
    """Return host and database of a URL, and nothing else of it.

    >>> label("mysql://ann:s3cret@db.example.org:3307/shop?ssl_ca=ca.pem")
    'mysql://db.example.org:3307/shop'
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "mysql"
    return f"{parts.scheme}://{parts.hostname or 'localhost'}{port}/{database or unquote(parts.path[1:])}"


def _arguments(url: str, database: str | None, error: type[SourceError | TargetError]) -> dict[str, Any]:
    form = "the URL is not of the form mysql://user:password@host:port/database"
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        port = parts.port or 0
        named = {_PARAMETERS[name]: value for name, value in given.items()}
        timeout = int(named.pop("connect_timeout", CONNECT_SECONDS))
    except (ValueError, KeyError):
        raise error(f"{label(url)}: {form}; after a question mark it may name {', '.join(_PARAMETERS)}") from None
    database = database or unquote(parts.path[1:])
    if not database or "/" in parts.path[1:]:
        raise error(f"{label(url)}: {form}; the database must be named")
    found: dict[str, Any] = {"database": database, "connect_timeout": timeout, **named}
    if parts.hostname or "unix_socket" not in found:
        found["host"] = unquote(parts.hostname or "") or None
    if port:
        found["port"] = port
    if parts.username:
        found["user"] = unquote(parts.username)
    password = unquote(parts.password) if parts.password else os.environ.get("MYSQL_PWD")
    if password:
        found["password"] = password
    options = Path("~/.my.cnf").expanduser()
    if options.is_file():
        found.setdefault("read_default_file", str(options))
    return {name: value for name, value in found.items() if value is not None}


def reason(error: Exception) -> str | None:
    """Say what the server's error code means; its message stays out, since it quotes values."""
    import pymysql

    if not isinstance(error, pymysql.MySQLError):
        return None
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code in _CODES:
        return _CODES[code]
    if code is None or code == 0:
        return "the connection was lost" if isinstance(error, pymysql.InterfaceError) else None
    return f"the server refused a statement (error {code})"


_LOST = "the connection was lost"
_DENIED = "permission is denied"
_BROKEN = "rows break a key, a unique constraint or a NOT NULL of the schema"
_UNFIT = "a value does not fit the type of its column"
_CODES = {
    **dict.fromkeys((1927, 2006, 2013, 2014, 2055, 3169, 4031), _LOST),
    **dict.fromkeys((1053, 1077, 1079, 1317), "the server is shutting down or dropped the connection"),
    **dict.fromkeys((1028, 1969, 3024), "the server cancelled a statement that took too long"),
    **dict.fromkeys((1044, 1045, 1142, 1143, 1227, 1370, 1698), _DENIED),
    **dict.fromkeys((1146, 1051), "a table is no longer there"),
    1054: "a column is no longer there",
    1050: "a table of that name exists already",
    1356: "a view leads to tables or columns that are not there, or that its owner may not read",
    **dict.fromkeys((1005, 1215, 3780), "a foreign key joins columns of different types"),
    **dict.fromkeys((1217, 1451, 3730), "other tables depend on what would be replaced"),
    **dict.fromkeys((1021, 1026, 1030, 1114), "the server's disk is full"),
    **dict.fromkeys((1037, 1038, 1040, 1041, 1203), "the server ran out of memory or connections"),
    **dict.fromkeys((1059, 1060, 1069, 1070, 1117, 1118), "a limit of the server is passed"),
    1071: "the texts of a key are longer than a key of the server may be",
    1153: "a row is longer than max_allowed_packet of the server",
    **dict.fromkeys((1022, 1048, 1062, 1216, 1452, 1586, 4025), _BROKEN),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1367, 1411), _UNFIT),
    1406: "a text is longer than its column",
    **dict.fromkeys((1205, 1213), "another session holds a lock for too long"),
    **dict.fromkeys((1290, 1792, 1836), "the server allows reading only"),
}


def _refusal(error: Exception) -> str:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code in (1045, 1698, 1251, 1396, 1820, 1862, 2059, 2061):
        return "the server refused the user name or password"
    if code in (1044, 1049):
        return "there is no such database on the server, or this user may not see it"
    if code == 1130:
        return "the server does not take connections from this machine"
    if code == 1040:
        return "the server has no room for another connection"
    if isinstance(error, RuntimeError | ImportError):
        return "the server asks for a way to log in that needs another package"
    return "the server cannot be reached"
