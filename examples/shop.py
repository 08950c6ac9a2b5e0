"""From a database file to a synthetic copy: draft, declare, explain, fit, sample, write."""

from dataclasses import replace
from pathlib import Path

import dpweave as dw
from dpweave.cli.demo import make_shop
from dpweave.schema.domain import Categories

make_shop(Path("shop.duckdb"), rows=20_000)  # stands for your database

# 1. A first plan, from the catalogue alone. No row is read.
plan = dw.Plan.draft("shop.duckdb", protect=["customers", "employees"], public=["products"], max_degree=5)

# 2. Declare what you know without looking at the data; what you do not declare is learned, and costs budget.
plan = plan.replace_domain("customers", "segment", Categories(("basic", "plus", "premium")))
plan = plan.replace_domain("orders", "channel", Categories(("app", "store", "web")))
plan = replace(plan, tables=tuple(replace(t, mechanism="mst") if t.name == "orders" else t for t in plan.tables))
plan.save("plan.toml")  # the same as TOML, for people: edit it and load it again with dw.Plan.load

# 3. Read what it promises and what noise to expect. Still no row is read.
print(plan.explain(epsilon=2.0, delta=1e-6))

# 4. Spend the budget, once.
model = dw.fit("shop.duckdb", plan, epsilon=2.0, delta=1e-6, ledger="ledger.jsonl", label="example")
model.save("shop.dpw")
print(model.certificate)

# 5. Draw as many copies as you like, for nothing.
copy = dw.load("shop.dpw").sample(scale=1.0, seed=7)
copy.write("copy.duckdb")
print({name: table.num_rows for name, table in copy.items()})
