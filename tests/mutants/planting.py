"""Plant every mutation in a copy of the sources, run the tests that should notice, and write ``docs/mutants.md``.

``python -m tests.mutants`` plants all of them, ``python -m tests.mutants NAME ...`` only some and writes nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants.mutations import MUTATIONS, ROOT, Mutation

PAGE = ROOT / "docs" / "mutants.md"

LIMIT = 300
"""Seconds that the tests of one mutation may take. They take some five on an idle
machine; a mutant that runs longer does not count as noticed.
"""

HEAVY = (
    "duckdb",
    "hypothesis",
    "ibis.backends.duckdb",
    "ibis.backends.sqlite",
    "mpmath",
    "opendp.measurements",
    "pyarrow",
    "pytest",
    "scipy.stats",
    "sqlalchemy",
    "xdist",
)
"""Imported once, in the process that all runs are forked from: half of the time.
Nothing of ours, which each run imports anew.
"""


@dataclass(frozen=True)
class Outcome:
    """What the tests of a mutation said; ``killer`` is the test that failed, or None where none did."""

    mutation: Mutation
    killer: str | None
    seconds: float
    said: str = ""


def run(sources: Path, tests: tuple[str, ...], *, limit: float | None = LIMIT) -> tuple[int | None, float, str]:
    """Run tests over some sources until the first fails. Returns the exit code, seconds
    of processor time, and what was printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        said, spent = Path(folder, "said"), Path(folder, "spent")
        said.touch()
        child = multiprocessing.Process(target=_forked, args=(sources, tests, said, spent))
        child.start()
        child.join(limit)
        if child.is_alive():
            os.killpg(child.pid or 0, signal.SIGKILL)  # the run, and what it started
            child.join()
        return child.exitcode, float(spent.read_text()) if spent.exists() else float(limit or 0), said.read_text()


def _forked(sources: Path, tests: tuple[str, ...], said: Path, spent: Path) -> None:
    os.setsid()
    signal.alarm(4 * LIMIT)  # ends a run that nobody is left to stop
    with said.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(sources))
    sys.dont_write_bytecode = True
    # With CI set, hypothesis tries the same examples every time.
    os.environ |= {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
    import pytest

    code = pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", "-rf", "--tb=line", "--assert=plain", *tests])
    if not Path(sys.modules["dpweave"].__file__ or "").is_relative_to(sources):
        sys.exit("other sources than those that were mutated were imported")
    spent.write_text(str(sum(os.times()[:4])))
    sys.stdout.flush()
    sys.exit(int(code))


def killer(code: int | None, said: str) -> str | None:
    """Return the test that failed. A run that ended otherwise, as for a module that
    cannot be imported, says nothing of the tests.
    """
    failed = re.search(r"^FAILED (.+?)(?: - .*)?$", said, re.MULTILINE)
    return failed[1] if code == 1 and failed else None


def _copied(folder: str) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    return Path(shutil.copytree(ROOT / "src", Path(folder).resolve() / "src", ignore=ignored))


def plant(mutation: Mutation) -> Outcome:
    """Run a mutation's tests over a mutated copy of the sources."""
    with tempfile.TemporaryDirectory() as folder:
        sources = _copied(folder)
        (sources / mutation.path).write_text(mutation.mutated(), encoding="utf-8")
        code, seconds, said = run(sources, mutation.tests)
    return Outcome(mutation, killer(code, said), seconds, said)


def require_sound(killers: set[str]) -> None:
    """Stop unless the tests that noticed pass on a copy without a mutation: one that
    fails anyway has noticed nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, seconds, said = run(_copied(folder), tuple(sorted(killers)), limit=None)
    print(f"{seconds:4.1f} s  without a mutation", flush=True)
    if code:
        sys.exit(f"tests fail without a mutation:\n{said}")


def table(outcomes: list[Outcome]) -> str:
    """All outcomes as Markdown."""
    rows = [
        f"| {o.mutation.name} | {o.mutation.file} | {o.mutation.breaks} | {_shown(o)} | {o.seconds:.1f} |"
        for o in outcomes
    ]
    return "\n".join(["| mutation | file | what it breaks | noticed by | seconds |", "|---|---|---|---|---|", *rows])


def _shown(outcome: Outcome) -> str:
    return "**nobody**" if outcome.killer is None else f"`{outcome.killer.removeprefix('tests/').split('[')[0]}`"


def page(outcomes: list[Outcome]) -> str:
    """Text of the page in the documentation."""
    noticed = sum(o.killer is not None for o in outcomes)
    files = len({o.mutation.file for o in outcomes})
    minutes = sum(o.seconds for o in outcomes) / 60
    return f"""# Planted bugs

Would the tests notice if the promise were broken? `make mutants` tries it out. It plants {len(outcomes)} changes in
the {files} files of the trusted core (`src/dpweave/privacy/`, and `engines/large_arrays.py`, by which it goes through
rows), one at a time and in a copy, and runs the tests that should notice. Each change makes noise too small, a charge
too low or too late, a bound too loose, a claim too strong, or lets something out that was never charged. A change that
no test notices fails the run.

Last run: {datetime.now(UTC):%Y-%m-%d}, {minutes:.0f} minutes of processor time.
**{noticed} of {len(outcomes)} were noticed.** The list of changes is `tests/mutants/mutations.py`.
`make test` checks that each of them still applies to the code as it is
and stands in this table. The test named is the first that failed; the run stops there.

{table(outcomes)}
"""


def main() -> None:
    """Plant, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="plant these only, and write nothing")
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2), help="how many at a time")
    chosen = parser.parse_args()
    if unknown := sorted({*chosen.names} - {m.name for m in MUTATIONS}):
        parser.error(f"there is no mutation {unknown[0]!r}")
    mutations = tuple(m for m in MUTATIONS if m.name in chosen.names or not chosen.names)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # what is forked must have no threads
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload([*HEAVY])
    outcomes = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for outcome in pool.map(plant, mutations):
            outcomes.append(outcome)
            print(f"{outcome.seconds:4.1f} s  {outcome.mutation.name}: {outcome.killer or 'NOBODY'}", flush=True)
    if killers := {o.killer for o in outcomes if o.killer}:
        require_sound(killers)
    if not chosen.names:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    print(table(outcomes))
    survivors = [o for o in outcomes if o.killer is None]
    for outcome in survivors:
        print(f"\n{outcome.mutation.name}:\n{outcome.said}")
    sys.exit(f"nobody noticed {', '.join(o.mutation.name for o in survivors)}" if survivors else 0)
