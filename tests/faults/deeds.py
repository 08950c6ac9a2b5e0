"""What processes die over: fits of several kinds, going on, saving, sampling, writing, reporting, and a ledger's own
work. Each deed says what must hold after every death, and is done to its end at last: what is there then must be what
a deed that nobody killed leaves, byte by byte.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import sqlite3
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import dpweave as dw
from dpweave.budget.running_fits import begin, close_dead
from dpweave.budget.spending import read
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import set_cap
from dpweave.weaving import parts
from tests.faults.dying import Death, Fate, by_chance, forked, warm
from tests.model import shops

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ONE = """
protect = ["people"]
[tables.people]
primary_key = ["id"]
mechanism = "independent"
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
"""
OWNED = (
    ONE
    + """
[tables.buys]
primary_key = ["id"]
[tables.buys.columns]
id = { type = "int64", nullable = false, domain = "key" }
who = { type = "int64", nullable = false, domain = "key" }
price = { type = "int64", nullable = false, domain = { low = 0, high = 9, bins = 5 } }
[tables.buys.keys.who]
columns = ["who"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 4
"""
)
LEDGER, MODEL = "ledger.jsonl", "model.dpw"
EPSILON, SEED = 3.0, 5
MOST = 10
"""Kills in one folder before a process may get to its end."""
TARGETS = {"c.sqlite": False, "c.duckdb": False, "c.csv": False, "c": False, "p": True}
"""Copies that are written, and whether part by part."""
BESIDE = (f"{LEDGER}.lock",)
"""What may stay beside what a deed leaves: locks whose file is there for ever."""


@dataclass
class Run:
    """One folder in which processes die until one gets to the end, and what was seen there."""

    folder: Path
    deaths: int = 0
    ledger: bytes = b""
    """Whole lines of the ledger after the last death."""
    reads: list[str] = field(default_factory=list)
    """What was read of rows since a model was last saved, and how many had died by then."""
    settled: int = 0


@dataclass(frozen=True)
class Deed:
    """Something a process can die over."""

    name: str
    about: str
    do: Callable[[Path], object]
    """Does it, or goes on with what a dead one left."""
    prepare: Callable[[Path], object] = lambda _: None
    """Makes what must be there before."""
    sound: Callable[[Run], object] = lambda _: None
    """What must hold after each death, beside what must hold of every ledger."""
    left: Callable[[Path], Any] = lambda _: None
    """What is there at the end, to be compared with what the unbroken deed left."""


# -- what must hold ----------------------------------------------------------------------------------------------------


def require_sound(run: Run, fate: Fate) -> None:
    """Hold the ledger against what was read: nothing charged is lost, nothing was read that was not charged, at most
    one charge for each death has no answer, and no answer has no charge.
    """
    path = run.folder / LEDGER
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    assert whole.startswith(run.ledger), "lines of the ledger are gone"
    entries = [e for d in read(path).databases.values() for e in d.entries] if whole else []
    new = [e for e in entries if e.n > run.ledger.count(b"\n")]
    charged = [str(e.what["what"]) for e in new if e.kind == "charge"]
    assert fate.reads == charged[: len(fate.reads)], "rows were read that nothing was charged for"
    if fate.reads:
        assert len(charged) - len(fate.reads) <= int(fate.died), "a charge was made, and nothing read"
    run.ledger, run.reads = whole, [*run.reads, *fate.reads]
    numbers = {e.n for e in entries if e.kind == "charge"}
    answers = [path for path in run.folder.glob("*.answers") if b"\n" in path.read_bytes()]
    if run.reads and not answers:  # killed after all was done, or done
        fitted(run.folder)
        run.reads, run.settled = [], run.deaths
    for kept in answers:
        lines = [line for line in kept.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        known = {json.loads(line)["charge"] for line in lines[1:]}
        assert known <= numbers, "an answer was not charged for"
        assert len(run.reads) - len(known) <= run.deaths - run.settled, "an answer was lost that was paid for"


def require_tidy(run: Run, expected: list[str]) -> None:
    """No stray file is left where the unbroken deed leaves none."""
    names = [n for n in names_in(run.folder) if n not in BESIDE]
    assert names == [n for n in expected if n not in BESIDE], f"left behind: {names}, not {expected}"


def names_in(folder: Path) -> list[str]:
    """Everything in a folder, but what is inside of targets."""
    return sorted(p.name for p in folder.iterdir())


# -- fits --------------------------------------------------------------------------------------------------------------


def people() -> dict[str, pa.Table]:
    """Some people, and what they buy."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(60), rng.integers(0, 5, 60))
    bought = {"id": np.arange(len(who)), "who": who, "price": rng.integers(0, 10, len(who))}
    return {
        "people": pa.table({"id": np.arange(60), "sex": rng.choice(["f", "m"], 60)}),
        "buys": pa.table(bought),
    }


PEOPLE, SHOP = people(), shops.tables()


def fit(folder: Path, *, source: object, plan: str, epsilon: float = EPSILON, **options: Any) -> None:
    """Fit, or go on, and save."""
    source = folder / source if isinstance(source, str) else source
    resume = any(b"\n" in path.read_bytes() for path in folder.glob("*.answers"))
    asked = {"epsilon": epsilon, "delta": 1e-5, "ledger": folder / LEDGER, "insecure_seed": SEED} | options
    if "extend" in asked:
        asked["extend"] = dw.load(folder / asked["extend"])
    dw.fit(source, dw.Plan.from_toml(plan), resume=resume, **asked).save(folder / MODEL)


def in_sqlite(folder: Path) -> None:
    """The people in a file."""
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE people (id INTEGER PRIMARY KEY, sex TEXT NOT NULL);"
            "CREATE TABLE buys (id INTEGER PRIMARY KEY, who INTEGER NOT NULL REFERENCES people, price INTEGER NOT NULL)"
        )
        for name, frame in PEOPLE.items():
            places = ", ".join("?" * frame.num_columns)
            values = [tuple(row.values()) for row in frame.to_pylist()]
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", values)
    connection.close()


def entries(path: Path) -> dict[str, bytes]:
    """What is in a model, or any other zip."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def fitted(folder: Path) -> dict[str, bytes]:
    """Everything in the model but its certificate, which says all charges of the ledger."""
    found = entries(folder / MODEL)
    certificate = json.loads(found.pop("certificate.json"))
    charges = [e for d in read(folder / LEDGER).databases.values() for e in d.entries if e.kind == "charge"]
    said = [e["n"] for e in certificate["events"] if "run" not in e]
    assert said == [e.n for e in charges if e.run == certificate["run"]], "the certificate is not true"
    return found


def model_is_whole(run: Run, *, before: bytes = b"") -> None:
    """There is no model, or all of one."""
    path = run.folder / MODEL
    if path.exists() and path.read_bytes() != before:
        assert "certificate.json" in entries(path)


# -- what needs a model ------------------------------------------------------------------------------------------------


def prepared(folder: Path, cache: dict[str, bytes]) -> None:
    """Put a model where it is asked for."""
    (folder / MODEL).write_bytes(cache["model"])


def write(folder: Path, *, target: str, in_parts: bool = False) -> None:
    """Sample and write over whatever is there."""
    if in_parts:
        parts.PART_VALUES, parts.FEW = 150, 5
    dw.load(folder / MODEL).sample(seed=2).write(folder / target, overwrite=True)


def older_copy(folder: Path, cache: dict[str, bytes], *, target: str) -> None:
    """A copy with another seed is there already."""
    prepared(folder, cache)
    dw.load(folder / MODEL).sample(seed=1).write(folder / target)


def rows(path: Path) -> Any:
    """What a copy holds, whatever it is kept in."""
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.iterdir())}
    if path.suffix == ".sqlite":
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return {t: connection.execute(f"SELECT * FROM {t} ORDER BY id").fetchall() for t in ("people", "buys")}
        finally:
            connection.close()
    shown = path.with_name(f"{path.name}.json")
    forked(lambda: _show(path, shown), path.parent)
    try:
        return json.loads(shown.read_text())
    finally:
        shown.unlink()


def _show(path: Path, shown: Path) -> None:
    """Write what a DuckDB file holds as text: in a fork, because DuckDB starts threads."""
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        found = {t: connection.execute(f"SELECT * FROM {t} ORDER BY id").fetchall() for t in ("people", "buys")}
    shown.write_text(json.dumps(found))


def one_of(run: Run, *, target: str, known: list[Any]) -> None:
    """The target is the old copy or the new one; or the old one stands aside, and comes back with the next start."""
    path = run.folder / target
    aside = [*run.folder.glob(f".{target}.????????.part/old/{target}")]
    if not path.exists():
        assert len(aside) == 1, "a target is gone"
        path = aside[0]
    assert rows(path) in known, "a target is half"


def report(folder: Path) -> None:
    """Sample and report."""
    model = dw.load(folder / MODEL)
    dw.report(model, model.sample(seed=2), folder / "report.html")


# -- a ledger by itself ------------------------------------------------------------------------------------------------


def book(folder: Path) -> None:
    """Cap, begin, charge and end a few runs; end what dead ones left."""
    ledger = folder / LEDGER
    set_cap(ledger, database="shop", epsilon=100.0, delta=1e-4)
    for i in range(3):
        with begin(ledger, database="shop", limit=Budget(0.5, 0.0), tables=("a",), delta=1e-6, label=None) as run:
            run.charge(Cost({"a": 0.25}, {}), what={"verb": "measure", "what": f"q{i}"})
    close_dead(ledger)


def settled(folder: Path) -> dict[str, object]:
    """Nothing is reserved any more, and what was spent is what was charged."""
    (found,) = read(folder / LEDGER).databases.values()
    charges = [e for e in found.entries if e.kind == "charge"]
    assert found.total.rho["a"] == 0.25 * len(charges)
    assert all(len([e for e in run if e.kind == "charge"]) <= 1 for run in found.runs.values())
    return {**found.reserved}


# -- all of them -------------------------------------------------------------------------------------------------------


def deeds(cache: dict[str, bytes]) -> list[Deed]:
    """Every deed. ``cache`` has the bytes of a model as "model"."""
    model = partial(prepared, cache=cache)
    frames = {"people": PEOPLE["people"]}
    found = [
        Deed("fit", "one table: fit, resume, save", partial(fit, source=frames, plan=ONE), sound=model_is_whole),
        Deed(
            "fit of units",
            "two tables in SQLite, one owned, with siblings: fit, resume, save",
            partial(fit, source="shop.sqlite", plan=OWNED),
            in_sqlite,
            model_is_whole,
        ),
        Deed(
            "fit of all kinds",
            "three tables, every kind of question: fit, resume, save",
            partial(fit, source=SHOP, plan=shops.PLAN, epsilon=8.0),
            sound=model_is_whole,
        ),
        Deed(
            "extend",
            "more budget for a model, saved over it: extend, resume, save",
            partial(fit, source=PEOPLE, plan=OWNED, extend="first.dpw"),
            lambda folder: (folder / "first.dpw").write_bytes(cache["model"]),
            model_is_whole,
        ),
    ]
    found = [Deed(d.name, d.about, d.do, d.prepare, d.sound, fitted) for d in found]
    found.append(
        Deed(
            "refit",
            "a model learned again and saved over itself",
            lambda folder: dw.refit(dw.load(folder / MODEL)).save(folder / MODEL),
            model,
            partial(model_is_whole, before=cache["model"]),
            lambda folder: {k: v for k, v in entries(folder / MODEL).items() if k != "lineage.json"},
        )
    )
    for target, in_parts in TARGETS.items():
        found.append(
            Deed(
                f"write {target}" + " in parts" * in_parts,
                "a copy sampled and written over an older one",
                partial(write, target=target, in_parts=in_parts),
                partial(older_copy, cache=cache, target=target),
                left=lambda folder, target=target: rows(folder / target),
            )
        )
    found += [
        Deed(
            "report",
            "a copy sampled and a report written",
            report,
            model,
            left=lambda f: (f / "report.html").read_bytes(),
        ),
        Deed("ledger", "caps, runs, charges, ends of runs that died", book, left=settled),
    ]
    return found


class Killer:
    """Kills deeds by chance, and holds what is left against the unbroken deed."""

    def __init__(self, place: Path, rng: random.Random, names: list[str] | None = None) -> None:
        self.place, self.rng = place, rng
        self.kills: Counter[tuple[str, str]] = Counter()
        """Processes that died, by deed and kind of death."""
        self.ends: Counter[str] = Counter()
        """How often a deed came to its end after them."""
        cache: dict[str, bytes] = {}
        first = self._folder()
        forked(lambda: fit(first, source=PEOPLE, plan=OWNED), first)
        cache["model"] = (first / MODEL).read_bytes()
        self.deeds = [d for d in deeds(cache) if names is None or d.name in names]
        self._unbroken: dict[str, tuple[Any, list[str], dict[str, float], list[Any]]] = {}

    def _folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.place))

    def unbroken(self, deed: Deed) -> tuple[Any, list[str], dict[str, float], list[Any]]:
        """What a deed leaves that nobody kills: what is there, names, steps to die at, and copies that may be seen."""
        if deed.name not in self._unbroken:
            folder = self._ready(deed)
            known = [rows(p) for p in folder.iterdir() if p.name in TARGETS]
            warm(forked(partial(_do, deed, folder), folder))
            run = Run(folder)
            shutil.rmtree(folder)
            folder = self._ready(deed)
            fate = forked(partial(_do, deed, folder), folder)
            require_sound(Run(folder), fate)
            left = deed.left(folder)
            self._unbroken[deed.name] = left, names_in(folder), fate.steps, [*known, left]
            assert run.deaths == 0
            shutil.rmtree(folder)
        return self._unbroken[deed.name]

    def _ready(self, deed: Deed) -> Path:
        folder = self._folder()
        forked(partial(deed.prepare, folder), folder)
        (folder / "tmp").mkdir()
        return folder

    def round(self, deed: Deed, most: int) -> int:
        """Kill processes of one deed, at most so often, then let it end. Returns the kills."""
        whole, names, steps, known = self.unbroken(deed)
        run = Run(self._ready(deed))
        died: list[Death | None] = []
        while True:
            death = by_chance(steps, self.rng) if run.deaths < most else None
            died.append(death)
            fate = forked(partial(_do, deed, run.folder), run.folder, death)
            if death is not None and fate.died:
                run.deaths += 1
                self.kills[deed.name, death.kind] += 1
            try:
                require_sound(run, fate)
                deed.sound(run)
                if deed.name.startswith("write"):
                    one_of(run, target=deed.name.split()[1], known=known)
                if not fate.died:
                    assert deed.left(run.folder) == whole, "what is left at the end differs"
                    require_tidy(run, names)
                    stray = names_in(run.folder / "tmp")
                    assert not stray, f"temporary files are left: {stray}"
                    break
            except AssertionError as error:
                raise AssertionError(f"{deed.name}, killed at {died}: {error}; see {run.folder}") from error
        shutil.rmtree(run.folder)
        self.ends[deed.name] += 1
        return run.deaths

    def kill(self, times: int, *, seconds: float = math.inf) -> int:
        """Kill so often, or for so long, each deed in turn. Returns the kills."""
        kills, end = 0, time.monotonic() + seconds
        for deed in itertools.cycle(self.deeds):
            if kills >= times or time.monotonic() > end:
                return kills
            kills += self.round(deed, self.rng.randint(2, MOST))
        raise AssertionError("no deeds")


def _do(deed: Deed, folder: Path) -> None:
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    deed.do(folder)
