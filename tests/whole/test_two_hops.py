"""What spans two foreign keys survives a whole fit: through public tables, and where a plan declares it to matter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import dpweave as dw
from dpweave.plan.plan import Plan

TOML = """
protect = ["people"]
public = ["towns", "shops"]
k = 2
workloads = [{ columns = ["marks.mark", "people.sex"] }]
[tables.towns]
primary_key = ["id"]
[tables.towns.columns]
id = { type = "int64", nullable = false, domain = "key" }
coast = { type = "int64", nullable = false, domain = [0, 1] }
[tables.shops]
primary_key = ["id"]
[tables.shops.columns]
id = { type = "int64", nullable = false, domain = "key" }
town = { type = "int64", nullable = false, domain = "key" }
[tables.shops.keys.town]
columns = ["town"]
references = "towns"
target = ["id"]
role = "attribute"
[tables.people]
primary_key = ["id"]
rows = 2000
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "int64", nullable = false, domain = [0, 1] }
[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
person = { type = "int64", nullable = false, domain = "key" }
shop = { type = "int64", nullable = false, domain = "key" }
swim = { type = "int64", nullable = false, domain = [0, 1] }
[tables.visits.keys.person]
columns = ["person"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 1
degree_cap = 1
[tables.visits.keys.shop]
columns = ["shop"]
references = "shops"
target = ["id"]
role = "attribute"
[tables.marks]
primary_key = ["id"]
[tables.marks.columns]
id = { type = "int64", nullable = false, domain = "key" }
visit = { type = "int64", nullable = false, domain = "key" }
mark = { type = "int64", nullable = false, domain = [0, 1] }
[tables.marks.keys.visit]
columns = ["visit"]
references = "visits"
target = ["id"]
role = "owning"
max_degree = 1
degree_cap = 1
"""
ROWS = 2000


def town_of_people() -> dict[str, pa.Table]:
    """Swimmers go to shops in towns by the sea; women get good marks. Nothing else goes together."""
    rng = np.random.default_rng(5)
    coast, town = np.arange(10) % 2, rng.integers(0, 10, 60)
    shop, sex = rng.integers(0, 60, ROWS), rng.integers(0, 2, ROWS)
    other = rng.random((2, ROWS)) < 0.15
    place = np.arange(ROWS)
    return {
        "towns": pa.table({"id": np.arange(10), "coast": coast}),
        "shops": pa.table({"id": np.arange(60), "town": town}),
        "people": pa.table({"id": place, "sex": sex}),
        "visits": pa.table({"id": place, "person": place, "shop": shop, "swim": coast[town[shop]] ^ other[0]}),
        "marks": pa.table({"id": place, "visit": place, "mark": sex ^ other[1]}),
    }


def test_effects_two_keys_away_survive():
    plan = Plan.from_toml(TOML)
    views = {(r.table, r.key): [n for n, _ in r.view.columns] for r in plan.compile().relations}
    assert "shop.town.coast" in views["visits", "shop"]
    assert "visit.person.sex" in views["marks", "visit"]
    model = dw.fit(town_of_people(), plan, epsilon=8.0, delta=1e-6, insecure_seed=0)
    measured = [
        set(b.noisy.unit_sum.all_columns) for b in model.release.summed_by_unit if b.what == "links:marks.visit"
    ]
    assert {"mark", "visit.person.sex"} in measured
    db = model.sample(seed=1).to_pandas()
    visits = (
        db["visits"].merge(db["shops"], left_on="shop", right_on="id").merge(db["towns"], left_on="town", right_on="id")
    )
    assert visits["swim"].corr(visits["coast"]) > 0.5  # 0.7 in the real rows, 0 by chance
    marks = db["marks"].merge(db["visits"], left_on="visit", right_on="id")
    marks = marks.merge(db["people"], left_on="person", right_on="id")
    assert marks["mark"].corr(marks["sex"]) > 0.5
