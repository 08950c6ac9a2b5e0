"""All or nothing on a file system: write beside the target, rename at the end."""

from __future__ import annotations

import shutil
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Give a fresh sibling path; it takes the target's place if the block succeeds and vanishes if it fails."""
    target = target.expanduser()
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield draft
        _replace(draft, target)
    except OSError as error:
        raise TargetError(f"{target} cannot be written: {error.strerror or type(error).__name__}") from None
    finally:
        for leftover in target.parent.glob(f"{_escaped(draft.name)}*"):
            _remove(leftover)


def _replace(draft: Path, target: Path) -> None:
    if not target.is_dir():
        draft.replace(target)
        return
    aside = draft.with_name(f"{draft.name}.old")
    target.rename(aside)
    try:
        draft.rename(target)
    except OSError:
        aside.rename(target)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
