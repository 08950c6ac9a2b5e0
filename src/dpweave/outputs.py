"""Where commands write: refused before anything is spent, whole or not at all, named without passwords."""

from __future__ import annotations

from pathlib import Path

from dpweave.errors import TargetError


def require_free_file(path: Path, *, force: bool) -> None:
    """Refuse an output that cannot be written, before anything is spent."""
    if not path.parent.is_dir():
        raise TargetError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise TargetError(f"{path} is a folder; name a file")
    if path.exists() and not force:
        raise TargetError(f"{path} exists already; choose another name, or replace it with --force")


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    draft = part(path)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise TargetError(f"{path} cannot be written: {error.strerror}") from None


def part(path: Path) -> Path:
    """Return the name of a file while it is being written."""
    return path.with_name(path.name + ".part")


def beside(target: str, suffix: str) -> Path:
    """Name a file after a target: next to it, or here if the target is a server."""
    if "://" in target:
        return Path((target.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1] or "copy") + suffix)
    return Path(target).with_suffix(suffix)


def without_password(target: str) -> str:
    """Cut user, password and parameters out of a URL.

    >>> without_password("postgresql://ann:secret@db.example/shop?sslmode=require")
    'postgresql://db.example/shop'
    >>> without_password("copy.duckdb")
    'copy.duckdb'
    """
    if "://" not in target:
        return target
    scheme, rest = target.split("?", 1)[0].split("://", 1)
    return f"{scheme}://{rest.rsplit('@', 1)[-1]}"
