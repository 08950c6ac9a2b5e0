"""What commands say: rows made and rows copied apart, and what was not spent."""

from types import SimpleNamespace

import pytest

from dpweave.cli.screen import rows_apart, sample_words, spent_words, unspent
from dpweave.privacy.certificate import Guarantee


class Copy(dict):
    """As much of a copy as the screen looks at: rows of each table, and repairs."""

    repairs: dict = {}  # noqa: RUF012

    @property
    def rows(self):
        return dict(self)


def certificate(**epsilon):
    tables = [Guarantee(table, 0.1, value, 1e-6) for table, value in epsilon.items()]
    return SimpleNamespace(tables=tables, statement="A promise.", delta=1e-6, neighbours="entity", caveats=())


def test_copied_rows_are_not_called_synthetic():
    copy = Copy(orders=900, customers=100, products=56_909)
    assert rows_apart(copy, ["products"]) == {"synthetic_rows": 1_000, "copied_rows": 56_909}
    said = sample_words(copy, "copy.duckdb", public=["products"]).replace("\n", " ")
    assert said == (
        "Wrote 1,000 synthetic rows in 2 tables to copy.duckdb. Copied 56,909 rows of 1 public table as they are."
    )
    assert "opied" not in sample_words(Copy(orders=900), "copy.duckdb", public=[])


@pytest.mark.parametrize(("spent", "left"), [(2.9, {"people": 1.1}), (3.98, {}), (4.0, {}), (float("inf"), {})])
def test_what_was_not_spent_is_said_when_it_is_more_than_a_rounding(spent, left):
    found = certificate(people=spent)
    assert unspent(found, 4.0) == pytest.approx(left)
    said = spent_words(found, asked=4.0).replace("\n", " ")
    assert ("Not spent of epsilon 4: people 1.1." in said) == bool(left)
