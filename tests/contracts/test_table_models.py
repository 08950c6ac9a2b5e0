"""One matrix for every table model: what holds for one holds for all."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dpweave.errors import BudgetError, DpweaveError, PlanError
from dpweave.plan.mechanisms import registered
from dpweave.tables.base import Dependency, FittedTable, StructuralZero, Structure, TableModel, restore, table_model
from tests.windows import ArrayWindow

MODELS = ("independent", "mst", "aim", "woven", "auto", "external")
SPENDING = tuple(name for name in MODELS if name != "external")


def random_codes(shape: dict[str, int], rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 1 << 30, rows)
    return {c: (base // (i + 1) + rng.integers(0, 2, rows)) % size for i, (c, size) in enumerate(shape.items())}


TABLES = {
    "plain": ({"a": 3, "b": 4, "c": 2, "d": 5}, 500),
    "one column": ({"a": 4}, 300),
    "60 columns": ({f"c{i}": 2 + i % 3 for i in range(60)}, 400),
    "1 row": ({"a": 3, "b": 4, "c": 2}, 1),
    "0 rows": ({"a": 3, "b": 4, "c": 2}, 0),
    "one-value column": ({"a": 3, "constant": 1, "b": 4}, 300),
    "only constants": ({"x": 1, "y": 1}, 50),
    "5,000 categories": ({"a": 3, "many": 5000, "b": 4}, 2000),
}


def make(name: str, codes: dict[str, np.ndarray]) -> TableModel:
    return table_model(name, codes=codes) if name == "external" else table_model(name)


def fit(
    name: str,
    window: ArrayWindow,
    *,
    rho: float = 0.1,
    rows: float | None = None,
    structure: Structure | None = None,
) -> FittedTable:
    return make(name, window.codes).fit(
        window,
        rho=0.0 if name == "external" else rho,
        rows=rows,
        structure=structure or Structure(),
        progress=lambda message, done: None,
    )


def test_the_matrix_covers_every_built_in_model() -> None:
    assert set(MODELS) <= set(registered())
    assert set(MODELS) == {name for name in registered() if name in MODELS}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("table", TABLES)
def test_matrix(name: str, table: str) -> None:
    shape, rows = TABLES[table]
    window = ArrayWindow(random_codes(shape, rows), shape, seed=1)
    fitted = fit(name, window, rho=0.1)
    assert isinstance(fitted, FittedTable)
    assert fitted.rows >= 0
    assert math.isfinite(fitted.rows)

    wanted = 0 if name == "external" and rows == 0 else 200
    made = fitted.sample(wanted, np.random.default_rng(3))
    assert list(made) == list(shape)
    for column, size in shape.items():
        assert made[column].dtype == np.int64
        assert made[column].shape == (wanted,)
        assert not wanted or (made[column].min() >= 0 and made[column].max() < size)
    assert all(values.size == 0 for values in fitted.sample(0, np.random.default_rng(3)).values())

    first = next(iter(shape))
    np.testing.assert_allclose(fitted.marginal((first,)).sum(), fitted.rows, rtol=1e-6, atol=1e-6)
    if name == "external":
        assert window.asked == []
    else:
        spent = sum((Fraction(call.rho) for call in window.asked), Fraction(0))
        assert spent == Fraction(0.1)
        assert window.spent == 0.1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("table", ["plain", "one-value column", "5,000 categories"])
def test_state_survives_json_and_gives_the_same_rows(name: str, table: str) -> None:
    shape, rows = TABLES[table]
    fitted = fit(name, ArrayWindow(random_codes(shape, rows), shape, seed=1))
    state, arrays = fitted.state()
    again = restore(name, json.loads(json.dumps(state)), {key: value.copy() for key, value in arrays.items()})
    assert all(value.ndim == 1 for value in arrays.values())
    assert again.rows == fitted.rows
    one, two = fitted.sample(150, np.random.default_rng(9)), again.sample(150, np.random.default_rng(9))
    other = fitted.sample(150, np.random.default_rng(10))
    for column in shape:
        np.testing.assert_array_equal(one[column], two[column])
    assert any((one[column] != other[column]).any() for column in shape)


@pytest.mark.parametrize("name", SPENDING)
def test_same_measurements_same_table(name: str) -> None:
    shape, rows = TABLES["plain"]
    codes = random_codes(shape, rows)
    one, two = (fit(name, ArrayWindow(codes, shape, seed=5)) for _ in range(2))
    for key, value in one.state()[1].items():
        np.testing.assert_array_equal(value, two.state()[1][key])


@pytest.mark.parametrize("name", MODELS)
def test_structure_holds_exactly(name: str) -> None:
    """City determines country, region determines nothing twice; a child is not married; codes of a forbid some of b."""
    rng = np.random.default_rng(0)
    rows = 800
    city = rng.integers(0, 12, rows)
    country = city // 4
    continent = country // 2
    age = rng.integers(0, 6, rows)
    married = np.where(age < 2, 0, rng.integers(0, 2, rows))
    codes = {"age": age, "country": country, "continent": continent, "city": city, "married": married}
    shape = {"age": 6, "country": 3, "continent": 2, "city": 12, "married": 2}
    forbidden = np.zeros((6, 2), dtype=bool)
    forbidden[:2, 1] = True
    never = np.zeros((2, 6), dtype=bool)
    never[1, 5] = True
    codes["age"] = np.where((continent == 1) & (age == 5), 4, age)
    structure = Structure(
        zeros=(StructuralZero(("age", "married"), forbidden), StructuralZero(("continent", "age"), never)),
        dependencies=(
            Dependency(("country",), "continent", np.arange(3) // 2),
            Dependency(("city",), "country", np.arange(12) // 4),
        ),
    )
    window = ArrayWindow(codes, shape, seed=2)
    fitted = fit(name, window, rho=0.05, structure=structure)
    made = fitted.sample(3000, np.random.default_rng(0))
    assert (made["country"] == made["city"] // 4).all()
    assert (made["continent"] == made["country"] // 2).all()
    assert not forbidden[made["age"], made["married"]].any()
    assert not never[made["continent"], made["age"]].any()
    assert fitted.marginal(("married", "age"))[1, :2].max() == 0
    joint = fitted.marginal(("country", "city"))
    assert joint[0, 4:].max() == 0
    np.testing.assert_allclose(joint.sum(), fitted.rows)
    if name != "external":
        asked = {column for call in window.asked for clique in call.cliques for column in clique}
        assert asked <= {"age", "city", "married"}


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_respected_when_they_were_measured_before(name: str) -> None:
    shape, rows = TABLES["plain"]
    window = ArrayWindow(random_codes(shape, rows), shape, seed=1)
    fitted = fit(name, window, rows=612.5)
    assert fitted.rows == 612.5
    np.testing.assert_allclose(fitted.marginal(("a", "c")).sum(), 612.5)
    assert not any(() in call.cliques for call in window.asked)


@pytest.mark.parametrize("name", SPENDING)
def test_rows_are_measured_when_nobody_did(name: str) -> None:
    shape, rows = TABLES["plain"]
    window = ArrayWindow(random_codes(shape, rows), shape, seed=1)
    assert fit(name, window, rho=5.0).rows == pytest.approx(rows, abs=15)
    assert any(() in call.cliques for call in window.asked)


@pytest.mark.parametrize("name", SPENDING)
@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf])
def test_no_budget_is_refused_before_anything_is_asked(name: str, rho: float) -> None:
    shape, rows = TABLES["plain"]
    window = ArrayWindow(random_codes(shape, rows), shape, seed=1)
    with pytest.raises(BudgetError, match="positive share"):
        fit(name, window, rho=rho)
    assert window.asked == []


@pytest.mark.parametrize("name", SPENDING)
def test_too_large_is_refused_before_anything_is_asked(name: str) -> None:
    shape = {"a": 300, "b": 300}
    window = ArrayWindow(random_codes(shape, 10), shape, seed=1)
    mask = np.zeros((300, 300), dtype=bool)
    mask[0, 0] = True
    structure = Structure(zeros=(StructuralZero(("a", "b"), mask),), max_cells=10_000)
    with pytest.raises(PlanError, match=r"90000 cells.*10000"):
        fit(name, window, structure=structure)
    with pytest.raises(PlanError, match="limit of 100"):
        fit(name, window, structure=Structure(max_cells=100))
    with pytest.raises(PlanError, match="600 cells, more than the limit of 500"):
        fit(name, window, structure=Structure(max_model_cells=500))
    assert window.asked == []


@pytest.mark.parametrize("name", ["mst", "aim"])
def test_no_marginal_larger_than_the_limit_is_asked(name: str) -> None:
    shape = {"a": 50, "b": 50, "c": 3, "d": 3}
    window = ArrayWindow(random_codes(shape, 2000), shape, seed=1)
    fit(name, window, structure=Structure(max_cells=200))
    assert max(math.prod(shape[c] for c in q) for call in window.asked for q in call.cliques) <= 200


@pytest.mark.parametrize("name", [m for m in SPENDING if m != "woven"])
def test_contradictions_are_refused_before_anything_is_asked(name: str) -> None:
    shape = {"a": 2, "b": 2}
    window = ArrayWindow(random_codes(shape, 10), shape, seed=1)
    equal = StructuralZero(("a", "b"), np.eye(2, dtype=bool))
    unequal = StructuralZero(("a", "b"), ~np.eye(2, dtype=bool))
    with pytest.raises(PlanError, match="no possible row"):
        fit(name, window, structure=Structure(zeros=(equal, unequal)))
    assert window.asked == []


@pytest.mark.parametrize("name", SPENDING)
def test_sensitivity_scales_the_noise(name: str) -> None:
    """A window whose units move ten times as much gives counts ten times as noisy, and the model still works."""
    shape, rows = TABLES["plain"]
    window = ArrayWindow(random_codes(shape, rows), shape, l1=20.0, l2=10.0, seed=1)
    made = fit(name, window, rho=0.5).sample(100, np.random.default_rng(0))
    assert all(values.size == 100 for values in made.values())


@pytest.mark.parametrize("name", SPENDING)
def test_progress_rises_to_one(name: str) -> None:
    shape, rows = TABLES["plain"]
    seen: list[float] = []
    table_model(name).fit(
        ArrayWindow(random_codes(shape, rows), shape, seed=1),
        rho=0.1,
        rows=None,
        structure=Structure(),
        progress=lambda message, done: seen.append(done),
    )
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize("typo", ["aims", "MST", "", "mst "])
def test_unknown_mechanisms_are_refused(typo: str) -> None:
    with pytest.raises(PlanError, match="no table mechanism"):
        table_model(typo)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(DpweaveError, match="does not take"):
        table_model("mst", depth=3)
