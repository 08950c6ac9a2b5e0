"""What the journal costs: the share of a fit that goes into keeping its answers.

    python -m benchmarks.journal [--fits 5] [--first]

Every answer is on disk before it is used, so a fit waits for each. The time in which answers are packed, written and
waited for is measured inside of the fit whose time it is a share of; so is the time in the ledger, which was there
before answers were kept. Fits are of made-up databases, and of two of the tests that are as small as fits get. The
ledger lies in the folder of ``--place``, by default here: what a disk costs depends on the disk. Shares are of the
time that passes, and of the processor's time: on a machine that others use, whoever waits for a disk also waits for
his turn. With ``--first`` nobody else's turn comes before that of the fits (which needs the right to real-time
scheduling): the time that passes is then that of a machine of one's own, but for what others want of its disk.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
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

MOST = {1: 3_000, 2: 3_000, 3: 3_000, 4: 100_000}
"""Made-up databases by their numbers, and the rows that they may have in one table."""

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
    for seed, most in MOST.items():
        (folder / f"made{seed}").mkdir()
        made = made_up(seed, most_units=most, most_rows=most)
        source = source_of(made, "duckdb", folder / f"made{seed}")
        found.append(
            (f"made up {seed} ({sum(t.num_rows for t in made.tables.values()):,})", source, drafted(source, made))
        )
    return found


def main() -> None:
    """Fit each of them several times, and print shares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--place", type=Path, default=Path())
    parser.add_argument("--first", action="store_true", help="let nobody else's turn come before")
    asked = parser.parse_args()
    if asked.first:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    clock = Clock()
    for name, of in PARTS.items():
        clock.watch(Ledger if of == "ledger" else KeptAnswers, name, name)
    print("| database (rows) | seconds of a fit | of the processor | answers | journal | of the processor |", end="")
    print(" ledger | of the processor |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory(dir=asked.place) as place:
        for name, source, plan in databases(Path(place)):
            dw.fit(source, plan, epsilon=1.0)  # what is loaded and compiled once
            fits = [timed(clock, source, plan, Path(place) / "ledger.jsonl") for _ in range(asked.fits)]
            took, work, answers, *shares = (median(values) for values in zip(*fits, strict=True))
            cells = [name, f"{took:.2f}", f"{work:.2f}", f"{answers:.0f}", *(f"{share:.1%}" for share in shares)]
            print(f"| {' | '.join(cells)} |", flush=True)


def timed(clock: Clock, source: object, plan: dw.Plan, ledger: Path) -> tuple[float, ...]:
    """Fit once. Return its seconds, those of the processor, its answers, and the shares of journal and ledger in both
    kinds of seconds.
    """
    for known in (clock.seconds, clock.work, clock.calls):
        known.clear()
    began, worked = time.perf_counter(), time.process_time()
    dw.fit(source, plan, epsilon=1.0, ledger=ledger)
    took, work = time.perf_counter() - began, time.process_time() - worked
    shares = []
    for of in ("journal", "ledger"):
        parts = [at for at in PARTS if PARTS[at] == of]
        shares += [sum(clock.seconds[at] for at in parts) / took, sum(clock.work[at] for at in parts) / work]
    return took, work, clock.calls["keep"], *shares


if __name__ == "__main__":
    main()
