"""What the journal costs: the share of a fit that goes into keeping its answers.

    python -m benchmarks.journal [--fits 3]

Every answer is on disk before it is used, so a fit waits for each. The time in which answers are packed, written and
waited for is measured inside of the fit whose time it is a share of; so is the time in the ledger, which was there
before answers were kept. Fits are of made-up databases, and of two of the tests that are as small as fits get. The
ledger lies in the folder of ``--place``, by default here: what a disk costs depends on the disk. Shares are of the
time that passes, and of the processor's time: on a machine that others use, whoever waits for a disk also waits for
his turn, and only the second says what the journal costs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpweave as dw
from benchmarks import soak
from benchmarks.made_up import made_up
from benchmarks.zoo import drafted, source_of
from dpweave.budget.kept_answers import KeptAnswers
from dpweave.privacy.ledger import Ledger
from tests.model import shops

if TYPE_CHECKING:
    from collections.abc import Callable

MADE_UP = (1, 2, 3)
"""Numbers of the made-up databases."""
MOST = 3_000
"""Rows that a made-up database may have in one table."""

PARTS = {"begin": "journal", "recall": "journal", "keep": "journal", "charge": "ledger"}
"""What is watched."""


@dataclass
class Clock:
    """Adds up the seconds that pass within some functions, those of the processor, and how often they are called."""

    seconds: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def watch(self, owner: type, name: str, under: str) -> None:
        """Count a method of a class from now on."""
        does: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            began, worked = time.perf_counter(), time.process_time()
            try:
                return does(*args, **options)
            finally:
                self.seconds[under] = self.seconds.get(under, 0.0) + time.perf_counter() - began
                self.work[under] = self.work.get(under, 0.0) + time.process_time() - worked
                self.calls[under] = self.calls.get(under, 0) + 1

        setattr(owner, name, timed)


def databases(folder: Path) -> list[tuple[str, object, dw.Plan]]:
    """What is fitted: a name, a source and a plan each."""
    found: list[tuple[str, object, dw.Plan]] = [
        ("people and what they buy (300)", soak.source(), dw.Plan.from_toml(soak.PLAN)),
        ("three tables, all kinds of questions (400)", shops.tables(), dw.Plan.from_toml(shops.PLAN)),
    ]
    for seed in MADE_UP:
        (folder / f"made{seed}").mkdir()
        made = made_up(seed, most_units=MOST, most_rows=MOST)
        source = source_of(made, "duckdb", folder / f"made{seed}")
        found.append(
            (f"made up {seed} ({sum(t.num_rows for t in made.tables.values()):,})", source, drafted(source, made))
        )
    return found


def main() -> None:
    """Fit each of them several times, and print shares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=3)
    parser.add_argument("--place", type=Path, default=Path())
    asked = parser.parse_args()
    clock = Clock()
    for name, of in PARTS.items():
        clock.watch(Ledger if of == "ledger" else KeptAnswers, name, name)
    print("| database (rows) | seconds of a fit | of the processor | answers | journal | of the processor |", end="")
    print(" ledger | of the processor |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory(dir=asked.place) as place:
        for name, source, plan in databases(Path(place)):
            dw.fit(source, plan, epsilon=1.0)  # what is loaded and compiled once
            for known in (clock.seconds, clock.work, clock.calls):
                known.clear()
            began, worked = time.perf_counter(), time.process_time()
            for _ in range(asked.fits):
                dw.fit(source, plan, epsilon=1.0, ledger=Path(place) / "ledger.jsonl")
            took, work = time.perf_counter() - began, time.process_time() - worked
            cells = [
                name,
                f"{took / asked.fits:.2f}",
                f"{work / asked.fits:.2f}",
                f"{clock.calls['keep'] // asked.fits}",
            ]
            for of in ("journal", "ledger"):
                parts = [at for at in PARTS if PARTS[at] == of]
                cells += [f"{sum(clock.seconds[at] for at in parts) / took:.1%}"]
                cells += [f"{sum(clock.work[at] for at in parts) / work:.1%}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
