"""A small shop whose fit asks every kind of question: sizes, learned categories and ranges, choices, sums over units,
plain counts and links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpweave.fitting.fit import fit
from dpweave.plan.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.model.model import Model

PLAN = """
protect = ["people", "things"]
[tables.people]
primary_key = ["id"]
mechanism = "mst"
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
town = { type = "text", nullable = false, domain = "learn" }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 5 } }
[tables.things]
primary_key = ["id"]
mechanism = "independent"
[tables.things.columns]
id = { type = "int64", nullable = false, domain = "key" }
kind = { type = "text", nullable = false, domain = ["a", "b", "c"] }
size = { type = "text", nullable = false, domain = ["large", "small"] }
[tables.buys]
primary_key = ["id"]
mechanism = "aim"
[tables.buys.columns]
id = { type = "int64", nullable = false, domain = "key" }
who = { type = "int64", nullable = false, domain = "key" }
what = { type = "int64", nullable = false, domain = "key" }
price = { type = "int64", nullable = false, domain = { low = 0, high = 9, bins = 5 } }
paid = { type = "text", nullable = false, domain = ["card", "cash"] }
[tables.buys.keys.who]
columns = ["who"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 4
[tables.buys.keys.what]
columns = ["what"]
references = "things"
target = ["id"]
role = "linking"
max_degree = 30
"""


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(1)
    sex = rng.integers(0, 2, 400)
    buyer = np.repeat(np.arange(400), rng.integers(0, 5, 400))
    price = rng.integers(0, 10, len(buyer))
    return {
        "people": pa.table(
            {
                "id": np.arange(400),
                "sex": np.array(["f", "m"])[sex],
                "town": np.array(["Bern", "Chur", "Genf"])[(sex + rng.integers(0, 2, 400))],
                "age": 20 + 30 * sex + rng.integers(0, 30, 400),
            }
        ),
        "things": pa.table(
            {
                "id": np.arange(60),
                "kind": np.array(["a", "b", "c"])[np.arange(60) % 3],
                "size": np.array(["large", "small"])[np.arange(60) % 2],
            }
        ),
        "buys": pa.table(
            {
                "id": np.arange(len(buyer)),
                "who": buyer,
                "what": (3 * price + rng.integers(0, 30, len(buyer))) % 60,
                "price": price,
                "paid": np.array(["card", "cash"])[(price > 4).astype(int)],
            }
        ),
    }


def fitted(ledger: Path | None, *, plan: str = PLAN, source: object = None, **options: object) -> Model:
    arguments = {"epsilon": 8.0, "insecure_seed": 3, "ledger": ledger} | options
    return fit(tables() if source is None else source, Plan.from_toml(plan), **arguments)  # type: ignore[arg-type]
