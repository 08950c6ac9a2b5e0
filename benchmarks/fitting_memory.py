"""Peak memory of a fit against the rows of the database, each in a fresh process.

    python -m benchmarks.fitting_memory --rows 1e5 1e6 1e7

Users, public films and ratings are made up in a DuckDB file: for each ten ratings a user. Shown is the peak while rows
are counted (which grows with them, where the codes of unit sums are held) and the peak while links are fitted and
wired, on a part of a copy; and what one step of that adds to what is held before it. Linux alone can tell these apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

FILMS = 1500
MADE_UP = """
CREATE TABLE films (id INTEGER PRIMARY KEY, year INTEGER NOT NULL, kind VARCHAR NOT NULL);
CREATE TABLE users (id INTEGER PRIMARY KEY, age INTEGER NOT NULL, kind VARCHAR NOT NULL);
CREATE TABLE ratings ("user" INTEGER NOT NULL, film INTEGER NOT NULL, stars INTEGER NOT NULL, kind VARCHAR NOT NULL);
SELECT setseed(0.5);
INSERT INTO films SELECT i, 1960 + (random() * 60)::INTEGER, substr('abc', 1 + (random() * 2)::INTEGER, 1)
    FROM range({films}) t(i);
INSERT INTO users SELECT i, 18 + (random() * 60)::INTEGER, substr('abc', 1 + (random() * 2)::INTEGER, 1)
    FROM range({users}) t(i);
INSERT INTO ratings SELECT floor({users} * sqrt(random())), floor({films} * random()), 1 + (random() * 4)::INTEGER,
    substr('abc', 1 + (random() * 2)::INTEGER, 1) FROM range({ratings}) t(i);
"""


def made_up(path: Path, ratings: int) -> None:
    """Write a database of so many ratings."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(MADE_UP.format(films=FILMS, users=max(ratings // 10, 10), ratings=ratings))


def one(path: str) -> dict[str, object]:
    """Fit in this process."""
    import dpweave as dw
    from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, ForeignKey, Type
    from dpweave.schema.domain import Bins, Categories

    def whole(name: str, *edges: int) -> ColumnPlan:
        return ColumnPlan(Column(name, Type("integer"), nullable=False), Bins(tuple(range(*edges))) if edges else None)

    kind = ColumnPlan(Column("kind", Type("text"), nullable=False), Categories(("a", "b", "c")))
    ratings = (whole("user"), whole("film"), whole("stars", 1, 7), kind)
    keys = (
        KeyPlan(ForeignKey(("user",), "users", ("id",)), "owning", 30),
        KeyPlan(ForeignKey(("film",), "films", ("id",)), "attribute"),
    )
    plan = Plan(
        (
            TablePlan("users", (whole("id"), whole("age", 18, 80, 10), kind), ("id",)),
            TablePlan("films", (whole("id"), whole("year", 1960, 2030, 10), kind), ("id",)),
            TablePlan("ratings", ratings, (), keys=keys),
        ),
        protect=("users",),
        public=("films",),
    )
    peaks, running = {"counting": 0, "learning": 0, "above": 0}, ["counting", 0]

    def told(step: str, _: float) -> None:
        peak, held = _peak_since_last()
        peaks[running[0]] = max(peaks[running[0]], peak)
        if running[0] == "learning":
            peaks["above"] = max(peaks["above"], peak - running[1])
        is_learning = step.startswith("learn links") and not step.endswith("measuring")
        running[:] = ["learning" if is_learning else "counting", held]

    start = time.perf_counter()
    model = dw.fit(path, plan, epsilon=2.0, delta=1e-6, progress=told, insecure_seed=0)
    return {
        "ratings": round(model.sizes["ratings"]),
        "counting_mb": peaks["counting"],
        "learning_mb": peaks["learning"],
        "above_mb": peaks["above"],
        "cpu_s": round(time.process_time(), 1),
        "wall_s": round(time.perf_counter() - start, 1),
    }


def _peak_since_last() -> tuple[int, int]:
    """Peak memory in MB since this was called last, and what is held now."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    peak, held = (int(status.split(what)[1].split()[0]) // 1024 for what in ("VmHWM:", "VmRSS:"))
    return peak, held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(one(chosen.one)))
        return
    print("| ratings | peak MB, counting | peak MB, learning links | MB a step adds | CPU s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        for rows in chosen.rows:
            path = Path(home) / f"{int(rows)}.duckdb"
            made_up(path, int(rows))
            command = [sys.executable, "-m", "benchmarks.fitting_memory", "--one", str(path)]
            found = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            path.unlink()
            columns = ("counting_mb", "learning_mb", "above_mb", "cpu_s")
            print(f"| {int(rows):,} | {' | '.join(str(found[c]) for c in columns)} |", flush=True)


if __name__ == "__main__":
    main()
