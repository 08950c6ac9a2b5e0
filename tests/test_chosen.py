"""Chosen numbers live in ``dpweave.chosen``, each with its reason; what stands elsewhere is a limit or a fact.

A new number that fails here is a choice (then it belongs into ``chosen.py``, or follows from a number there), or it is
none (then it is added to the lists below).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dpweave import chosen

SOURCES = Path(chosen.__file__).parent
MOST_CHOSEN = 55
"""How many there are. It may only become smaller."""

PLAIN = {0.0, 0.5, 1.0, 2.0}
SMALLEST, LARGEST = 1e-6, 1e6
"""Smaller and larger numbers keep arithmetic from overflowing or dividing by nothing."""

ELSEWHERE = ("privacy/", "cli/demo.py", "report/svg_figures.py", "links/pgd_learner.py")
"""What the core proves with, a made-up shop, the sizes of drawings, and the settings of the paper's algorithm."""

INSIDE: dict[str, set[float]] = {
    "budget/priorities.py": {4.0},
    "budget/spending.py": {10.0},
    "explain/explanation_text.py": {1000000.0},
    "links/degrees_by_values.py": {0.1},
    "links/relaxed/exact_rounding.py": {4.0, 16.0},
    "links/relaxed/gradient_descent.py": {4.0},
    "links/relaxed/one_to_one.py": {1e-06},
    "links/relaxed/projections.py": {1e-06, 4.0},
    "links/wiring/repeated_pairs.py": {4.0},
    "links/wiring/wire.py": {0.001},
    "measure/design.py": {0.0001, 0.4, 1.3, 1.6},
    "measure/margins.py": {1e-06},
    "measure/per_unit/public_row_sums.py": {1.5},
    "plan/explanation.py": {1000000.0},
    "progress.py": {0.999},
    "report/html_report.py": {1.2},
    "tables/aim.py": {0.001, 16.0},
    "tables/graphical/estimation.py": {1e-05, 1.2},
    "tables/mst.py": {0.0001},
    "tables/owned_row_counts.py": {700.0},
    "tables/session.py": {1e-05},
}
"""Numbers inside functions that are no choices: steps of solvers and their tolerances, factors of formulas, units."""

AT_THE_TOP: dict[str, str] = {
    "engines/file_locks.py": "TRIES",
    "cli/interruption.py": "INTERRUPTED",
    "budget/kept_answers.py": "UNSEALED FORMAT",
    "budget/spending.py": "LONGEST",
    "engines/folder/data_package.py": "LONGEST",
    "plan/plan.py": "LONGEST",
    "engines/duckdb/sink.py": "_TRANSACTION _DEEPEST",
    "engines/duckdb/source.py": "SPARE_NUMBERS",
    "engines/duckdb/types.py": "_DUCKDB",
    "engines/large_arrays.py": "IN_MEMORY ROWS BUCKETS",
    "engines/mysql/connection.py": "CONNECT_SECONDS PATIENCE _CODES",
    "engines/mysql/sink.py": "STATEMENT NUMBER",
    "engines/mysql/types.py": "WIDEST_DECIMAL WIDEST_KEY WIDEST_ROW CHARACTER _INTEGERS _MYSQL",
    "engines/postgres/connection.py": "CONNECT_SECONDS",
    "engines/postgres/types.py": "_POSTGRES",
    "engines/source_base.py": "BATCH_ROWS",
    "engines/sqlite/types.py": "_SQLITE",
    "engines/staging.py": "PROBE",
    "engines/stream.py": "BATCH_ROWS",
    "evaluation/comparisons.py": "MOST_WORKLOADS MOST_CELLS SHOWN_PAIRS",
    "evaluation/distances.py": "DENSE_CELLS",
    "evaluation/evaluate.py": "MOST_CATEGORIES",
    "evaluation/learners.py": "MOST_ROWS MOST_UNITS MOST_SDMETRICS_ROWS",
    "evaluation/unit_comparisons.py": "LEAST_EXCESS MOST_OWNERS MOST_QUESTIONS MOST_CODES LEAST_SHARE",
    "explain/draft_notes.py": "CANDIDATES",
    "explain/explanation_text.py": "WIDTH",
    "explain/forecast.py": "WORST MOST_COLUMNS SECONDS BYTES",
    "explain/helpful_edits.py": "MOST_OFFERED MOST_COLUMNS",
    "explain/verdict.py": "MOST_ADVICE DOUBLINGS WORST",
    "fitting/link_tables.py": "DISTINCT",
    "links/degrees.py": "_STEEPEST _HALVINGS",
    "links/degrees_by_values.py": "COEFFICIENTS _GOLDEN _ROUNDS _LEAST_VARIANCE",
    "links/draw_links.py": "_EVEN_CELLS _RENEWED_CELLS _SHARED_CELLS _RAKES _NOBODY",
    "links/evidence.py": "MOST_JUDGED",
    "links/fit_inputs.py": "FIT_CELLS _SHORTEST",
    "links/map_learner.py": "_ITERATIONS _ENOUGH",
    "links/wiring/both_ways.py": "_ROUNDS",
    "links/popularity.py": "MOST_TARGETS _POINTS _STEPS _SPAN _RAKES _GRID",
    "links/prior_variances.py": "GRID _ROUNDING",
    "links/relaxed/exact_rounding.py": "_SUM_TOLERANCE",
    "links/relaxed/projections.py": "_SMALL _NEWTON _ROW_STEPS",
    "links/row_types.py": "_DENSE_WIDTH _MOST_NUMBERS _SPARE_NUMBERS",
    "links/wiring/exchange_for_counts.py": "PAIRS _EFFORT MOST_TABLES",
    "links/wiring/exchange_for_siblings.py": "PAIRS CACHED LOOKS_PER_ROW ENOUGH",
    "links/wiring/repeated_pairs.py": "_EFFORT _TURNS",
    "links/wiring/unit_members.py": "BLOCK FIRST",
    "links/wiring/wire.py": "SLICE_LINKS WHOLE_CELLS SLICE_CELLS _AHEAD _AT_ONCE _GOLDEN _RAKE_STEPS _GUESSES",
    "links/wiring/within_groups.py": "_PAIRS",
    "measure/per_unit/centred_counts.py": "MOST_CELLS",
    "measure/design.py": "COMPONENTS MOST_CLIQUES _STEPS _HALF_NORMAL _WORST",
    "measure/estimates.py": "MOST_CORRELATED",
    "measure/expected_error.py": "TRIES",
    "measure/per_unit/public_row_sums.py": "MOST_CODES RAREST",
    "measure/per_unit/sibling_moments.py": "RARE OWNERS_LOOKED_AT TURNS",
    "model/model.py": "FORMAT SHRINKING SMALL",
    "model/verification.py": "ROUNDING",
    "plan/declared.py": "VERSION",
    "plan/entries.py": "MOST_COLUMNS LEAST_WEIGHT MOST_WEIGHT MOST_BINS",
    "plan/relations.py": "ANY_DEGREE",
    "plan/toml_text.py": "WIDTH",
    "plan/value_kinds.py": "DEEPEST WIDEST",
    "plan/workloads.py": "LONGEST_WAY",
    "progress.py": "LONG",
    "report/cards.py": "MOST_NUMBERS MOST_HEAT_MAPS MOST_HEAT_MAPS_IN_ALL MOST_SEEN",
    "report/fidelity.py": "MOST_PAIRS",
    "report/html_report.py": "MOST_EVENTS",
    "report/unit_views.py": "LONG",
    "schema/arrow_types.py": "_INTEGERS WIDEST_DECIMAL WIDEST",
    "schema/codec.py": "CASE_LIMIT",
    "schema/domain.py": "MAX_CELLS _EPOCH",
    "schema/fake_values.py": "DRAWS PHONE_DIGITS IBAN_DIGITS FORMS",
    "schema/placeholders.py": "FORMS",
    "studio/outlook.py": "GUESSES PATIENCE",
    "studio/server.py": "LONGEST",
    "tables/aim.py": "MAX_PREDICTED MAX_TRIPLES MEAN_ABSOLUTE",
    "tables/auto.py": "WIDE",
    "tables/base.py": "MAX_MODEL_CELLS OLDEST_MBI",
    "tables/graphical/estimation.py": "MEMORY PATIENCE",
    "tables/graphical/inference.py": "_NONE WALK_CELLS",
    "tables/graphical/sub_marginals.py": "DIRECT_CELLS",
    "tables/domains/learned_ranges.py": "YEARS FAR_YEARS FAR_POWERS FAR_BELOW NARROW USUAL_YEARS USUAL_NUMBERS",
    "tables/mst.py": "MAX_PREDICTED",
    "tables/session.py": "GRADES",
    "tables/woven.py": "LEARNER PICTURE_ROWS",
    "weaving/kept_rules/order_in_rows.py": "_ROUNDS",
    "weaving/kept_rules/acyclic_keys.py": "_TRIES",
    "weaving/blueprint.py": "MOST_UNSEEN _PILOT",
    "weaving/parts.py": "PART_VALUES FEW ENOUGH_ROWS PILOT_PARTS",
    "weaving/unit_composition.py": "_EFFORT",
}
"""Numbers at the top of modules that are no choices: limits on memory, time and what is shown; facts; efforts."""


def number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def at_the_top(tree: ast.Module) -> list[tuple[str, ast.stmt]]:
    """Names in capitals at the top of a module whose value holds a number."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and any(map(number, ast.walk(node.value))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            found += [(name, node) for name in names if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name)]
    return found


def inside(tree: ast.Module) -> set[float]:
    """Fractions elsewhere in a module that are not plain. How far a progress bar has come is nobody's choice."""
    outside = {id(n) for _, statement in at_the_top(tree) for n in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "progress":
            outside |= {id(n) for n in ast.walk(node)}
    return {
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, float) and id(n) not in outside
        if n.value not in PLAIN and SMALLEST <= n.value <= LARGEST
    }


def sources() -> dict[str, ast.Module]:
    texts = {p.relative_to(SOURCES).as_posix(): p.read_text(encoding="utf-8") for p in sorted(SOURCES.rglob("*.py"))}
    return {name: ast.parse(text) for name, text in texts.items() if not name.startswith((*ELSEWHERE, "chosen.py"))}


def reasons() -> dict[str, str]:
    """Chosen numbers by name, and what is said of each."""
    body = ast.parse(Path(chosen.__file__).read_text(encoding="utf-8")).body
    said = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            said |= {n.id: str(text) for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return said


def test_chosen_numbers_have_reasons_and_lie_in_their_ranges():
    said = reasons()
    assert {name for name in vars(chosen) if name.isupper()} == said.keys()
    assert len(said) == MOST_CHOSEN
    for name, text in said.items():
        assert len(text) > 30, name
        assert len(text.splitlines()) <= 4, name
        if "Range" in text:
            found = re.search(r"Range:\s([\d.e-]+)\sto\s([\d.e-]+)\.$", text)
            assert found, name
            assert float(found[1]) < getattr(chosen, name) < float(found[2]), name


def test_chosen_numbers_are_used_and_need_nothing():
    trees = {p: ast.parse(p.read_text(encoding="utf-8")) for p in SOURCES.rglob("*.py")}
    own = trees.pop(Path(chosen.__file__))
    assert [n.module for n in ast.walk(own) if isinstance(n, ast.ImportFrom)] == ["__future__"]
    assert not [n for n in ast.walk(own) if isinstance(n, ast.Import)]
    used = {
        n.attr
        for tree in trees.values()
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and n.attr.isupper()
        if isinstance(n.value, ast.Name) and n.value.id == "chosen"
    }
    assert used == reasons().keys()


def test_no_number_is_chosen_elsewhere():
    trees = sources()
    assert len(trees) > 100
    assert {name: found for name, tree in trees.items() if (found := inside(tree))} == INSIDE
    tops = {name: " ".join(n for n, _ in found) for name, tree in trees.items() if (found := at_the_top(tree))}
    assert tops == AT_THE_TOP


@pytest.mark.parametrize(
    ("text", "top", "within"),
    [
        ("SHARE = 0.3", ["SHARE"], set()),
        ("_A, B = 0.3, 4", ["_A", "B"], set()),
        ("def f(x, share=0.3):\n    return 0.7 * x", [], {0.3, 0.7}),
        ("class C:\n    share: float = 0.3", [], {0.3}),
        ("def f(x):\n    progress('half', 0.3)\n    return 0.5 * x / max(x, 1e-300)", [], set()),
    ],
)
def test_numbers_are_found(text, top, within):
    tree = ast.parse(text)
    assert [name for name, _ in at_the_top(tree)] == top
    assert inside(tree) == within
