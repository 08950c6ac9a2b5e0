"""Where association across relations is lost: what is left of it after each step, relation by relation.

    python benchmarks/error_steps.py NAME ... [--data FOLDER] [--epsilon E ...] [--seed N]

Retention as in benchmarks/databases.py (1 all, 0 chance), over all pairs of columns that go together in the real rows:

- **asked**: the part of the association in pairs of columns that one question holds both of;
- **fit**: what the fit says of these pairs, 0 for all others (which it may have by way of others);
- **drawn**: in the links as they are drawn, before rows change places for units, orders and rules;
- **end**: in the finished copy.

With an epsilon of 1000 counts are next to exact, and what is missing then is no noise. Not private: it reads real rows.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import dpweave as dw
from benchmarks.databases import DELTA, NAMES, data_folder, plan_of, source_of
from dpweave.engines.opening import open_source
from dpweave.evaluation import distances as measures
from dpweave.links.link_fit import LinkFit
from dpweave.model.coded_database import encode
from dpweave.weaving.known_links import KnownLinks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from dpweave.model.coded_database import CodedDatabase
    from dpweave.model.model import Model
    from dpweave.plan.relations import Relation
    from dpweave.schema.domain import Attribute
    from dpweave.weaving.link_problems import Unlinked

Table = np.ndarray[Any, Any]


class Pair(NamedTuple):
    """Two columns that go together across a relation: how, in the real rows and after each step."""

    real: Table
    asked: bool
    fit: Table
    drawn: Table
    end: Table


@contextmanager
def linked() -> Iterator[dict[tuple[str, str], Unlinked]]:
    """Keep what relations were linked from, as they are linked."""
    found: dict[tuple[str, str], Unlinked] = {}
    link = KnownLinks.link

    def kept(self: KnownLinks, unlinked: Unlinked) -> None:
        link(self, unlinked)
        found[unlinked.relation.table, unlinked.relation.key] = unlinked

    KnownLinks.link = kept  # type: ignore[method-assign]
    try:
        yield found
    finally:
        KnownLinks.link = link  # type: ignore[method-assign]


def pairs(model: Model, unlinked: Unlinked, real: CodedDatabase, copy: CodedDatabase) -> Iterator[tuple[str, Pair]]:
    """Pairs of columns of both sides, by what holds the left one: the row, or where another of its keys leads."""
    relation, problem = unlinked.relation, unlinked.problem
    ends = np.zeros((0, 2), dtype=np.int64) if unlinked.pairs is None else unlinked.pairs
    for n, a in _columns(model, relation, relation.left):
        for m, b in _columns(model, relation, relation.right):
            shape = problem.shape[n], problem.shape[m]
            truth, made = (_joint(*c.columns(relation.table, (a, b))[0], shape) for c in (real, copy))
            if len(b.path) > 1 or not measures.is_associated(truth):
                continue
            fit = _fitted(unlinked.fit, n, m)
            drawn = _joint(problem.left[n][ends[:, 0]], problem.right[m][ends[:, 1]], shape)
            where = f"{a.path[0]} ~ {relation.key}" if a.path else f"row ~ {relation.key}"
            yield where, Pair(truth, fit is not None, np.zeros(shape) if fit is None else fit, drawn, made)


def _columns(model: Model, relation: Relation, side: tuple[tuple[str, Attribute], ...]) -> list[tuple[str, Attribute]]:
    walk = model.plan.promise.graph.walk
    return [(n, a) for n, a in side if a.column in model.plan.table[walk(relation.table, a.path)].column]


def _joint(left: Table, right: Table, shape: tuple[int, int]) -> Table:
    return np.bincount(left.astype(np.int64) * shape[1] + right, minlength=shape[0] * shape[1]).reshape(shape) * 1.0


def _fitted(fit: object, left: str, right: str) -> Table | None:
    """How a fit spreads links over two columns, by the question that shows them best; None where none holds both."""
    found: list[tuple[float, Table]] = []
    for w, (table, precision) in fit.joint.items() if isinstance(fit, LinkFit) else ():
        if left in w.columns and right in w.columns:
            whole = table.reshape([fit.shape[c] for c in w.columns])  # type: ignore[union-attr]
            away = tuple(i for i, c in enumerate(w.columns) if c not in (left, right))
            seen = whole.sum(axis=away)
            seen = seen if w.columns.index(left) < w.columns.index(right) else seen.T
            found.append((precision * seen.size / whole.size, seen))
    return max(found, key=lambda f: f[0])[1] if found else None


def show(name: str, epsilon: float, seed: int, data: Path) -> None:
    plan, source = plan_of(name), source_of(name, data)
    model = dw.fit(source, plan, epsilon=epsilon, delta=DELTA)
    with linked() as found:
        db = model.sample(seed=seed)
    with open_source(source) as opened:
        opened.declare(plan.database)
        tables: Mapping[str, pa.Table] = {n: opened.whole(n) for n in plan.database.names}
    real, copy = encode(model.plan, tables), encode(model.plan, db)
    print(f"{name}, epsilon {epsilon:g}, seed {seed}: pairs, asked, fit, drawn, end")
    for unlinked in found.values():
        groups: dict[str, list[Pair]] = {}
        for where, pair in pairs(model, unlinked, real, copy):
            groups.setdefault(where, []).append(pair)
        for where, some in groups.items():
            strength = [float((measures.standardised_residuals(p.real) ** 2).sum()) for p in some]
            asked = sum(s for s, p in zip(strength, some, strict=True) if p.asked) / sum(strength)
            truth = [p.real for p in some]
            steps = [measures.retention(truth, [p[i] for p in some]) for i in (2, 3, 4)]
            line = " ".join(f"{x:6.2f}" for x in (asked, *steps))
            print(f"  {unlinked.relation.table}: {where:<40} {len(some):4d} {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=NAMES)
    parser.add_argument("--data")
    parser.add_argument("--epsilon", nargs="+", type=float, default=(4.0,))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in args.names:
        for epsilon in args.epsilon:
            show(name, epsilon, args.seed, data_folder(args.data))


if __name__ == "__main__":
    main()
