"""Write a model with the version of dpweave that is installed, and nothing else: ``python writing.py FILE``."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import dpweave as dw

PLAN = """
protect = ["people", "things"]
[tables.people]
primary_key = ["id"]
mechanism = "mst"
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
town = { type = "text", nullable = false, domain = "learn" }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 4 } }
[tables.things]
primary_key = ["id"]
[tables.things.columns]
id = { type = "int64", nullable = false, domain = "key" }
kind = { type = "text", nullable = false, domain = ["a", "b", "c"] }
[tables.buys]
primary_key = ["id"]
mechanism = "independent"
[tables.buys.columns]
id = { type = "int64", nullable = false, domain = "key" }
who = { type = "int64", nullable = false, domain = "key" }
what = { type = "int64", nullable = false, domain = "key" }
price = { type = "int64", nullable = false, domain = { low = 0, high = 9, bins = 5 } }
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


def source() -> dict[str, pa.Table]:
    """People, things, and who bought what."""
    rng = np.random.default_rng(1)
    sex = rng.integers(0, 2, 150)
    who = np.repeat(np.arange(150), rng.integers(0, 5, 150))
    price = rng.integers(0, 10, len(who))
    town, age = np.array(["Bern", "Chur"])[sex ^ (rng.random(150) < 0.2)], 20 + 30 * sex + rng.integers(0, 30, 150)
    people = {"id": np.arange(150), "sex": np.array(["f", "m"])[sex], "town": town, "age": age}
    things = {"id": np.arange(20), "kind": np.array(["a", "b", "c"])[np.arange(20) % 3]}
    what = (2 * price + rng.integers(0, 4, len(who))) % 20
    buys = {"id": np.arange(len(who)), "who": who, "what": what, "price": price}
    return {"people": pa.table(people), "things": pa.table(things), "buys": pa.table(buys)}


if __name__ == "__main__":
    model = dw.fit(source(), dw.Plan.from_toml(PLAN), epsilon=8.0, delta=1e-5, insecure_seed=3)
    model.save(sys.argv[1])
