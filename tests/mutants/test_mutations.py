"""Each mutation still applies to the code as it is, and stands in the table of the documentation."""

from __future__ import annotations

import ast
import re

import pytest

from tests.mutants.mutations import ARRAYS, MUTATIONS, ROOT, Mutation
from tests.mutants.planting import PAGE, Outcome, killer, page, table
from tests.test_surface import HELD_BY_CLIENTS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_a_mutation_applies_to_the_code_as_it_is(mutation):
    mutated = mutation.mutated()  # refuses a text that is not there once
    before, after = (ast.dump(ast.parse(text)) for text in ((ROOT / "src" / mutation.path).read_text(), mutated))
    assert before != after  # it parses, and is no change of comments or layout
    compile(mutated, mutation.file, "exec")
    for test in mutation.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert f"def {name.split('[')[0]}(" in text if name else True


def test_a_text_that_is_not_there_once_is_refused():
    for old in ("nobody wrote this", "import"):
        with pytest.raises(ValueError, match="occurs"):
            Mutation("m", "noise.py", old, "x", "", ()).mutated()


def test_every_file_of_the_trusted_core_has_mutations():
    """At least 60 in all, each under a name of its own."""
    core = {p.name for p in (ROOT / "src" / "dpweave" / "privacy").glob("*.py")} - {"__init__.py", *HELD_BY_CLIENTS}
    assert {m.file for m in MUTATIONS} == core | {ARRAYS}
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) >= 60


def test_the_table_shows_this_list_and_no_survivor():
    """A list that has changed is planted again: ``make mutants`` writes the table."""
    rows = re.findall(r"^\| ([^|]+) \| (\w+\.py) \| ([^|]+) \| ([^|]+) \| [\d.]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert [row[:3] for row in rows] == [(m.name, m.file, m.breaks) for m in MUTATIONS]
    for *_, test in rows:
        file, _, name = test.strip("`").partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def test_a_survivor_is_shown():
    mutation = MUTATIONS[0]
    assert "| **nobody** |" in table([Outcome(mutation, None, 1.0)])
    assert "**1 of 2 were noticed.**" in page(
        [Outcome(mutation, None, 1.0), Outcome(mutation, "tests/x.py::y[1]", 1.0)]
    )


@pytest.mark.parametrize(
    ("code", "said", "by"),
    [
        (1, "FAILED tests/x.py::test_it[a b] - AssertionError: 1 - 2", "tests/x.py::test_it[a b]"),
        (1, "FAILED tests/x.py::test_it", "tests/x.py::test_it"),
        (1, "ERROR tests/x.py - ImportError", None),
        (0, "2 passed", None),
        (2, "FAILED tests/x.py::test_it", None),
        (5, "no tests ran", None),
        (-9, "FAILED tests/x.py::test_it", None),  # too slow
    ],
)
def test_only_a_test_that_fails_counts(code, said, by):
    assert killer(code, said) == by
