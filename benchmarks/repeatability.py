"""Whether fits of one plan differ by what noise explains: means of columns of made-up databases, five fits of each.

    python -m benchmarks.repeatability [--databases FROM TO] [--epsilon E] [--fits N] [--units N]

Each fit has noise of its own, and one copy. Of every column with numbers or times whose range was learned well or
coarsely, the means of all copies should lie within a band: four standard deviations of a mean, which five draws pass
once in twenty-five times, and the width of a cell, since nothing tells where within one values lie. The standard
deviation comes from the noise of each cell's count, from the number of rows that are drawn, and from the copy's own
spread; nothing of the original enters it. Printed are the share of columns within their bands, and those beyond.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dpweave as dw
from benchmarks.databases import DELTA
from benchmarks.made_up import made_up
from benchmarks.zoo import drafted, source_of
from dpweave.report.fidelity import column_noise
from dpweave.schema.domain import Bins, to_axis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpweave.model.model import Model

BAND = 4.0
"""Standard deviations that the largest and the smallest of five draws are seldom further apart than."""


@dataclass(frozen=True)
class Mean:
    """A column's mean in one copy, its standard deviation by noise and by drawing, and the width of a cell there."""

    value: float
    sigma: float
    width: float


def means(model: Model, seed: int) -> Iterator[tuple[str, Mean | None]]:
    """Means of all columns with learned ranges; None where the range was not learned, or there are no rows."""
    copy, noise = model.sample(seed=seed), column_noise(model)
    for table in model.plan.tables:
        for column in table.columns:
            domain, name = column.domain, f"{table.name}.{column.name}"
            if not isinstance(domain, Bins) or table.name in model.plan.public or domain.learned is None:
                continue
            values = copy[table.name][column.name].drop_null().to_pylist()
            if domain.learned == "not" or not values:
                yield name, None
                continue
            kind = column.column.type
            at = np.array([to_axis(kind, v) for v in values], dtype=np.float64)
            edges = np.array([to_axis(kind, e) for e in domain.edges], dtype=np.float64)
            middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
            mean, rows = float(at.mean()), max(model.sizes[table.name], 1.0)
            counted = noise.get((table.name, column.name), 0.0) / rows * np.sqrt(((middles - mean) ** 2).sum())
            counted = min(counted, float(np.ptp(edges)))
            in_cell = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(widths) - 1)
            yield name, Mean(mean, float(np.hypot(counted, at.std() / np.sqrt(len(at)))), float(widths[in_cell].mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", type=int, nargs=2, default=(0, 10))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--units", type=int, default=3000)
    args = parser.parse_args()
    held, beyond, unknown = 0, [], 0
    for database in range(*args.databases):
        made = made_up(database, most_units=args.units, most_rows=10 * args.units)
        found: dict[str, list[Mean | None]] = {}
        with tempfile.TemporaryDirectory() as folder:
            source = source_of(made, "duckdb", Path(folder))
            plan = drafted(source, made)
            for seed in range(args.fits):
                model = dw.fit(source, plan, epsilon=args.epsilon, delta=DELTA, insecure_seed=seed)
                for name, mean in means(model, seed):
                    found.setdefault(name, []).append(mean)
        for name, some in found.items():
            known = [m for m in some if m is not None]
            if len(known) < 2:
                unknown += 1
                continue
            apart = max(m.value for m in known) - min(m.value for m in known)
            sigma, width = max(m.sigma for m in known), max(m.width for m in known)
            if apart <= BAND * sigma + width:
                held += 1
            else:
                beyond.append(f"{database}/{name}: {apart:.4g} apart, {BAND * sigma:.4g} and a cell of {width:.4g}")
        print(
            f"database {database}: {held} of {held + len(beyond)} columns within their bands so far, {unknown} of"
            " which nothing was learned",
            flush=True,
        )
    print("\n".join(beyond))


if __name__ == "__main__":
    main()
