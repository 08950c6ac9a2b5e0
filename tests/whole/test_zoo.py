"""Made-up databases that nobody tuned for, from draft to evaluation: the small form of benchmarks/zoo.py.

Seeds were taken as they come. What must hold: no step fails, no key or rule breaks, sizes stay within four standard
deviations and what bounds hide, and a range that is called learned well holds nine tenths of the values.
"""

from __future__ import annotations

import pytest

from benchmarks.zoo import Case, run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8, 13, 17, 19, 21, 23, 36])
def test_a_database_that_nobody_tuned_for(seed: int) -> None:
    found = run(Case(seed, epsilon=1.0, noise=0, most_units=1_000))
    assert "failed" not in found, (found["failed"], found["trace"])
    assert found["broken"] == []
    for name, table in found["sizes"].items():
        hidden = table["real"] - table["within"]
        assert abs(table["copy"] - table["real"]) <= 4 * (table["sigma"] or 0) + hidden + 5, (name, table)
    for column, learned in found["ranges"].items():
        assert learned["learned"] != "well" or learned["inside"] >= 0.9, (column, learned)


@pytest.mark.slow
def test_rows_of_owners_that_are_not_counted_are_there() -> None:
    """Most items name a second unit and have no place there, so neither they nor their claims are counted. How many
    items there are is known by degrees of their owners; of claims the counted number alone.
    """
    found = run(Case(16, epsilon=4.0, noise=0, most_units=3_000))["sizes"]
    assert found["claim"]["real"] == 29_971
    assert found["claim"]["copy"] > found["claim"]["real"] / 2
    assert abs(found["item"]["copy"] - found["item"]["real"]) < found["item"]["real"] / 4
