"""A real MariaDB for the tests: one server per process of the tests, on a socket in a fresh folder."""

from __future__ import annotations

import getpass
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60
"""For the server to answer, on a busy machine."""
MEMORY, ROOM = Path("/dev/shm"), 1 << 30
"""A folder in memory, in which a server starts ten times as fast, and the bytes that must be free there."""
CHEAP = (
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--performance-schema=OFF",
    "--skip-log-bin",
    "--skip-networking",
)
"""Nothing here outlives the tests, so nothing needs to reach the disk, and nobody else needs to reach the server."""


class MariaDBServer:
    """Each call of ``fresh`` makes an empty database and returns its URL."""

    def __init__(self) -> None:
        memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
        self._folder = Path(tempfile.mkdtemp(prefix="dpw", dir=MEMORY if memory else None))
        self._socket = self._folder / "s"
        self._numbers = itertools.count()
        data, user = self._folder / "data", getpass.getuser()
        install = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        # A folder for temporary tables of its own: a server that starts drops what it finds there.
        common = ["--no-defaults", f"--user={user}", f"--datadir={data}", f"--tmpdir={self._folder}", *CHEAP]
        subprocess.run(
            [str(program("mariadb-install-db")), *common, *install], check=True, capture_output=True, timeout=SECONDS
        )
        self._program = [
            *(str(program("mariadbd")), *common),
            *(f"--socket={self._socket}", f"--pid-file={self._folder / 'pid'}"),
        ]
        self.restart()

    def crash(self) -> None:
        """Stop while sessions are at work; they are cut off. (Killed, it would lose what it has not written yet.)"""
        self._server.terminate()
        self._server.wait(SECONDS)

    def restart(self) -> None:
        """Start, again after a crash with what was there."""
        self._server = subprocess.Popen(self._program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + SECONDS
        while True:
            with socket.socket(socket.AF_UNIX) as tried:
                if tried.connect_ex(str(self._socket)) == 0:
                    return
            if time.monotonic() > end or self._server.poll() is not None:
                raise RuntimeError("the MariaDB server does not start")
            time.sleep(0.1)

    def _connect(self, database: str | None) -> Any:
        import pymysql

        return pymysql.connect(unix_socket=str(self._socket), user="root", database=database, autocommit=True)

    def url(self, database: str, *, user: str = "root") -> str:
        return f"mariadb://{user}@localhost/{database}?socket={quote(str(self._socket), safe='')}"

    def fresh(self) -> str:
        name = f"db{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")  # with the collation that servers have by default
        return self.url(name)

    def run(self, *statements: str, url: str | None = None, modes: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements as the administrator, in the database of a URL; return the rows of the last one."""
        database = url.split("?", 1)[0].rsplit("/", 1)[-1] if url else None
        with (
            closing(self._connect(database)) as connection,
            connection.cursor() as cursor,
        ):
            if modes is not None:
                cursor.execute("SET SESSION sql_mode = %s", (modes,))
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        self._server.kill()  # its folder goes, so it need not tidy up
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def program(name: str) -> Path | None:
    """Where a program of the server is; the server itself is often on nobody's path."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    pytest.importorskip("pymysql")
    if program("mariadbd") is None or program("mariadb-install-db") is None:
        pytest.skip("no MariaDB server here: install mariadb-server")
    server = MariaDBServer()
    yield server
    server.stop()
