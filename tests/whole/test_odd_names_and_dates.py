"""Names and dates that ended a command once, from the draft to the evaluation."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
ROWS = 60


@pytest.mark.parametrize(
    ("table", "key"), [("?", "id"), ("people", "../../x"), ("true", "null")], ids=["question", "path", "words"]
)
def test_a_table_and_its_key_may_be_called_anything(tmp_path: Path, table: str, key: str) -> None:
    frame = pa.table({key: range(ROWS), "sex": ["f", "m"] * (ROWS // 2)})
    source = {table: frame}
    plan = dw.Plan.from_toml(
        f'protect = ["{table}"]\n[tables."{table}"]\nprimary_key = ["{key}"]\nmechanism = "independent"\n'
        f'[tables."{table}".columns]\n"{key}" = {{ type = "int64", nullable = false, domain = "key" }}\n'
        'sex = { type = "text", nullable = false, domain = ["f", "m"] }\n'
    )
    model = dw.fit(source, plan, epsilon=9.0, delta=1e-5, insecure_seed=1)
    copy = model.sample(seed=1)
    copy.write(tmp_path / "copy.csv")
    again = dw.Plan.draft(tmp_path / "copy.csv", protect=[table])
    assert again.table[table].primary_key == (key,)
    dw.report(model, copy, tmp_path / "report.html")
    dw.evaluate(source, copy, plan)
    assert {p.name for p in tmp_path.iterdir()} == {"copy.csv", "report.html"}


def test_a_header_that_repeats_a_name_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,a\n1,x,y\n")
    with pytest.raises(SourceError, match="two columns of 't' are named 'a' and 'a'"):
        dw.Plan.draft(tmp_path, protect=["t"])


def test_the_first_and_the_last_moment_of_the_calendar_can_be_compared() -> None:
    moments = [FIRST, LAST, dt.datetime(2000, 1, 1)] * (ROWS // 3)
    frame = pa.table(
        {
            "id": range(ROWS),
            "day": pa.array([m.date() for m in moments]),
            "at": pa.array(moments, pa.timestamp("us")),
        }
    )
    plan = dw.Plan.draft({"t": frame}, protect=["t"])
    copy = dw.fit({"t": frame}, plan, epsilon=9.0, delta=1e-5, insecure_seed=1).sample(seed=1)
    assert "t" in str(dw.evaluate({"t": frame}, copy, plan))
    assert "t" in str(dw.evaluate({"t": frame}, {"t": frame}, plan))
