"""How near the tables of a fit come to the real ones, by mechanism: budget, sizes and domains are those of a whole fit.

    python -m benchmarks.table_choice [--data FOLDER] [--only NAME ...] [--epsilon E ...] [--seeds N]

Plans are those in examples/plans; a mechanism that a plan names stays. Printed are means over all columns, pairs of
columns and up to 120 triples: total variation between real rows and as many drawn ones, at most 60,000. Nothing about
links is asked. Noise is repeatable, the same for the same seed and mechanism.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

import dpweave as dw
from benchmarks.databases import DELTA, data_folder, plan_of, source_of
from dpweave.engines.opening import open_source
from dpweave.fitting import fit as whole_fit
from dpweave.model.coded_database import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.plan.plan import Plan

NAMES = ("census", "oulad", "pedigree", "sakila", "movielens", "chinook")
MECHANISMS = ("auto", "independent", "aim", "woven")
MOST_ROWS = 60_000
TRIPLES = 120


class TablesAreFitted(Exception):
    """Ends a fit once its tables are fitted."""


def fitted(source: object, plan: Plan, *, epsilon: float, seed: int) -> tuple[dict[str, Any], Plan]:
    """Return the tables of a fit, and its plan with all domains."""
    real = whole_fit._fit_tables

    def end(curator: object, plan: Plan, *rest: Any) -> None:
        raise TablesAreFitted(real(curator, plan, *rest)[0], plan)

    with patch.object(whole_fit, "_fit_tables", end):
        try:
            dw.fit(source, plan, epsilon=epsilon, delta=DELTA, insecure_seed=seed)
        except TablesAreFitted as found:
            return found.args  # type: ignore[return-value]
    raise AssertionError("a fit ended without tables")


def apart(real: Sequence[Any], drawn: Sequence[Any], sizes: Sequence[int]) -> float:
    """Total variation between two sets of rows, by codes of some columns."""
    shares = []
    for codes in (real, drawn):
        cell = np.ravel_multi_index(
            [np.minimum(c.astype(np.int64), n - 1) for c, n in zip(codes, sizes, strict=True)], sizes
        )
        shares.append(np.bincount(cell, minlength=int(np.prod(sizes))) / max(len(cell), 1))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def run(name: str, data: str | None, *, epsilons: Sequence[float], seeds: int) -> None:
    """Print one line for each table, epsilon and mechanism."""
    plan, source = plan_of(name), source_of(name, data_folder(data))
    with open_source(source) as opened:
        tables = {t: opened.whole(t) for t in plan.database.names}
    for epsilon in epsilons:
        for mechanism in MECHANISMS:
            found: dict[str, list[list[float]]] = {}
            took: dict[str, list[str]] = {}
            own = [t if t.mechanism != "auto" else replace(t, mechanism=mechanism) for t in plan.tables]
            for seed in range(seeds):
                models, resolved = fitted(source, replace(plan, tables=tuple(own)), epsilon=epsilon, seed=seed)
                real = encode(resolved, tables)
                for table, model in models.items():
                    rows = model.sample(min(round(model.rows), MOST_ROWS), np.random.default_rng(seed))
                    sizes = {c: real.sizes[table, c] for c in rows if real.sizes[table, c] > 1}
                    errors = []
                    for order in (1, 2, 3):
                        sets = islice(combinations(sizes, order), TRIPLES if order == 3 else None)
                        each = [
                            apart([real.codes[table, c] for c in s], [rows[c] for c in s], [sizes[c] for c in s])
                            for s in sets
                        ]
                        errors.append(float(np.mean(each)) if each else float("nan"))
                    found.setdefault(table, []).append(errors)
                    took.setdefault(table, []).append(getattr(model, "mechanism", mechanism))
            for table, errors_of in found.items():
                one, two, three = np.mean(errors_of, axis=0)
                how = "/".join(sorted(set(took[table])))
                print(f"{name} {epsilon:g} {table} {mechanism} ({how}): {one:.3f} {two:.3f} {three:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.only:
        run(name, asked.data, epsilons=asked.epsilon, seeds=asked.seeds)


if __name__ == "__main__":
    main()
