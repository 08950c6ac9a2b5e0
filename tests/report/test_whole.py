"""From private rows to the pages, through the real fit, a saved model and the real sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dpweave.model import load
from dpweave.pipeline import fit
from dpweave.report.evaluation import evaluate
from dpweave.report.fidelity import fidelity
from dpweave.report.html import render
from dpweave.report.rivals import SYNTHETIC
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
