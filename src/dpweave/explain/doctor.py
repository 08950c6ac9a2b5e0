"""What a fit here would meet: versions, engines, folders, locks, files that were left, the ledger, and what to do.

It looks, and what it writes to try a folder is gone again. It reads no row, and no message holds one.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.budget.kept_answers import SUFFIX as ANSWERS
from dpweave.budget.running_fits import is_going
from dpweave.budget.spending import read, whole_lines
from dpweave.engines.file_locks import Held
from dpweave.engines.staging import require_writable
from dpweave.errors import DpweaveError
from dpweave.explain.check_plan import Finding
from dpweave.schema.fake_values import require_faker

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("dpweave", "opendp", "numpy", "scipy", "pyarrow", "duckdb", "ibis-framework", "filelock")
EXTRAS = {
    "postgres": ("psycopg",),
    "mysql": ("pymysql",),
    "spark": ("pyspark",),
    "fake": ("faker",),
    "mbi": ("mbi",),
    "evaluate": ("sklearn", "sdmetrics", "threadpoolctl"),
}
"""What each extra brings, by the modules that tell that it is there whole."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found; ``wrong`` would stop a fit, ``risky`` may, and ``note`` is as it should be."""

    findings: tuple[Finding, ...]

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return all(f.severity != "wrong" for f in self.findings)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        found = [{"severity": f.severity, "where": f.where, "text": f.text} for f in self.findings]
        return {"well": self.well, "findings": found}


def diagnose(*, plan: str | Path | None = None, ledger: str | Path = "ledger.jsonl") -> Diagnosis:
    """Look at what a fit by ``plan``, charged to ``ledger``, would meet here."""
    path = Path(os.path.realpath(ledger))
    found = [*_software(), *_folders(path), *_ledger(path), *_left(path)]
    if plan is not None:
        found += _plan(Path(plan))
    order = ("wrong", "risky", "note")
    return Diagnosis(tuple(sorted(found, key=lambda f: order.index(f.severity))))


def _software() -> Iterator[Finding]:
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield Finding("note", "versions", f"python {sys.version.split()[0]}, {versions}")
    missing = [name for name, modules in EXTRAS.items() if not all(find_spec(m) for m in modules)]
    here = [name for name in EXTRAS if name not in missing]
    yield Finding("note", "engines", f"duckdb, sqlite, folders and data frames; extras: {', '.join(here) or 'none'}")
    if missing:
        hint = f"install them with pip install 'dpweave[{','.join(missing)}]' if you need them"
        yield Finding("note", "extras", f"not installed: {', '.join(missing)}; {hint}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _folders(ledger: Path) -> Iterator[Finding]:
    for what, target in (
        ("folder of the ledger", ledger),
        ("temporary folder", Path(tempfile.gettempdir()) / "dpweave-doctor"),
    ):
        folder = target.parent
        if not folder.is_dir():
            yield Finding("wrong", what, f"there is no folder {folder}; make it, or name another ledger")
            continue
        try:
            require_writable(target)
        except DpweaveError:
            yield Finding("wrong", what, f"nothing can be written in {folder}; give the permission, or make room")
            continue
        free = shutil.disk_usage(folder).free
        room = f"{free / (1 << 30):,.1f} GB free; a copy takes about as much as the database"
        yield Finding("note", what, f"{folder} can be written and has {room}")


def _ledger(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("note", "ledger", f"there is no {path} yet; the first fit makes it")
        return
    try:
        summary, lines = read(path), len(whole_lines(path))
    except DpweaveError as error:
        yield Finding("wrong", "ledger", str(error))
        return
    if not os.access(path, os.W_OK):
        yield Finding("wrong", "ledger", f"{path} cannot be written; give the permission, or name another")
    torn = "" if path.read_bytes().endswith(b"\n") or not lines else "; a last line that was cut off goes with the next"
    yield Finding("note", "ledger", f"{path} has {lines} lines, and each follows the one before{torn}")
    lock = Path(f"{path}.lock")
    if lock.exists() and not _free(lock):
        yield Finding("risky", "lock", f"another process holds {lock.name}; wait for it, or stop it")
    for name, database in summary.databases.items():
        cap = "no cap is set" if database.cap is None else f"the cap is epsilon {database.cap.epsilon:g}"
        hint = "; dpweave ledger FILE --cap-epsilon E sets one" if database.cap is None else ""
        yield Finding("note", name, f"{len(database.runs)} run{'s' * (len(database.runs) != 1)}; {cap}{hint}")
        for run in database.reserved:
            if is_going(path, run):
                yield Finding("note", name, f"run {run} is going on")
            elif Path(f"{path}.{run}.run").exists():
                yield Finding("note", name, f"run {run} died; the next fit gives back what it had reserved")
            else:
                text = f"run {run} has not ended, and nothing here shows its process"
                yield Finding("risky", name, f"{text}; if it is dead: dpweave ledger {path.name} --release {run}")


def _left(ledger: Path) -> Iterator[Finding]:
    """Say what processes that are gone have left beside the ledger."""
    if not ledger.parent.is_dir():
        return
    for file in sorted(ledger.parent.glob(f"{glob.escape(ledger.name)}.*{ANSWERS}")):
        run = file.name.removeprefix(f"{ledger.name}.").removesuffix(ANSWERS)
        if not is_going(ledger, run):
            text = "holds answers of a fit that was cut off, or whose model was not saved"
            way = "go on with dpweave fit … --resume (in Python resume=True)"
            yield Finding("risky", file.name, f"{text}; {way}, or remove it")
    for place in sorted(ledger.parent.glob(".*.part")):
        if not (place / "lock").exists() or _free(place / "lock"):
            old = any((place / "old").glob("*"))
            rest = "it holds a folder that was moved aside: write there again, or take it out" if old else "remove it"
            yield Finding("risky", place.name, f"was left by a process that died while it wrote; {rest}")
    for file in sorted(ledger.parent.glob("*.unreadable")):
        yield Finding("risky", file.name, "is a model that could not be read again; keep it, and report it")


def _free(lock: Path) -> bool:
    held = Held(lock)
    try:
        free = held.take()
    except OSError:  # somebody else's, and not ours to try
        return False
    if free:
        held.drop(keep=True)
    return free


def _plan(path: Path) -> Iterator[Finding]:
    from dpweave.plan.plan import Plan

    try:
        plan = Plan.load(path)
        require_faker(plan.placeholders)
    except DpweaveError as error:
        yield Finding("wrong", "plan", str(error))
        return
    who = ", ".join(plan.protect)
    text = f"{path} can be used: {len(plan.tables)} tables, {who} protected; dpweave check {path.name} SOURCE says more"
    yield Finding("note", "plan", text)
