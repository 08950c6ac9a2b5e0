"""CPU seconds and peak memory of fits with learned links at epsilon 4, and of wide tables; each a process of its own.

    python -m benchmarks.scale [census oulad tpch tpch:1 movielens movielens:10 wide:25 wide:200 ...] [--data FOLDER]

TPC-H is at scale 0.1 or at the one that is given, and needs ``tpchgen-cli``. ``movielens:10`` has all ratings ten
times, under new users. ``wide:N`` is a table of 20,000 rows and N columns of two to six values, of which each goes with
the one before it. CPU seconds are those of all threads; on a busy machine they are up to half as many again as on an
idle one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

ALL = ("census", "oulad", "tpch", "movielens", "movielens:10", "wide:25", "wide:50", "wide:100", "wide:200")
EPSILON, DELTA, SEED = 4.0, 1e-6, 0
ROWS = 20_000


def wide(columns: int) -> tuple[Any, Any]:
    """Return a made-up table of so many columns, and its plan."""
    from dpweave.plan.entries import ColumnPlan, TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, Type
    from dpweave.schema.domain import Categories

    rng = np.random.default_rng(SEED)
    values: dict[str, Any] = {"id": np.arange(ROWS)}
    plans = [ColumnPlan(Column("id", Type("integer"), nullable=False), None)]
    before = rng.integers(0, 6, ROWS)
    for i in range(columns):
        size = 2 + i % 5
        before = np.where(rng.random(ROWS) < 0.5, before % size, rng.integers(0, size, ROWS))
        values[f"c{i}"] = before
        plans.append(ColumnPlan(Column(f"c{i}", Type("integer"), nullable=False), Categories(tuple(range(size)))))
    return {"wide": pa.table(values)}, Plan((TablePlan("wide", tuple(plans), ("id",)),), protect=("wide",))


def repeated(tables: dict[str, pa.Table], times: int) -> dict[str, pa.Table]:
    """MovieLens with every user and rating so many times, each time under new users."""
    import pyarrow.compute as pc

    most = pc.max(tables["users"]["user_id"]).as_py()

    def anew(table: pa.Table) -> pa.Table:
        at = table.column_names.index("user_id")
        kind = table.schema.field("user_id").type
        parts = [pc.add(table["user_id"].cast(pa.int64()), i * most).cast(kind) for i in range(times)]
        return pa.concat_tables([table.set_column(at, "user_id", part) for part in parts])

    return {name: table if name == "movies" else anew(table) for name, table in tables.items()}


def scaled_tpch(scale: str) -> tuple[Any, Any]:
    """TPC-H at a scale, and its plan with about as many rows."""
    from dataclasses import replace

    from benchmarks.databases import plan_of, tpch

    plan, times = plan_of("tpch"), float(scale) / 0.1
    tables = tuple(replace(t, rows=None if t.rows is None else round(t.rows * times)) for t in plan.tables)
    return tpch(scale), replace(plan, tables=tables)


def case(name: str, data: str | None) -> tuple[Any, Any]:
    """Return a source and its plan."""
    from benchmarks.databases import data_folder, plan_of, source_of

    base, _, number = name.partition(":")
    if base == "wide":
        return wide(int(number))
    if base == "tpch":
        return scaled_tpch(number or "0.1")
    source: Any = source_of(base, data_folder(data))
    return repeated(source, int(number)) if number else source, plan_of(base)


def one(name: str, data: str | None) -> None:
    """Fit in this process."""
    import dpweave as dw

    source, plan = case(name, data)
    spent: dict[str, float] = {}
    running, since = "opening", time.process_time()

    def told(step: str, _: float) -> None:
        nonlocal running, since
        now = time.process_time()
        spent[running] = spent.get(running, 0.0) + now - since
        running, since = step, now

    dw.fit(source, plan, epsilon=EPSILON, delta=DELTA, insecure_seed=SEED, progress=told)
    told("end", 1.0)
    longest = sorted(spent, key=lambda step: -spent[step])[:3]
    print(";".join(f"{step} {spent[step]:.0f}" for step in longest))


def measured(name: str, data: str | None) -> tuple[float, float, str]:
    """CPU seconds, peak memory in MB and the longest steps of a fit in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", name, *(["--data", data] if data else [])]
    out, into = os.pipe()
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, into, 1)])
    os.close(into)
    with os.fdopen(out, encoding="utf-8") as said:
        steps = said.read().strip().splitlines()
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the fit of {name} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, steps[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=ALL)
    parser.add_argument("--data")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.one, chosen.data)
        return
    print("| fit at eps 4 | CPU s | peak MB | longest steps, CPU s |\n|---|---|---|---|")
    for name in chosen.names:
        cpu, peak, steps = measured(name, chosen.data)
        print(f"| {name} | {cpu:.0f} | {peak:.0f} | {steps.replace(';', ', ')} |", flush=True)


if __name__ == "__main__":
    main()
