"""What the report says of units: asked of the real rows, a copy's figures are the measured ones, but for the noise."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

import dpweave as dw
from dpweave.model.coded_database import encode
from dpweave.report.fidelity import fidelity
from dpweave.report.html_report import render
from tests.evaluation.test_unit_comparisons import lives, plan

if TYPE_CHECKING:
    from dpweave.model.model import Model
    from dpweave.report.unit_views import UnitsView


@cache
def fitted() -> Model:
    return dw.fit(lives(0), plan(), epsilon=60.0, delta=1e-6, insecure_seed=0)


def shown(db: object) -> UnitsView:
    found = fidelity(fitted(), db).relations[0].units  # type: ignore[arg-type]
    assert found is not None
    return found


def test_of_the_real_rows_the_same_is_said_as_was_measured() -> None:
    found = shown(lives(0))
    assert {a.column for a in found.agreements} == {"came", "ward"}
    for a in found.agreements:
        assert a.copy == pytest.approx(a.measured, abs=2 * a.band + 0.01)
    assert found.agreements[-1].copy > 0.1 or found.agreements[0].copy > 0.1
    assert found.order_by == "came"
    (ward,) = found.transitions
    assert np.abs(ward.measured - ward.copy).max() < 6 * ward.noise + 0.01
    assert np.diag(ward.copy).min() > 0.02
    assert found.gaps is not None
    shares = found.gaps.measured_shares
    assert shares is not None
    assert np.abs(shares - found.gaps.synthetic_shares).max() < 0.05
    assert found.gaps.labels[0] == "0 d"
    assert found.gaps.labels[-1] == "(first)"
    week = next(i for i, word in enumerate(found.gaps.labels) if "to 8 d" in word or word == "7 d")
    assert found.gaps.synthetic[week] > 0.5 * found.gaps.synthetic[:-1].sum()


def test_of_rows_in_any_order_it_is_not() -> None:
    rng, mixed = np.random.default_rng(0), lives(0)
    who = mixed["visits"]["who"].to_numpy()
    mixed["visits"] = mixed["visits"].set_column(1, "who", [rng.permutation(who)])
    found = shown(mixed)
    assert max(abs(a.copy) for a in found.agreements if a.column == "ward") < 0.05
    assert found.gaps is not None
    assert found.gaps.measured_shares is not None
    assert np.abs(found.gaps.measured_shares - found.gaps.synthetic_shares).max() > 0.2


def test_the_page_shows_it_and_loads_with_the_model(tmp_path: object) -> None:
    path = f"{tmp_path}/m.dpw"
    fitted().save(path)
    model = dw.load(path)
    db = model.sample(seed=0)
    page = render(model, db)
    for words in ("What rows of one owner have in common", "In what order they come, by came", "since the row before"):
        assert words in page
    assert "nan" not in page.lower().replace("nanum", "")
    again, first = fidelity(model, db).relations[0].units, shown(db)
    assert again is not None
    assert again.agreements == first.agreements
    none = {n: t.slice(0, 0) for n, t in db.items()}
    assert fidelity(model, none).relations[0].units is not None
    assert encode(model.plan, none).rows["visits"] == 0
