"""Writing large copies: rows, CPU seconds and peak memory, each in a fresh process.

    python -m benchmarks.streaming --rows 1e6 2e7 1e8 --targets parquet duckdb --out benchmarks/streaming.json

Users, public films and ratings with values of their own (key: user and film) are made up, fitted once, and sampled at
the scale that gives about so many ratings. Results are added to the file; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

USERS, FILMS = 3000, 1500
NAMES = {"parquet": "copy", "duckdb": "copy.duckdb", "sqlite": "copy.sqlite", "csv": "copy.csv"}


def fitted(path: Path) -> None:
    """Fit a model of made-up ratings: older people prefer older films, and some rate much more than others."""
    import pandas as pd

    import dpweave as dw
    from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, ForeignKey, Type
    from dpweave.schema.domain import Bins, Categories

    rng = np.random.default_rng(0)
    age, year = rng.integers(18, 78, USERS), rng.integers(1960, 2020, FILMS)
    degrees = np.minimum(rng.geometric(1 / 33, USERS), 300)
    user = np.repeat(np.arange(USERS), degrees)
    near = (2020 - age[user] * 0.7 + rng.normal(0, 12, len(user))).clip(1960, 2019)
    film = np.argsort(year, kind="stable")[np.searchsorted(np.sort(year), near).clip(0, FILMS - 1)]
    film = np.where(rng.random(len(film)) < 0.5, rng.integers(0, FILMS, len(film)), film)
    pairs = np.unique(np.stack([user, film]), axis=1)

    def whole(name: str, *edges: int) -> ColumnPlan:
        column = Column(name, Type("integer"), nullable=False)
        return ColumnPlan(column, Bins(tuple(range(*edges))) if edges else None)

    kind = ColumnPlan(Column("kind", Type("text"), nullable=False), Categories(("a", "b", "c")))
    plan = Plan(
        (
            TablePlan("users", (whole("id"), whole("age", 18, 79, 10), kind), ("id",)),
            TablePlan("films", (whole("id"), whole("year", 1960, 2021, 10), kind), ("id",)),
            TablePlan(
                "ratings",
                (whole("user"), whole("film"), whole("stars", 1, 7)),
                ("user", "film"),
                keys=(
                    KeyPlan(ForeignKey(("user",), "users", ("id",)), "owning", 30),
                    KeyPlan(ForeignKey(("film",), "films", ("id",)), "attribute"),
                ),
            ),
        ),
        protect=("users",),
        public=("films",),
    )
    source = {
        "users": pd.DataFrame({"id": np.arange(USERS), "age": age, "kind": rng.choice(list("abc"), USERS)}),
        "films": pd.DataFrame({"id": np.arange(FILMS), "year": year, "kind": rng.choice(list("abc"), FILMS)}),
        "ratings": pd.DataFrame({"user": pairs[0], "film": pairs[1], "stars": rng.integers(1, 6, pairs.shape[1])}),
    }
    dw.fit(source, plan, epsilon=5.0, delta=1e-6, insecure_seed=0).save(path)


def one(model: str, folder: str, target: str, rows: float) -> dict[str, object]:
    """Load, sample and write in this process."""
    import dpweave as dw

    loaded = dw.load(model)
    scale = rows / loaded.blueprint.expected_rows(1.0)["ratings"]
    start = time.perf_counter()
    database = loaded.sample(scale=scale, seed=1)
    database.write(Path(folder) / NAMES[target])
    return {
        "target": target,
        "asked": int(rows),
        "ratings": database.rows["ratings"],
        "rows": sum(database.rows.values()),
        "parts": getattr(database.tables, "count", 1),
        "cpu_s": round(time.process_time(), 1),
        "wall_s": round(time.perf_counter() - start, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def fresh(arguments: list[str]) -> dict[str, object]:
    """Run this script again in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", "--one", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 2e7, 1e8])
    parser.add_argument("--targets", nargs="+", choices=list(NAMES), default=["parquet", "duckdb"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        model, folder, target, rows = chosen.one
        print(json.dumps(one(model, folder, target, float(rows))))
        return
    known = json.loads(chosen.out.read_text()) if chosen.out and chosen.out.exists() else []
    print("| target | ratings | parts | CPU s | CPU ns per row | peak MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        model = Path(home) / "ratings.dpw"
        fitted(model)
        for target in chosen.targets:
            for rows in chosen.rows:
                found = next((k for k in known if (k["target"], k["asked"]) == (target, int(rows))), None)
                if found is None:
                    folder = Path(home) / "copy"
                    folder.mkdir()
                    found = fresh([str(model), str(folder), target, str(rows)])
                    shutil.rmtree(folder)
                    known.append(found)
                    if chosen.out:
                        chosen.out.write_text(json.dumps(known, indent=1) + "\n")
                each = 1e9 * found["cpu_s"] / found["rows"]
                print(
                    f"| {target} | {found['ratings']:,} | {found['parts']} | {found['cpu_s']:.0f} | {each:.0f} |"
                    f" {found['peak_mb']} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
