"""Publish MovieLens: users are protected, movies are public, a rating is owned by its user.

Usage: python publish_movielens.py FOLDER, where FOLDER holds users, movies and ratings as Parquet files.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

import dpweave as dw
from dpweave.schema.domain import Categories

folder = Path(sys.argv[1])
tables = {name: pq.read_table(folder / f"{name}.parquet") for name in ("users", "movies", "ratings")}
tables["ratings"] = tables["ratings"].slice(0, 100_000)  # a part will do here; leave this line out for all million

# Keys are found by name. What is known about the data without looking at it: the
# documentation of MovieLens lists these.
plan = dw.Plan.draft(tables, protect=["users"], public=["movies"], max_degree=20)
plan = plan.replace_domain("users", "gender", Categories(("F", "M")))
plan = plan.replace_domain("users", "age", Categories((1, 18, 25, 35, 45, 50, 56)))
plan = plan.replace_domain("users", "occupation", Categories(tuple(range(21))))
plan = plan.replace_domain("ratings", "rating", Categories((1, 2, 3, 4, 5)))
plan = replace(plan, k=2)
print(plan.explain(epsilon=1.0, delta=1e-6))

model = dw.fit(tables, plan, epsilon=1.0, delta=1e-6, progress=True)
print(model.certificate)
model.sample(seed=1).write("movielens-synthetic")  # a folder of Parquet files
