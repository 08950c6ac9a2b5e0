"""From private rows to the pages, through the real fit, a saved model and the real sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpweave.evaluation.baselines import SYNTHETIC
from dpweave.evaluation.evaluate import evaluate
from dpweave.fitting.fit import fit
from dpweave.model.model import load
from dpweave.plan.plan import Plan
from dpweave.report.fidelity import fidelity
from dpweave.report.html_report import render
from tests.report.worlds import shop, shop_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_fitted_model_is_reported_and_evaluated(tmp_path: Path) -> None:
    private = shop(0, customers=1500, orders=4000)
    fitted = fit(private, shop_plan(), epsilon=20.0, delta=1e-5, insecure_seed=3)
    fitted.save(tmp_path / "m.dpw")
    model = load(tmp_path / "m.dpw")
    db = model.sample(seed=1)
    found, again = fidelity(fitted, db), fidelity(model, db)
    for a, b in zip(found.tables, again.tables, strict=True):
        for c, d in zip(a.columns, b.columns, strict=True):
            assert (c.measured is None) == (d.measured is None) == (a.role == "public")
            if c.measured is not None and d.measured is not None:
                assert np.array_equal(c.measured.counts, d.measured.counts)
                # What the release says about a column is near the truth, and the copy is near the release.
                assert np.abs(c.measured.counts / (c.total or 1) - d.synthetic_shares).max() < 0.2
    assert all(c.passed or c.advisory for c in again.checks)
    page = render(model, db)
    assert page.index("INSECURE") < page.index("<h1>")
    evaluation = evaluate(private, db, model.plan, k=2, learners=False)
    within = evaluation.overall("within")[SYNTHETIC]
    assert 0 < within[0] < 60


@pytest.mark.slow
def test_links_counted_around_what_is_common_are_shown_as_counts(tmp_path: Path) -> None:
    """Users' items lead to public products, six in ten to none: what the report says of
    links is near the truth, and noise is never 0.
    """
    rng = np.random.default_rng(0)
    users = pd.DataFrame({"id": np.arange(800), "kind": rng.integers(0, 3, 800)})
    products = pd.DataFrame({"id": np.arange(40), "category": np.arange(40) % 4, "size": np.arange(40) % 3})
    items = pd.DataFrame(
        {"id": np.arange(6000), "user": rng.integers(0, 800, 6000), "colour": rng.integers(0, 4, 6000)}
    )
    items["product"] = pd.array(np.where(rng.random(6000) < 0.6, -1, rng.integers(0, 40, 6000)), dtype="Int64")
    items.loc[items["product"] < 0, "product"] = pd.NA
    source = {"users": users, "products": products, "items": items}
    plan = Plan.from_dict(
        {
            "version": 1,
            "protect": ["users"],
            "public": ["products"],
            "tables": {
                "users": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": {"type": "int64", "domain": "key"},
                        "kind": {"type": "int64", "domain": [0, 1, 2]},
                    },
                },
                "products": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": {"type": "int64", "domain": "key"},
                        "category": {"type": "int64", "domain": [0, 1, 2, 3]},
                        "size": {"type": "int64", "domain": [0, 1, 2]},
                    },
                },
                "items": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": {"type": "int64", "domain": "key"},
                        "user": {"type": "int64", "domain": "key"},
                        "colour": {"type": "int64", "domain": [0, 1, 2, 3]},
                        "product": {"type": "int64", "domain": "key", "nullable": True},
                    },
                    "keys": {
                        "user": {
                            "columns": ["user"],
                            "references": "users",
                            "target": ["id"],
                            "role": "owning",
                            "max_degree": 20,
                        },
                        "product": {
                            "columns": ["product"],
                            "references": "products",
                            "target": ["id"],
                            "role": "attribute",
                        },
                    },
                },
            },
        }
    )
    model = fit(source, plan, epsilon=20.0, delta=1e-5, insecure_seed=1)
    assert any(b.noisy.unit_sum.centred and b.noisy.unit_sum.columns for b in model.release.summed_by_unit)
    db = model.sample(seed=1)
    linked = items.dropna(subset=["product"])
    true = np.bincount(linked["product"].to_numpy(dtype=np.int64) % 4, minlength=4)
    (seen,) = (d for r in fidelity(model, db).relations if r.key == "product" for d in r.seen if "category" in d.name)
    assert seen.measured is not None
    assert np.abs(seen.measured.counts[:4] - true).max() < 0.15 * true.mean() + 4 * seen.measured.sigma
    render(model, db)
    nowhere = dict(db)
    at = nowhere["items"].schema.get_field_index("product")
    field = nowhere["items"].schema.field(at)
    nowhere["items"] = nowhere["items"].set_column(at, field, pa.nulls(nowhere["items"].num_rows, field.type))
    render(model, nowhere)
