"""What happens when a chosen number is another one: copies of small made-up databases, judged by their errors.

``python -m benchmarks.chosen`` moves each number that states a range to both ends of it. ``python -m benchmarks.chosen
KNOWN=8 LEVEL=0.05,KEPT=0.2`` makes two changes, the second of two numbers at once. Copies with a change are compared
with copies as they are, under the same seeds. Printed is the change of the mean error, with its standard error over
databases and seeds. Half a minute for each line.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dpweave import chosen

DATABASES = (2, 5, 29, 40)
"""Seeds of :func:`made_up`: two with public tables, two with owned rows."""


def ranges() -> dict[str, tuple[float, float]]:
    """Chosen numbers that state a range, and its ends."""
    found = {}
    body = ast.parse(Path(chosen.__file__).read_text(encoding="utf-8")).body
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(after, ast.Expr):
            said = re.search(r"Range:\s([\d.e-]+)\sto\s([\d.e-]+)\.", ast.unparse(after).replace("\\n", " "))
            if said:
                found[node.targets[0].id] = (float(said[1]), float(said[2]))
    return found


def errors(job: tuple[dict[str, float], int, float]) -> list[float]:
    """Mean errors (100 · L1) of copies, one for each database and seed, with some chosen numbers moved."""
    moved, seeds, epsilon = job
    for name, value in moved.items():
        if not hasattr(chosen, name):
            raise SystemExit(f"no chosen number is called {name}")
        setattr(chosen, name, type(getattr(chosen, name))(value))

    import dpweave as dw  # only now, so that defaults of classes and functions are moved too
    from benchmarks.made_up import made_up
    from benchmarks.zoo import drafted, source_of
    from dpweave.evaluation.baselines import SYNTHETIC

    found = []
    for database in DATABASES:
        made = made_up(database, most_units=2000, most_rows=4000, most_tables=8)
        with tempfile.TemporaryDirectory() as folder:
            source: Any = source_of(made, "duckdb", Path(folder))
            plan = drafted(source, made)
            for seed in range(seeds):
                copy = dw.fit(source, plan, epsilon=epsilon, insecure_seed=seed).sample(seed=seed)
                figures = dw.evaluate(source, copy, plan, k=2, learners=False)
                found.append(float(np.mean([e.mean[SYNTHETIC] for e in figures.errors])))
    return found


def main() -> None:
    """Print one line for each change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("changes", nargs="*", metavar="NAME=VALUE[,NAME=VALUE…]")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=4.0)
    asked = parser.parse_args()
    changes = [{n: float(v) for n, v in (part.split("=") for part in word.split(","))} for word in asked.changes]
    changes = changes or [{name: end} for name, ends in ranges().items() for end in ends]
    jobs = [({}, asked.seeds, asked.epsilon), *((change, asked.seeds, asked.epsilon) for change in changes)]
    # Each change has a process of its own: what was imported before would keep the old numbers.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        results = pool.imap(errors, jobs, chunksize=1)
        usual = np.array(next(results))
        print(f"mean error {usual.mean():.2f}, epsilon {asked.epsilon:g}, {usual.size} copies")
        for change, found in zip(changes, results, strict=True):
            off = np.array(found) - usual
            words = " ".join(f"{name}={value:g}" for name, value in change.items())
            print(f"{words}: {off.mean():+.2f} ± {off.std() / np.sqrt(off.size):.2f}", flush=True)


if __name__ == "__main__":
    main()
