"""All or nothing on a file system: write beside the target, rename at the end.

What is being written lies in a hidden folder of its own beside its target, ``.NAME.XXXXXXXX.part``: the draft in
``new``, and in ``old`` a folder that the draft is about to replace. A file ``.NAME.XXXXXXXX.lock`` is held as long as
the writer lives; it is there before the folder and goes after it. Whoever writes there next removes what dead writers
left, and puts back a folder that one had moved aside and not yet replaced.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.engines.file_locks import TRIES, Held
from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    with staged(path) as draft:
        draft.write_text(text, encoding="utf-8")


PROBE = 1 << 12
"""Bytes that are written to see whether a folder takes any: one block of most file systems.
A disk that has a block left and no room for the output is only found when that is written.
"""


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Give a fresh path; what is written there takes the target's place if the block
    succeeds and vanishes if it fails.
    """
    target = target.expanduser()
    try:
        with workplace(target.absolute().parent, prefix=f".{target.name}.") as place:
            for name in ("new", "old"):
                (place / name).mkdir()
            yield place / "new" / target.name
            _replace(place / "new" / target.name, target, aside=place / "old" / target.name)
    except OSError as error:
        raise TargetError(f"{target} cannot be written: {error.strerror or type(error).__name__}") from None


def require_writable(target: Path) -> None:
    """Refuse a target in whose folder nothing can be written. It is tried: permissions
    and free space do not tell all.
    """
    try:
        with (
            workplace(target.absolute().parent, prefix=f".{target.name}.") as place,
            (place / "probe").open("wb") as file,
        ):
            file.write(bytes(PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise TargetError(f"{target} cannot be written: {error.strerror or type(error).__name__}") from None


@contextmanager
def workplace(folder: Path | None, *, prefix: str) -> Iterator[Path]:
    """Give a fresh folder inside ``folder``, or where temporary files go; it is gone
    when the block ends, however it ends.

    What processes that are dead now left under the same ``prefix`` goes too.
    """
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    _sweep(folder, prefix)
    place, held = _made(folder, prefix)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        held.drop()


def _made(folder: Path, prefix: str) -> tuple[Path, Held]:
    for _ in range(TRIES):
        place = folder / f"{prefix}{secrets.token_hex(4)}.part"
        held = Held(place.with_suffix(".lock"))
        if held.take():  # else a sweeper had it before it was held
            break
    else:
        raise OSError(errno.ENOLCK, "no file can be made and locked there")
    try:
        place.mkdir(mode=0o700)
    except OSError:
        held.drop()
        raise
    return place, held


def _sweep(folder: Path, prefix: str) -> None:
    for lock in folder.glob(f"{escape(prefix)}????????.lock"):
        with suppress(OSError):  # somebody else's
            if (held := Held(lock)).take():
                place = lock.with_suffix(".part")
                for old in (place / "old").glob("*"):
                    if not (folder / old.name).exists():
                        old.rename(folder / old.name)
                shutil.rmtree(place, ignore_errors=True)
                held.drop()


def _replace(draft: Path, target: Path, *, aside: Path) -> None:
    if not (target.is_dir() and draft.is_dir()):  # a file never takes the place of a folder
        draft.replace(target)
        return
    target.rename(aside)
    try:
        draft.rename(target)
    except OSError:
        aside.rename(target)
        raise
