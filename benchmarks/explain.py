"""What ``explain`` predicts against what a fit and one copy take: CPU time and memory.

    python benchmarks/explain.py [--cases 17] [--resume explain.json] [--constants]

Every case is a made-up database of two tables (parents, and children that each lead to one parent), with so many rows,
columns, values per column, and one mechanism. A fresh process fits and samples it; CPU seconds are those of fit and
sample together, memory is the peak of the process. Beside them stand the databases of benchmarks/databases.py, from its
last runs. ``--constants`` solves for the constants in dpweave/explain/forecast.py on this machine instead, by least
squares on the logarithm of errors. CPU seconds from a loaded machine are inflated up to twofold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RUNS = Path(__file__).parent / "databases.json"

CASES = [
    {"rows": rows, "columns": columns, "values": values, "mechanism": mechanism}
    for rows, columns, values, mechanisms in [
        (2_000, 4, 4, ("independent", "mst", "aim")),
        (20_000, 8, 8, ("independent", "mst", "aim", "woven")),
        (100_000, 4, 4, ("independent", "mst", "aim")),
        (2_000, 8, 32, ("mst", "aim")),
        (2_000, 16, 8, ("independent", "mst", "aim", "woven")),
        (20_000, 6, 8, ("aim",)),
    ]
    for mechanism in mechanisms
]
CHILDREN = 4
FACTOR = 2


def database(case: dict[str, object]) -> dict[str, object]:
    """Parents and children whose columns lean on a hidden one, so that there is something to learn."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    rows, columns, values = int(case["rows"]), int(case["columns"]), int(case["values"])
    half = columns // 2

    def draw(hidden: np.ndarray, count: int) -> dict[str, np.ndarray]:
        own = rng.integers(0, values, (count, len(hidden)))
        return {f"c{i}": np.where(rng.random(len(hidden)) < 0.3, hidden, own[i]) for i in range(count)}

    hidden = rng.integers(0, values, rows)
    parent = rng.integers(0, rows, CHILDREN * rows)
    parents = {"id": np.arange(rows), **draw(hidden, columns - half)}
    children = {"id": np.arange(len(parent)), "parent": parent, **draw(hidden[parent], half)}
    return {"parents": pa.table(parents), "children": pa.table(children)}


def plan(case: dict[str, object]) -> object:
    """Everything declared: sizes, domains, a bound of ten children."""
    import dpweave as dw

    values, half = int(case["values"]), int(case["columns"]) // 2
    domain = f"{{ low = 0, high = {values - 1}, bins = {values} }}"

    def table(name: str, rows: int, count: int, keys: str = "") -> str:
        more = 'parent = { type = "int64", nullable = false, domain = "key" }\n' if keys else ""
        cells = "".join(f'c{i} = {{ type = "int64", nullable = false, domain = {domain} }}\n' for i in range(count))
        return (
            f'[tables.{name}]\nprimary_key = ["id"]\nrows = {rows}\nmechanism ='
            f' "{case["mechanism"]}"\n[tables.{name}.columns]\nid = {{ type = "int64", nullable = false, domain = "key"'
            f" }}\n{more}{cells}{keys}"
        )

    key = (
        '[tables.children.keys.parent]\ncolumns = ["parent"]\nreferences = "parents"\ntarget = ["id"]\nrole ='
        ' "owning"\nmax_degree = 10\n'
    )
    rows = int(case["rows"])
    text = table("parents", rows, int(case["columns"]) - half) + table("children", CHILDREN * rows, half, key)
    return dw.Plan.from_toml('protect = ["parents"]\n' + text)


def measure(case: dict[str, object]) -> dict[str, object]:
    """Fit and sample in this process; seconds by kind of step, and peak memory."""
    import resource
    import time

    import dpweave as dw

    tables, chosen = database(case), plan(case)
    spent = {"tables": 0.0, "links": 0.0, "rest": 0.0, "sample": 0.0}
    running = ["rest", time.process_time()]

    def tell(step: str, _share: float) -> None:
        now = time.process_time()
        spent[str(running[0])] += now - float(running[1])
        kind = "tables" if step.startswith("fit table") else "links" if step.startswith("learn links") else "rest"
        running[:] = [kind, now]

    model = dw.fit(tables, chosen, epsilon=1.0, delta=1e-6, progress=tell)
    tell("", 1.0)
    start = time.process_time()
    model.sample(seed=0)
    spent["sample"] = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**case, "seconds": spent, "peak": peak}


def run(case: dict[str, object]) -> dict[str, object]:
    """Measure a case in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(case)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout))


class Point(NamedTuple):
    """One measured fit and copy: its name, what it was made of, what it took and what was predicted."""

    name: str
    work: tuple[float, ...]
    seconds: float
    peak: float | None
    predicted: Any


def points(done: list[dict[str, Any]]) -> list[Point]:
    """Made-up cases, and the databases of benchmarks/databases.py as they are in its file."""
    from dpweave.plan.plan import Plan

    out = []
    for d in done:
        name = f"{d['rows']:,} rows, {d['columns']} columns of {d['values']}, {d['mechanism']}"
        seconds = sum(d["seconds"].values())
        out.append(_point(name, plan({k: d[k] for k in CASES[0]}), 1.0, seconds, float(d["peak"])))
    runs: dict[tuple[str, float], list[float]] = {}
    for r in json.loads(RUNS.read_text()).values():
        runs.setdefault((r["database"], r["epsilon"]), []).append(r["fit_cpu"] + r["sample_cpu"])
    for (name, epsilon), taken in sorted(runs.items()):
        chosen = Plan.load(RUNS.parents[1] / "examples" / "plans" / f"{name}.toml")
        out.append(_point(f"{name}, epsilon {epsilon:g}", chosen, epsilon, float(np.mean(taken)), None))
    return out


def _point(name: str, chosen: Any, epsilon: float, seconds: float, peak: float | None) -> Point:
    from dataclasses import astuple

    from dpweave.budget.allocation import allocate
    from dpweave.explain.forecast import predictions, work

    predicted = chosen.explain(epsilon=epsilon, delta=1e-6)
    found = predictions(chosen, allocate(chosen, epsilon=epsilon, delta=1e-6))
    done = work(chosen, {t.table: t.mechanism for t in predicted.tables}, found)
    return Point(name, astuple(done), seconds, peak, predicted.forecast)


def constants(found: list[Point]) -> None:
    """Print positive constants that fit this machine best, by the logarithm of the
    error; constants that hardly matter stay near the old ones.
    """
    from dataclasses import astuple, fields

    from scipy.optimize import minimize

    from dpweave.explain.forecast import BYTES, SECONDS, Work

    names = [f.name for f in fields(Work)]
    for what, now, rows in (
        ("SECONDS", SECONDS, [(p.work, p.seconds) for p in found]),
        ("BYTES", BYTES, [(p.work, p.peak) for p in found if p.peak is not None]),
    ):
        a, y = np.array([w for w, _ in rows]), np.log([v for _, v in rows])
        start = np.log(np.maximum(astuple(now), 1e-12))

        def loss(x: np.ndarray, a: np.ndarray = a, y: np.ndarray = y, start: np.ndarray = start) -> float:
            return float(((np.log(a @ np.exp(x)) - y) ** 2).sum() + 0.03 * ((x - start) ** 2).sum())

        best = minimize(loss, start, method="L-BFGS-B")
        print(what, {n: float(f"{v:.2g}") for n, v in zip(names, np.exp(best.x), strict=True)})


def compare(found: list[Point]) -> None:
    """Print what was predicted next to what was measured."""
    print("| | seconds predicted | measured | factor | MB predicted | measured |")
    print("|---|---|---|---|---|---|")
    for p in found:
        factor = max(p.predicted.seconds / p.seconds, p.seconds / p.predicted.seconds)
        peak = "" if p.peak is None else f"{p.peak / 1e6:.0f}"
        print(
            f"| {p.name} | {p.predicted.seconds:.1f} | {p.seconds:.1f} | {factor:.1f} |"
            f" {p.predicted.memory / 1e6:.0f} | {peak} |"
        )
    factors = [max(p.predicted.seconds / p.seconds, p.seconds / p.predicted.seconds) for p in found]
    few = sum(f <= FACTOR for f in factors)
    print(f"time is right within a factor of {FACTOR} in {few} of {len(found)}, and within {max(factors):.1f} in all")
    memory = max(max(p.predicted.memory / p.peak, p.peak / p.predicted.memory) for p in found if p.peak is not None)
    print(f"largest factor between memory predicted and measured: {memory:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(json.loads(options.one))))
        return
    done = json.loads(options.resume.read_text()) if options.resume and options.resume.exists() else []
    known = [{k: d[k] for k in CASES[0]} for d in done]
    for case in CASES[: options.cases]:
        if case not in known:
            done.append(run(case))
            if options.resume:
                options.resume.write_text(json.dumps(done, indent=1))
    (constants if options.constants else compare)(points(done))


if __name__ == "__main__":
    main()
