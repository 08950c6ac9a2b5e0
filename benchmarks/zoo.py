"""Made-up databases that nobody tuned for, from draft to evaluation: `python benchmarks/zoo.py run`, then `write`.

Every database of :mod:`made_up` goes through draft, explain, fit, sample, report and evaluate as a new user would do
it: the drafted plan is used as it is, with about how many rows there are. What must hold of each run is checked here,
and what was found goes to ``zoo.json``, one line for each run, as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import dpweave as dw
from benchmarks.made_up import MadeUp, made_up
from dpweave.engines.writing import write as write_database
from dpweave.evaluation.evaluate import resolved
from dpweave.model.coded_database import CodedDatabase, encode
from dpweave.report.fidelity import fidelity
from dpweave.report.html_report import render, verdict
from dpweave.schema.domain import Categories, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.model.model import Model
    from dpweave.plan.plan import Plan

RESULTS = Path(__file__).with_name("zoo.json")
PAGE = Path(__file__).parent.parent / "docs" / "zoo.md"
ENGINES = ("duckdb", "sqlite", "parquet", "csv", "frames")


# -- one run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One run: which database, which engine holds it, how much is spent."""

    seed: int
    epsilon: float
    noise: int
    most_units: int

    @property
    def name(self) -> str:
        """How results are filed."""
        return f"{self.seed}/{self.epsilon:g}/{self.noise}"


def source_of(made: MadeUp, engine: str, folder: Path) -> Any:
    """Put a database into an engine."""
    if engine == "frames":
        return made.tables
    target = {"duckdb": "d.duckdb", "sqlite": "d.sqlite", "parquet": "d", "csv": "d.csv"}[engine]
    write_database(made.schema, made.tables, folder / target)
    return str(folder / target)


def drafted(source: Any, made: MadeUp) -> Plan:
    """The plan that a user gets, with about how many rows private tables have: to two digits, as people know it."""
    plan = dw.Plan.draft(source, protect=list(made.protect), public=list(made.public))
    about = {n: float(f"{t.num_rows:.1g}") for n, t in made.tables.items() if t.num_rows and n not in made.public}
    tables = tuple(replace(t, rows=int(about[t.name])) if t.name in about else t for t in plan.tables)
    return replace(plan, tables=tables)


def run(case: Case) -> dict[str, Any]:
    """Do all of it once; whatever goes wrong is part of the result."""
    made = made_up(case.seed, most_units=case.most_units, most_rows=10 * case.most_units)
    engine = ENGINES[int(np.random.default_rng([case.seed, int(case.epsilon * 10), case.noise]).integers(len(ENGINES)))]
    out: dict[str, Any] = {"case": case.name, "engine": engine, "tables": len(made.tables), "rows": made.rows}
    out["units"] = case.most_units
    started, cpu = time.monotonic(), time.process_time()
    step = "write"
    with tempfile.TemporaryDirectory() as folder:
        try:
            source = source_of(made, engine, Path(folder))
            step = "draft"
            plan = drafted(source, made)
            step = "explain"
            explanation = plan.explain(epsilon=case.epsilon, delta=1e-6)
            step = "fit"
            model = dw.fit(source, plan, epsilon=case.epsilon, delta=1e-6, insecure_seed=case.noise)
            step = "sample"
            copy = model.sample(seed=case.noise)
            step = "report"
            page = render(model, copy)
            checks = fidelity(model, copy).checks
            out["broken"] = [c.name for c in checks if not c.passed and not c.advisory]
            step = "evaluate"
            evaluation = dw.evaluate(source, copy, plan, k=2, learners=False)
            str(evaluation)
            step = "judge"
            out |= judge(made, plan, explanation, model, copy, evaluation)
            out["page"] = len(page)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this looks for
            out["failed"] = f"{step}: {type(error).__name__}: {error}"
            out["trace"] = traceback.format_exc().splitlines()[-12:]
    out["seconds"] = round(time.monotonic() - started, 1)
    out["cpu"] = round(time.process_time() - cpu, 1)
    out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return out


# -- what is true ------------------------------------------------------------------------------------------------------


def judge(
    made: MadeUp, plan: Plan, explanation: Any, model: Model, copy: Mapping[str, pa.Table], evaluation: Any
) -> dict[str, Any]:
    """Compare a copy with what is true, next to what was said before and after the fit."""
    whole = resolved(plan, made.tables)
    real, found = encode(whole, made.tables), encode(whole, copy)
    tables = {}
    predicted = {s.table: s.sigma for s in explanation.budget if s.group == "sizes" and not s.item}
    for name in plan.promise.private:
        columns = [c.name for c in whole.table[name].columns if (name, c.name) in real.codes]
        there = real.rows[name] and found.rows[name]
        far = {c: _far(whole, (made.tables, copy), (real, found), name, c) for c in columns if there}
        tables[name] = {
            "real": made.tables[name].num_rows,
            "copy": copy[name].num_rows,
            "within": int(_within_bounds(made, plan, name).sum()),
            "sigma": predicted.get(name),
            "tv": float(np.mean(list(far.values()))) if far else None,
            "columns": {c: round(v, 3) for c, v in far.items()},
        }
    return {
        "sizes": tables,
        "ranges": _ranges(made, plan, model),
        "predicted": {j.name: (j.word, round(j.error, 3)) for j in explanation.verdict.judged},
        "found": {j.name: (j.word, round(j.error, 3)) for j in verdict(model).judged},
        "relations": {
            e.where: {k: round(v, 2) for k, v in e.mean.items()} for e in evaluation.errors if "→" in e.where
        },
    }


def _far(
    plan: Plan, tables: Sequence[Mapping[str, pa.Table]], coded: Sequence[CodedDatabase], name: str, c: str
) -> float:
    """Total variation of one column; of a text by its values, since *other* is nobody's value."""
    if not isinstance(plan.table[name].column[c].domain, Categories):
        return _distance(*(x.codes[name, c] for x in coded))
    shares = [Counter(t[name][c].to_pylist()) for t in tables]
    total = [sum(s.values()) for s in shares]
    return sum(abs(shares[0][v] / total[0] - shares[1][v] / total[1]) for v in shares[0] | shares[1]) / 2


def _distance(real: Any, copy: Any) -> float:
    """Total variation between two columns of codes."""
    size = int(max(real.max(), copy.max())) + 1
    shares = [np.bincount(c, minlength=size) / len(c) for c in (real, copy)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _within_bounds(made: MadeUp, plan: Plan, name: str) -> Any:
    """Which rows of a table bounds leave, all the way up to the unit, about as they are counted: one mark for each."""
    kept = np.ones(made.tables[name].num_rows, dtype=bool)
    own = plan.promise.owning.get(name)
    if own is not None:
        key, bound, seen = plan.database[name].key[own], plan.promise.bounds[name, own], Counter[Any]()
        owners = made.tables[key.target][key.target_columns[0]].to_pylist()
        there = {v for v, left in zip(owners, _within_bounds(made, plan, key.target), strict=True) if left}
        for i, value in enumerate(made.tables[name][key.columns[0]].to_pylist()):
            seen[value] += 1
            kept[i] = value is None or (value in there and seen[value] <= bound)
    return kept


def _ranges(made: MadeUp, plan: Plan, model: Model) -> dict[str, Any]:
    """Of each range that was learned: how well by its own word, and the share of real values that lie in it."""
    out = {}
    for table in model.plan.tables:
        for column in table.columns:
            before = plan.table[table.name].column[column.name].domain
            edges = getattr(column.domain, "edges", None)
            if table.name in made.public or type(before).__name__ != "Learn" or edges is None:
                continue
            values = made.tables[table.name][column.name].drop_null()
            if not len(values):
                continue
            at = np.array([to_axis(column.column.type, v) for v in values.to_pylist()], dtype=np.float64)
            low, high = (float(to_axis(column.column.type, e)) for e in (edges[0], edges[-1]))
            inside = float(((at >= low) & (at <= high)).mean())
            out[f"{table.name}.{column.name}"] = {"learned": column.domain.learned, "inside": round(inside, 3)}
    return out


# -- the page ----------------------------------------------------------------------------------------------------------

RIGHT = 0.15
"""A table is useful in truth if its columns are off by no more than this in the mean (total variation), and a relation
if pairs of columns across it are: half as much again as what the verdict calls useful. A relation that was called noise
only would have been useful only if, besides, it is nearer to real rows drawn again than to links at random: where
nothing goes together, or nothing was learned of it, there was nothing to use.
"""
FACTOR = 2.0
"""An error was predicted if it was found within this factor, or if both are below what counts as right."""


def write(path: Path, tree: str) -> None:
    """Write what was found of a ``tree`` to the documentation."""
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    good, databases = [r for r in runs if "failed" not in r], {r["case"].split("/")[0] for r in runs}
    sizes = [(t, t["real"] - t["within"]) for r in good for t in r["sizes"].values() if t["sigma"]]
    out_of_band = sum(abs(t["copy"] - t["real"]) > 4 * t["sigma"] + hidden + 5 for t, hidden in sizes)
    halved = sum(t["copy"] < t["within"] / 2 and 2 * t["sigma"] < t["within"] / 2 for t, _ in sizes)
    most = max(r["units"] for r in runs)
    ranges = [x for r in good for x in r["ranges"].values()]
    well = [x for x in ranges if x["learned"] == "well"]
    lines = [
        "# Databases that nobody tuned for",
        "",
        f"{len(runs)} runs over {len(databases)} made-up databases that differ in everything at once: tables, sizes,",
        "keys, popularity, tails, dates, codes, nulls. Each goes from draft to evaluation as a new user would",
        "go: with the drafted plan as it is, and about how many rows there are. Protected tables have at most",
        f"{most:,} rows, and other tables {10 * most:,}. Runs by epsilon: {_runs(runs)}.",
        "",
        f"Made by `python -m benchmarks.zoo run` and `write`{f', of the tree at {tree}' if tree else ''}.",
        "",
        "| | |",
        "|---|---|",
        f"| runs that failed | {len(runs) - len(good)} |",
        f"| copies that break a key or a rule | {sum(bool(r['broken']) for r in good)} |",
        f"| sizes out of four standard deviations and what bounds hide | {out_of_band} of {len(sizes)} |",
        f"| tables with less than half of their rows, where noise is less than a quarter | {halved} of {len(sizes)} |",
        f"| ranges learned well, and of these with less than nine tenths of the values |"
        f" {len(well)} of {len(ranges)}, {sum(x['inside'] < 0.9 for x in well)} |",
        "",
        f"Verdicts against what is true. A table or relation is right if it is off by at most {RIGHT:g} (total",
        "variation, the mean over columns, or over pairs across a key). A relation called noise only is",
        "counted as right only if, besides, it is nearer to real rows drawn again than to links at random.",
        "",
        "| verdict | epsilon | tables | of these right | relations | of these right |",
        "|---|---|---|---|---|---|",
    ]
    for when in ("predicted", "found"):
        for epsilon in sorted({float(r["case"].split("/")[1]) for r in good}):
            some = [r for r in good if float(r["case"].split("/")[1]) == epsilon]
            for word in ("useful", "coarse", "noise only"):
                tables = [
                    t["tv"]
                    for r in some
                    for n, t in r["sizes"].items()
                    if t["tv"] is not None and _said(r, when, n) == word
                ]
                pairs = [_lost(e, word) for r in some for n, e in r["relations"].items() if _said(r, when, n) == word]
                cells = (f"{when}: {word}", f"{epsilon:g}", len(tables), _right(tables), len(pairs), _right(pairs))
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "At all of these epsilons together, the verdict after the fit:", ""]
    lines += ["| verdict | tables and relations | of these right |", "|---|---|---|"]
    for word in ("useful", "noise only"):
        of_tables = [
            t["tv"] for r in good for n, t in r["sizes"].items() if t["tv"] is not None and _said(r, "found", n) == word
        ]
        of_pairs = [_lost(e, word) for r in good for n, e in r["relations"].items() if _said(r, "found", n) == word]
        lines.append(f"| {word} | {len(of_tables + of_pairs)} | {_right(of_tables + of_pairs)} |")
    lines += [
        "",
        "What `explain` predicts, against the verdict after the fit: errors within a factor of two, or both",
        "right.",
        "",
        "| epsilon | tables and relations | predicted |",
        "|---|---|---|",
    ]
    for epsilon in sorted({float(r["case"].split("/")[1]) for r in good}):
        both = [
            (r["predicted"][n][1], r["found"][n][1])
            for r in good
            if float(r["case"].split("/")[1]) == epsilon
            for n in r["predicted"].keys() & r["found"].keys()
        ]
        near = sum(max(x) <= RIGHT or max(x) <= FACTOR * min(x) for x in both)
        lines.append(f"| {epsilon:g} | {len(both)} | {near / max(len(both), 1):.0%} |")
    PAGE.write_text("\n".join(lines) + "\n")


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """How many runs there were at each epsilon."""
    count = Counter(float(r["case"].split("/")[1]) for r in runs)
    return ", ".join(f"{n} at {epsilon:g}" for epsilon, n in sorted(count.items()))


def _lost(errors: Mapping[str, float], word: str) -> float:
    """How far a relation is off, or 1 if its copy is no nearer to the truth than links at random."""
    halfway = (errors["random wiring"] + errors["resampled real"]) / 2
    return 1.0 if word == "noise only" and errors["synthetic"] > halfway else errors["synthetic"] / 200


def _said(run: Mapping[str, Any], when: str, name: str) -> str | None:
    return str(run[when][name][0]) if name in run[when] else None


def _right(errors: Sequence[float]) -> str:
    return f"{sum(e <= RIGHT for e in errors) / len(errors):.0%}" if errors else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="run", choices=["run", "write"])
    parser.add_argument("--databases", type=int, nargs=2, default=(0, 40))
    parser.add_argument("--epsilon", type=float, nargs="+", default=(0.5, 1.0, 4.0))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--units", type=int, default=30_000, help="protected units at most")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tree", default="", help="which commit the results are of, for the page")
    args = parser.parse_args()
    if args.what == "write":
        write(args.out, args.tree)
        return
    done = {}
    if args.out.exists():
        done = {line["case"]: line for line in map(json.loads, args.out.read_text().splitlines())}
    for noise in range(args.seeds):
        for seed in range(*args.databases):
            for epsilon in args.epsilon:
                case = Case(seed, epsilon, noise, args.units)
                if case.name in done:
                    continue
                found = run(case)
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(
                    case.name,
                    found["engine"],
                    f"{found['seconds']} s",
                    found.get("failed") or found.get("broken"),
                    flush=True,
                )


if __name__ == "__main__":
    main()
