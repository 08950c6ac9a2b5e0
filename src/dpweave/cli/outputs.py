"""Where commands write: refused before anything is spent, whole or not at all, named without passwords."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.engines.staging import require_writable
from dpweave.errors import DpweaveError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpweave.model.model import Model


def require_free_file(path: Path, *, force: bool) -> None:
    """Refuse an output that cannot be written, before anything is spent."""
    if not path.parent.is_dir():
        raise TargetError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise TargetError(f"{path} is a folder; name a file")
    if path.exists() and not force:
        raise TargetError(f"{path} exists already; choose another name, or replace it with --force")
    require_writable(path)


def require_apart(source: str, *outputs: str | Path) -> None:
    """Refuse outputs that are the private source itself: ``--force`` would replace it."""
    for output in outputs:
        same = Path(source).exists() and Path(output).exists() and Path(source).samefile(output)
        if same or source == str(output):
            raise TargetError(f"{without_password(str(output))} is the private source itself; write the copy elsewhere")


def keep(model: Model, path: Path, *, ledger: Path, force: bool) -> None:
    """Save a model that was paid for; if it cannot be saved there, save it beside the
    ledger or in the temporary folder.

    Raises nevertheless, and says where it is: whoever waits for ``path`` waits in vain.
    """
    try:
        require_free_file(path, force=force)  # somebody may have come first
        model.save(path)
    except TargetError as error:
        trouble = error
    else:
        return
    for folder in (ledger.absolute().parent, Path(tempfile.gettempdir())):
        refuge = folder / f"{path.stem}-{model.certificate.run}.dpw"
        try:
            model.save(refuge)
        except TargetError:
            continue
        raise TargetError(f"{trouble}; the model, which is paid for, was saved as {refuge} instead: move it from there")
    raise TargetError(
        f"{trouble}; neither the ledger's folder nor {tempfile.gettempdir()} took the model, and it is lost"
    )


@contextmanager
def kept_safe(model: Path) -> Iterator[None]:
    """Say where the model is if what comes after it fails: it is paid for, and sampling from it is free."""
    try:
        yield
    except DpweaveError as error:
        raise type(error)(f"{error}; the model is in {model}, and sampling from it again is free") from None


def beside(target: str, suffix: str) -> Path:
    """Name a file after a target: next to it, or here if the target is a server."""
    if "://" in target:
        return Path((target.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1] or "copy") + suffix)
    path = Path(target)
    return (path if path.name else path.resolve() / "copy").with_suffix(suffix)


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
