"""Figures on units against loops over owners and their rows, and figures that must come out."""

from __future__ import annotations

import datetime as dt
import json
from itertools import pairwise, permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.evaluation import unit_comparisons
from dpweave.evaluation.baselines import HALVES, SHUFFLED, SYNTHETIC
from dpweave.evaluation.evaluate import evaluate
from dpweave.evaluation.unit_comparisons import (
    EXCESS,
    FIRST,
    GAPS,
    QUESTIONS,
    SIBLINGS,
    TRANSITIONS,
    Question,
    UnitRows,
    moments_of,
    questions,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY = {"type": "integer", "nullable": False, "domain": "key"}


def some_rows(seed: int, owners: int = 7, rows: int = 25) -> UnitRows:
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 9, rows).astype(float)
    time[rng.random(rows) < 0.2] = np.nan
    return UnitRows(
        [rng.integers(0, 3, rows), rng.integers(0, 2, rows)],
        [slice(0, 3), slice(3, 5)],
        rng.integers(0, owners, rows),
        owners,
        [rng.integers(0, 2, owners)],
        time,
    )


@pytest.mark.parametrize("seed", range(3))
def test_sibling_tables_by_loops(seed: int) -> None:
    rows = some_rows(seed)
    expected = np.zeros((5, 5))
    for owner in range(rows.owners):
        mine = np.flatnonzero(rows.owner == owner).tolist()
        for i, j in permutations(mine, 2):
            for (a, block), (b, other) in product(zip(rows.codes, rows.blocks, strict=True), repeat=2):
                expected[block.start + a[i], other.start + b[j]] += 1 / (len(mine) - 1)
    assert rows.siblings() == pytest.approx(expected)
    share = np.bincount(rows.codes[0], minlength=3) / len(rows.owner)
    agree = np.trace(expected[:3, :3]) / expected[:3, :3].sum() - np.square(share).sum()
    assert rows.excess(rows.siblings(), slice(0, 3)) == pytest.approx(agree)


@pytest.mark.parametrize("seed", range(3))
def test_questions_by_loops(seed: int) -> None:
    rows, rng = some_rows(seed), np.random.default_rng(seed)
    asked = questions(rows, rng, most=80)
    assert any(q.same_row for q in asked)
    assert any(q.own is None for q in asked)
    for q in asked:

        def has(row: int, value: tuple[int, int]) -> bool:
            return bool(rows.codes[value[0]][row] == value[1])

        found = 0
        for owner in range(rows.owners):
            mine = np.flatnonzero(rows.owner == owner).tolist()
            pairs = [(i, i) for i in mine] if q.same_row else list(permutations(mine, 2))
            there = any(has(i, q.one) and has(j, q.two) for i, j in pairs)
            found += there and (q.own is None or rows.theirs[q.own[0]][owner] == q.own[1])
        assert rows.answer(q) == pytest.approx(found / rows.owners)


@pytest.mark.parametrize("seed", range(3))
def test_lives_by_loops(seed: int) -> None:
    rows = some_rows(seed)
    assert rows.time is not None
    table, gaps, first, last = np.zeros((3, 3)), [], [], []
    for owner in range(rows.owners):
        mine = [i for i in np.flatnonzero(rows.owner == owner).tolist() if not np.isnan(rows.time[i])]
        mine.sort(key=lambda i: (rows.time[i], i))  # type: ignore[index]
        for i, j in pairwise(mine):
            table[rows.codes[0][i], rows.codes[0][j]] += 1
            gaps.append(rows.time[j] - rows.time[i])
        first += [rows.time[i] for i in mine[:1]]
        last += [rows.time[i] for i in mine[-1:]]
    found = rows.lives()
    assert found.transitions[0] == pytest.approx(table)
    assert [found.gaps.tolist(), found.first.tolist(), found.last.tolist()] == [gaps, first, last]


def test_some_owners_have_the_same_answers() -> None:
    rows = some_rows(0)
    kept = np.arange(rows.owners) < 4
    part = rows.some(kept)
    q = Question((0, 1), (0, 1), (1, 0), False)
    assert part.answer(q) * 4 <= rows.answer(q) * rows.owners + 1e-9
    assert part.owners == 4
    assert rows.sampled(4, np.random.default_rng(0)).owners == 4
    assert rows.sampled(40, np.random.default_rng(0)) is rows


def plan() -> dw.Plan:
    when = {
        "type": "date",
        "nullable": True,
        "domain": {"low": dt.date(2024, 1, 1), "high": dt.date(2024, 12, 31), "bins": 12},
    }
    link = {"columns": ["who"], "references": "people", "target": ["id"], "role": "owning", "max_degree": 8}
    return dw.Plan.from_dict(
        {
            "protect": ["people"],
            "tables": {
                "people": {
                    "primary_key": ["id"],
                    "columns": {"id": KEY, "kind": {"type": "text", "nullable": False, "domain": ["a", "b"]}},
                },
                "visits": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": KEY,
                        "who": KEY,
                        "came": when,
                        "ward": {"type": "integer", "nullable": False, "domain": [0, 1, 2]},
                    },
                    "keys": {"who": {**link, "order_by": "came"}},
                },
            },
        }
    )


def lives(seed: int, people: int = 400) -> dict[str, Any]:
    """Wards that stay, visits some days apart."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), rng.integers(1, 6, people))
    ward = np.where(rng.random(len(who)) < 0.8, who % 3, rng.integers(0, 3, len(who)))
    nth = np.arange(len(who)) - np.searchsorted(who, who)
    day = np.array("2024-01-01", dtype="datetime64[D]") + rng.integers(0, 250, people)[who] + 7 * nth
    came = pa.array(day, mask=rng.random(len(who)) < 0.1)
    return {
        "people": pa.table({"id": np.arange(people), "kind": np.array(["a", "b"])[np.arange(people) % 2]}),
        "visits": pa.table({"id": np.arange(len(who)), "who": who, "came": came, "ward": ward}),
    }


def test_a_copy_that_is_the_database_keeps_all_and_shuffled_keys_keep_nothing(tmp_path: Path) -> None:
    found = evaluate(lives(0), lives(0), plan(), k=2, learners=False)
    value = {s.name: s.value for s in found.units}
    assert {s.where for s in found.units} == {"visits of people"}
    for name in (SIBLINGS, QUESTIONS, GAPS, FIRST):
        assert value[name][SYNTHETIC] == 0.0
        assert value[name][SHUFFLED] > value[name][HALVES]
    for name in (EXCESS, TRANSITIONS):
        assert value[name][SYNTHETIC] == pytest.approx(1.0)
        assert abs(value[name][SHUFFLED]) < 0.15
        assert value[name][HALVES] > 0.8
    assert "sibling tables" in str(found)
    found.to_html(tmp_path / "e.html")
    assert "excess agreement of siblings" in (tmp_path / "e.html").read_text()
    assert {s["name"] for s in json.loads(found.to_json())["units"]} == set(value)


def test_rows_without_order_owners_or_values_have_fewer_figures() -> None:
    real, copy = lives(0), lives(1)
    copy["visits"] = copy["visits"].slice(0, 0)
    found = evaluate(real, copy, plan(), k=2, learners=False)
    assert all(np.isfinite(v) for s in found.units for v in s.value.values())
    copy["people"] = copy["people"].slice(0, 0)
    evaluate(real, copy, plan(), k=2, learners=False)
    evaluate(copy, real, plan(), k=2, learners=False)
    alone = lives(0)
    alone["visits"] = alone["visits"].slice(0, 1)
    evaluate(alone, real, plan(), k=2, learners=False)


def test_moments_are_whole_steps() -> None:
    found = moments_of(plan(), lambda table, column: lives(0)[table][column])["visits", "came"]
    days = lives(0)["visits"]["came"].to_pylist()
    assert [None if np.isnan(x) else int(x) for x in found] == [
        None if d is None else d.toordinal() - 719163 for d in days
    ]


def test_columns_with_most_codes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_comparisons, "MOST_CODES", 3)
    found = evaluate(lives(0), lives(1), plan(), k=2, learners=False)
    assert SIBLINGS in {s.name for s in found.units}
    monkeypatch.setattr(unit_comparisons, "MOST_CODES", 2)
    found = evaluate(lives(0), lives(1), plan(), k=2, learners=False)
    assert {s.name for s in found.units} >= {GAPS}
    assert SIBLINGS not in {s.name for s in found.units}
