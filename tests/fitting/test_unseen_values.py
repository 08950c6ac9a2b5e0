"""Nulls, and values beside those that are listed, are only there if counts of them stand out of noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.fitting.learned_tables import without_unseen
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Categories
from dpweave.tables.base import Structure
from tests.weaving.test_weaver import ID

SHAPE = {"kind": 4}


def _plan() -> Plan:
    kind = ColumnPlan(Column("kind", Type("text"), nullable=True), Categories(("a", "b"), other=True))
    return Plan((TablePlan("t", (ColumnPlan(ID, None), kind), ("id",)),), protect=("t",))


@pytest.mark.parametrize(
    ("other", "null", "ruled_out"),
    [(15, 15, [2, 3]), (-40, 25, [2]), (25, 0, [3]), (25, 25, None)],
)
def test_what_does_not_stand_out_of_noise_is_not_there(other, null, ruled_out):
    counts = NoisyMarginal(("kind",), np.array([900, 0, other, null]), 10.0)
    found = without_unseen(_plan(), "t", SHAPE, Structure(), [counts])
    assert [np.flatnonzero(z.mask).tolist() for z in found.zeros] == ([] if ruled_out is None else [ruled_out])


def test_two_answers_tell_more_than_one():
    one = NoisyMarginal(("kind",), np.array([900, 0, 15, 900]), 10.0)
    assert without_unseen(_plan(), "t", SHAPE, Structure(), [one]).zeros
    assert not without_unseen(_plan(), "t", SHAPE, Structure(), [one] * 2).zeros


def test_something_must_be_left():
    plan = _plan().replace_domain("t", "kind", Categories((), other=True))
    counts = NoisyMarginal(("kind",), np.array([3, -3]), 10.0)
    assert not without_unseen(plan, "t", {"kind": 2}, Structure(), [counts]).zeros
