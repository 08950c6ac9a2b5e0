"""Files that say that a process is at work: locked while it is, and free to take when it is gone, however it went."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

TRIES = 100
"""How often a fresh file is asked for. One try nearly always does; where files cannot be locked, none does."""


class Held:
    """A file that one process at a time can hold. Its lock dies with the process; the
    file stays until it is dropped.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path, timeout=0, thread_local=False)

    def take(self) -> bool:
        """Hold it, unless another process does or has just removed it. A folder that is not there is not made."""
        if not self.path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path.parent))
        try:
            self._lock.acquire()
        except Timeout:
            return False
        if not self.path.exists():
            self._lock.release()
            return False
        return True

    def drop(self, *, keep: bool = False) -> None:
        """Let go of it, and remove it unless somebody is to find it."""
        if not keep:
            with suppress(OSError):  # a folder that has become read-only keeps it
                self.path.unlink()
        self._lock.release()
