"""Speed of the paper's learner: one slice solve against an explicit sparse Q, and the whole MovieLens run.

    python benchmarks/links_speed.py [--rows 1000] [--data FOLDER]

Prints what it measures (CPU time) and keeps it in benchmarks/links_speed.json, from which ``paper.py write`` quotes it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from paper import movielens_parquet, one_run

from dpweave.links.link_method import LinkProblem
from dpweave.links.pgd_learner import PGD, solve
from dpweave.links.relaxed.dense_block import Block
from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.links.row_types import LinkOperator, RowTypes
from dpweave.measure.cross_workloads import answers_from_links, cross_workloads

RESULTS = Path(__file__).with_suffix(".json")


def explicit_solve(q: Any, answers: np.ndarray, *, links: float, iterations: int, pairs: int) -> np.ndarray:
    """The same descent with Q as a scipy CSR matrix over all pairs of rows."""
    transposed = q.T.tocsr()
    v = np.ones(pairs)
    for _ in range(30):
        v = transposed @ (q @ (v / np.linalg.norm(v)))
    step = 0.5 * links**2 / np.linalg.norm(v)
    b = np.full(pairs, links / pairs)
    for _ in range(iterations):
        gradient = (2.0 / links) * (transposed @ (q @ b / links - answers))
        b = project_capped_simplex(b - step * gradient, total=links)
    return b


def slice_solve(
    data: Any, *, rows: int, iterations: int = 100, workloads: int = 8, links: int = 400
) -> dict[str, float]:
    rng = np.random.default_rng(0)
    left_codes, right_codes, shape, real = data.codes()
    left = {c: x[rng.choice(len(x), rows, replace=False)] for c, x in left_codes.items()}
    at = rng.choice(len(next(iter(right_codes.values()))), rows, replace=False)
    right = {c: x[at] for c, x in right_codes.items()}
    every = cross_workloads(list(left), list(right), k=3)
    chosen = tuple(every[i] for i in rng.choice(len(every), workloads, replace=False))
    truth = {w: answers_from_links(w, left_codes, right_codes, real, shape=shape) / len(real) for w in chosen}
    problem = LinkProblem(left, right, shape, links=links, links_measured=links)

    start = time.process_time()
    block = Block.of(problem, chosen, links=links)
    ours = solve(block, truth, problem, iterations=iterations)
    fast = time.process_time() - start

    start = time.process_time()
    columns = [[c for c in side if any(c in w.columns for w in chosen)] for side in (left, right)]
    full = LinkOperator(
        RowTypes.each_row(left, columns[0], shape=shape), RowTypes.each_row(right, columns[1], shape=shape), chosen
    )
    q = full.explicit()
    built = time.process_time() - start
    answers = np.concatenate([truth[w].ravel() for w in chosen])
    start = time.process_time()
    theirs = explicit_solve(q, answers, links=links, iterations=iterations, pairs=rows * rows)
    slow = time.process_time() - start
    expanded = ours.value[block.left.of_row][:, block.right.of_row].ravel()
    return {
        "types": block.multiplicity.size,
        "collapsed s": fast,
        "explicit s": slow,
        "explicit, building Q s": built,
        "ratio": slow / fast,
        "largest difference": float(np.abs(expanded - theirs).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--data", default=None)
    arguments = parser.parse_args()
    data = movielens_parquet(arguments.data)
    found = {"rows": float(arguments.rows)} | slice_solve(data, rows=arguments.rows)
    start = time.perf_counter()
    run = one_run(data, data.left, data.right, PGD(), epsilon=2.0, seed=0)
    found |= {"MovieLens at the defaults, s": run["seconds"], "on the clock, s": time.perf_counter() - start}
    for name, value in found.items():
        print(f"{name:>30} {value:.4g}")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
