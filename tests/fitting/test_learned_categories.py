"""Categories of owned rows, from a fit to the model file and the page: they need owners, and not rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.model.file_format import _release_from_dict, release_to_dict
from dpweave.report.html_report import render

if TYPE_CHECKING:
    from pathlib import Path

STATUS = {"new": 0.3, "paid": 0.3, "sent": 0.25, "returned": 0.1, "cancelled": 0.048, "lost": 0.002}


@pytest.fixture(scope="module")
def shop() -> dict[str, pa.Table]:
    """4,000 customers with 40,000 orders."""
    rng = np.random.default_rng(1)
    customers, orders = 4_000, 40_000
    return {
        "customers": pa.table({"id": np.arange(customers), "age": rng.integers(18, 90, customers)}),
        "orders": pa.table(
            {
                "id": np.arange(orders),
                "customer_id": rng.integers(0, customers, orders),
                "status": rng.choice(list(STATUS), orders, p=list(STATUS.values())),
                "shop": pa.array(["the only one"] * orders),
            }
        ),
    }


@pytest.fixture(scope="module")
def model(shop: dict[str, pa.Table]) -> dw.Model:
    plan = dw.Plan.draft(shop, protect=["customers"], max_degree=10)
    return dw.fit(shop, plan, epsilon=1.0, delta=1e-6, insecure_seed=0)


def test_a_status_of_owned_rows_is_learned_at_epsilon_1(model: dw.Model) -> None:
    """All but the one that only some 80 customers have, who have three others besides."""
    status, shop = model.release.discovered
    assert set(status.counts) == {*STATUS} - {"lost"}
    assert set(shop.counts) == {"the only one"}
    assert status.by_unit
    assert 50 < status.threshold == shop.threshold < 300
    assert shop.counts["the only one"] == pytest.approx(4_000, abs=5 * shop.sigma)
    drawn = model.sample(seed=0)["orders"]["status"].to_pylist()
    for value in status.counts:
        assert drawn.count(value) / len(drawn) == pytest.approx(STATUS[value], abs=0.02)


def test_a_model_says_what_was_counted(model: dw.Model, shop: dict[str, pa.Table], tmp_path: Path) -> None:
    model.save(tmp_path / "shop.dpw")
    assert dw.load(tmp_path / "shop.dpw").release.discovered == model.release.discovered
    events = [e for e in model.certificate.events if e["verb"] == "discover"]
    assert [e["counted"] for e in events] == ["units", "units"]
    page = render(model, shop)  # type: ignore[arg-type]
    assert f"values with a noisy count of owners below {model.release.discovered[0].threshold:,.0f} are not" in page


def test_a_model_of_before_counted_rows(model: dw.Model) -> None:
    """Files that were written before units were counted do not say so."""
    content = release_to_dict(model.release) | {"measured": [], "bagged": [], "moments": []}
    for found in content["discovered"]:
        del found["by_unit"]
    old = _release_from_dict(content, {}, model.plan.database)
    assert [d.by_unit for d in old.discovered] == [False, False]
    assert old.discovered[0].counts == model.release.discovered[0].counts
