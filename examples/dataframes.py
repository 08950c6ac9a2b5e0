"""Data frames in, data frames out. Frames know no keys, so the plan says which columns are."""

import numpy as np
import pandas as pd

import dpweave as dw

rng = np.random.default_rng(1)
people = pd.DataFrame({"id": np.arange(800), "age": rng.integers(18, 90, 800), "smokes": rng.random(800) < 0.2})
visits = pd.DataFrame({"person": rng.integers(0, 800, 2000), "ward": rng.choice(["ear", "eye", "skin"], 2000)})

PLAN = """
protect = ["people"]

[tables.people]
primary_key = ["id"]
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
age = { type = "int64", nullable = false, domain = { low = 18, high = 89, bins = 12 } }
smokes = { type = "boolean", nullable = false, domain = [false, true] }

[tables.visits]
[tables.visits.columns]
person = { type = "int64", nullable = false, domain = "key" }
ward = { type = "text", nullable = false, domain = ["ear", "eye", "skin"] }
[tables.visits.keys.person]
columns = ["person"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 5
"""

model = dw.fit({"people": people, "visits": visits}, dw.Plan.from_toml(PLAN), epsilon=1.0, delta=1e-6)
frames = model.sample(seed=1).to_pandas()
print(frames["people"].head())
print(frames["visits"]["ward"].value_counts())
