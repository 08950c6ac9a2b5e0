"""MST, AIM and their parts: what they ask, what they learn, what they do with rare categories and odd facts."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib.metadata import EntryPoint
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dpweave import chosen
from dpweave.errors import BudgetError, PlanError, UsageError
from dpweave.measure.purse import Purse
from dpweave.plan import mechanisms
from dpweave.tables.auto import choose, pair_noise
from dpweave.tables.base import Dependency, FittedTable, StructuralZero, Structure, restore, table_model
from dpweave.tables.external import External
from dpweave.tables.graphical.estimation import Measurement
from dpweave.tables.independent import REGISTRATION, Independent
from dpweave.tables.reduction import Merge, reduce
from dpweave.tables.session import Asking, learned, one_way
from tests.windows import ArrayWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.privacy.window import Columns, NoisyMarginal


def planted(rows: int = 3000, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Two strongly correlated pairs and a column on its own."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 4, rows)
    b = np.where(rng.random(rows) < 0.85, a, rng.integers(0, 4, rows))
    c = rng.integers(0, 3, rows)
    d = np.where(rng.random(rows) < 0.85, 2 - c, rng.integers(0, 3, rows))
    e = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    return {"a": a, "b": b, "c": c, "d": d, "e": e}, {"a": 4, "b": 4, "c": 3, "d": 3, "e": 3}


def fit(
    name: str, window: ArrayWindow, *, rho: float, structure: Structure | None = None, **options: object
) -> FittedTable:
    return table_model(name, **options).fit(
        window, rho=rho, rows=None, structure=structure or Structure(), progress=lambda message, done: None
    )


def error(window: ArrayWindow, fitted: FittedTable) -> float:
    """Mean total variation over all pairs."""
    columns = list(window.shape)
    pairs = [(x, y) for i, x in enumerate(columns) for y in columns[i + 1 :]]
    return float(
        np.mean([0.5 * np.abs(fitted.marginal(p) / fitted.rows - window.exact(p) / window.size).sum() for p in pairs])
    )


@pytest.mark.parametrize("name", ["mst", "aim"])
def test_the_planted_pairs_are_found(name: str) -> None:
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=1)
    fit(name, window, rho=0.5)
    measured = {frozenset(c) for call in window.asked if call.verb == "measure" for c in call.cliques}
    assert any({"a", "b"} <= m for m in measured)
    assert any({"c", "d"} <= m for m in measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mst", "aim"])
def test_error_falls_as_epsilon_grows(name: str) -> None:
    """Eps 0.1 to 10 (rho = eps²/30 or so): each step down exceeds two standard errors of the difference."""
    codes, shape = planted()
    means, errors = [], []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        runs = [
            error(w, fit(name, w, rho=epsilon**2 / 30)) for s in range(6) for w in [ArrayWindow(codes, shape, seed=s)]
        ]
        means.append(np.mean(runs))
        errors.append(np.std(runs, ddof=1) / math.sqrt(len(runs)))
    for i in range(4):
        assert means[i] - means[i + 1] > 2 * math.hypot(errors[i], errors[i + 1]), (means, errors)


def test_dependence_pays() -> None:
    codes, shape = planted()
    marks = {
        name: error(w, fit(name, w, rho=0.1))
        for name in ("independent", "mst", "aim")
        for w in [ArrayWindow(codes, shape, seed=3)]
    }
    assert marks["mst"] < 0.4 * marks["independent"]
    assert marks["aim"] < 0.4 * marks["independent"]


def test_independent_recovers_one_way_counts_without_noise() -> None:
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fitted = fit("independent", window, rho=1e9)
    for column in shape:
        np.testing.assert_allclose(fitted.marginal((column,)), window.exact((column,)), atol=0.5)


def test_mst_recovers_its_tree_without_noise() -> None:
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fitted = fit("mst", window, rho=1e9)
    edges = [c for call in window.asked if call.verb == "measure" for c in call.cliques if len(c) == 2]
    assert len(edges) == len(shape) - 1
    assert {"a", "b"} in map(set, edges)
    assert {"c", "d"} in map(set, edges)
    for edge in edges:
        np.testing.assert_allclose(fitted.marginal(edge), window.exact(edge), atol=0.5)


def test_aim_recovers_every_marginal_of_its_workload_without_noise() -> None:
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fitted = fit("aim", window, rho=1e9)
    assert error(window, fitted) < 2e-3


def test_aim_follows_the_workload() -> None:
    """Weight on one pair alone: no other pair is measured."""
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fit("aim", window, rho=0.5, structure=Structure(workload={("c", "d"): 1.0}))
    measured = {c for call in window.asked if call.verb == "measure" for c in call.cliques if len(c) > 1}
    assert measured == {("c", "d")}


class Weighed(ArrayWindow):
    """Keeps the weights of the last measurement."""

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        self.given = dict(zip(cliques, weights or [1.0] * len(cliques), strict=True))
        return super().measure(cliques, rho=rho, weights=weights)


def test_mst_follows_the_workload() -> None:
    """What no set of the workload holds is left alone; of two pairs, the one of more
    weight is measured more precisely.
    """
    window = Weighed(*planted(), seed=0)
    fit("mst", window, rho=0.5, structure=Structure(workload={("c", "d"): 1.0, ("b", "e"): 0.001, ("a",): 1.0}))
    assert set(window.given) == {("c", "d"), ("b", "e")}
    assert window.given["c", "d"] / window.given["b", "e"] == pytest.approx((1000 * 9 / 12) ** (2 / 3))


def test_mst_asks_about_each_pair_a_few_times_however_many_columns() -> None:
    """Pairs that are worth alike are all asked about at once, and a tree is drawn of them."""
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(30)]
    codes = {c: rng.integers(0, 2, 500) for c in names}
    window = ArrayWindow(codes, dict.fromkeys(names, 2), seed=0)
    fit("mst", window, rho=1.0)
    assert [len(call.cliques) for call in window.asked if call.verb == "select"] == [30 * 29 // 2]
    assert len(window.asked[-1].cliques) == 29


def test_mst_draws_the_heaviest_tree_without_noise() -> None:
    """As Kruskal does, whether pairs are worth alike or not."""
    rng = np.random.default_rng(0)
    row, names = rng.normal(size=4000), "abcdefgh"
    codes = {c: np.clip(row + rng.normal(scale=1 + i, size=4000) + 2, 0, 3).astype(int) for i, c in enumerate(names)}
    for weights in (dict.fromkeys(combinations(names, 2), 1.0), {p: rng.random() ** 3 for p in combinations(names, 2)}):
        window = ArrayWindow(codes, dict.fromkeys(names, 4), seed=0)
        fit("mst", window, rho=1e9, structure=Structure(workload=weights))
        single = {c: window.exact((c,)) / 4000 for c in names}
        gap = {
            (x, y): w * np.abs(window.exact((x, y)) - np.outer(single[x], single[y]) * 4000).sum()
            for (x, y), w in weights.items()
        }
        group, tree = {c: c for c in names}, set()
        for x, y in sorted(gap, key=lambda pair: -gap[pair]):
            if group[x] != group[y]:
                tree.add((x, y))
                group = {c: group[y] if g == group[x] else g for c, g in group.items()}
        assert set(window.asked[-1].cliques) == tree


def test_mst_leaves_out_what_would_make_the_model_too_large() -> None:
    window = ArrayWindow(*planted(), seed=0)
    fit("mst", window, rho=1.0, structure=Structure(max_model_cells=30))
    assert sum(window.shape[x] * window.shape[y] for x, y in window.asked[-1].cliques) <= 30


def test_mst_joins_the_pair_that_the_workload_prefers() -> None:
    """a-b and a-c depend alike, b-c too: a tree leaves one out, and it is never the one of ten times the weight."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 3000)
    codes = {c: np.where(rng.random(3000) < 0.7, a, rng.integers(0, 4, 3000)) for c in "abc"}
    shape = dict.fromkeys("abc", 4)
    for preferred in combinations("abc", 2):
        workload = dict.fromkeys(combinations("abc", 2), 0.1) | {preferred: 1.0}
        window = ArrayWindow(codes, shape, seed=1)
        fit("mst", window, rho=0.5, structure=Structure(workload=workload))
        assert preferred in window.asked[-1].cliques


def test_aim_measures_what_it_chose_once_more() -> None:
    """One part in d - 1 of what columns leave, all at once, on the largest of what was measured."""
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fit("aim", window, rho=0.5)
    *rounds, last = [call for call in window.asked if call.verb == "measure"]
    chosen = {c for call in rounds for c in call.cliques if c}
    assert set(last.cliques) == {c for c in chosen if not any(set(c) < set(other) for other in chosen)}
    assert last.rho == pytest.approx(0.5 * (1 - 0.9 / 16) / 4, rel=1e-6)
    assert window.spent == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("columns", ["ab", "abc"])
def test_aim_measures_pairs_however_few_its_rounds(columns: str) -> None:
    codes, shape = planted()
    window = ArrayWindow({c: codes[c] for c in columns}, {c: shape[c] for c in columns}, seed=0)
    fit("aim", window, rho=0.5, rounds=1)
    assert any(len(c) > 1 for call in window.asked if call.verb == "measure" for c in call.cliques)
    assert window.spent == pytest.approx(0.5, rel=1e-12)


def test_aim_chooses_no_column_that_a_pair_has() -> None:
    codes, shape = planted()
    window = ArrayWindow(codes, shape, seed=0)
    fit("aim", window, rho=0.5)
    assert all(len(c) > 1 for call in window.asked if call.verb == "select" for c in call.cliques)
    alone = ArrayWindow(codes, shape, seed=0)
    fit("aim", alone, rho=0.5, structure=Structure(workload={("a", "b"): 1.0, ("e",): 1.0}))
    assert {c for call in alone.asked if call.verb == "select" for c in call.cliques} == {("a", "b"), ("e",)}


def test_shares_make_the_noise_least() -> None:
    """Against shares that are a little off, either way."""
    codes, shape = planted()
    session = Asking(ArrayWindow(codes, shape, seed=0), rho=1.0, rows=None, structure=Structure())
    weights = {("a", "b"): 1.0, ("c", "d"): 0.3, ("e",): 0.5}
    best = np.array(session.shares(weights))

    def noise(shares: np.ndarray) -> float:
        parts = zip(weights.items(), shares / shares.sum(), strict=True)
        return sum(weight * session.noise(clique, rho) for (clique, weight), rho in parts)

    for i in range(3):
        for factor in (0.9, 1.1):
            assert noise(best) < noise(best * np.where(np.arange(3) == i, factor, 1.0))


def test_a_faint_first_look_does_not_merge_for_good() -> None:
    """Categories that drown in the noise of one column alone come back when pairs have shown them."""
    rng = np.random.default_rng(0)
    codes = {"a": rng.integers(0, 12, 6000), "b": rng.integers(0, 2, 6000)}
    window = ArrayWindow(codes, {"a": 12, "b": 2}, seed=0)
    session = Asking(window, rho=1.0, rows=6000.0, structure=Structure())
    session.measure_singles(1e-6)
    session.merge_rare()
    assert session.reduction.sizes[0] < 12
    session.solve(iterations=50, tolerance=1e-3)
    for noisy in window.measure([("a", "b")], rho=0.5):
        session.add(noisy)
    session.merge_rare()
    assert session.reduction.sizes == (12, 2)
    session.solve(iterations=300, tolerance=1e-6)
    np.testing.assert_allclose(session.predictions([("a", "b")])["a", "b"], window.exact(("a", "b")), atol=8.0)


def test_a_column_stays_merged_where_the_model_would_grow_too_large() -> None:
    rng = np.random.default_rng(0)
    codes = {"a": rng.integers(0, 12, 6000), "b": rng.integers(0, 2, 6000)}
    window = ArrayWindow(codes, {"a": 12, "b": 2}, seed=0)
    session = Asking(window, rho=1.0, rows=6000.0, structure=Structure(), limit=20)
    session.measure_singles(1e-6)
    session.merge_rare()
    merged = session.reduction.sizes
    for noisy in window.measure([("a", "b")], rho=0.5):
        session.add(noisy)
    session.merge_rare()
    assert session.reduction.sizes == (merged[0], 2)
    assert merged[0] < 12


def test_one_way_averages_by_precision() -> None:
    """A single of variance 4 and a pair of three cells of variance 1 each: weights 1/4 and 1/3."""
    single = Measurement((0,), np.array([10.0, 20.0]), 1 / 4)
    pair = Measurement((1, 0), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), 1.0)
    counts, noise = one_way(0, [single, Measurement((1,), np.zeros(3), 1.0), pair])
    np.testing.assert_allclose(counts, (np.array([10.0, 20.0]) / 4 + np.array([9.0, 12.0]) / 3) / (1 / 4 + 1 / 3))
    assert noise == pytest.approx(math.sqrt(1 / 4 + 1) / (1 / 4 + 1 / 3))
    assert one_way(0, [pair])[1] == pytest.approx(3.0)
    assert one_way(0, [single])[1] == pytest.approx(2.0)


def test_aim_stays_within_its_size_limit() -> None:
    rng = np.random.default_rng(0)
    base_code = rng.integers(0, 6, 4000)
    shape = {f"c{i}": 6 for i in range(5)}
    codes = {c: (base_code + rng.integers(0, 3, 4000)) % 6 for c in shape}
    fitted = fit("aim", ArrayWindow(codes, shape, seed=0), rho=1.0, model_cells=300)
    assert fitted.model.engine.tree.cells <= 300  # type: ignore[attr-defined]
    free = fit("aim", ArrayWindow(codes, shape, seed=0), rho=1.0)
    assert free.model.engine.tree.cells > 300  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["mst", "aim"])
def test_rare_categories_are_merged_and_come_back_by_their_noisy_shares(name: str) -> None:
    rng = np.random.default_rng(0)
    rows = 5000
    many = np.where(rng.random(rows) < 0.9, rng.integers(0, 3, rows), rng.integers(3, 400, rows))
    codes = {"many": many, "other": (many + rng.integers(0, 2, rows)) % 3}
    window = ArrayWindow(codes, {"many": 400, "other": 3}, seed=0)
    fitted = fit(name, window, rho=0.05)
    assert fitted.model.engine.tree.sizes[0] < 40  # type: ignore[attr-defined]
    made = fitted.sample(rows, np.random.default_rng(0))["many"]
    assert np.unique(made[made >= 3]).size > 50
    assert (made >= 3).mean() == pytest.approx(0.1, abs=0.04)
    np.testing.assert_allclose(
        np.bincount(made, minlength=400), fitted.marginal(("many",)) * rows / fitted.rows, atol=3.0
    )


def test_merge_keeps_what_it_should() -> None:
    merge = Merge.rare(np.array([100.0, -3.0, 2.0, 6.0, 90.0]), threshold=10.0)
    assert merge.size == 3
    np.testing.assert_allclose(merge.share, [1, 0, 0.25, 0.75, 1])
    full = merge.unmerge(np.array([0, 1, 2, 2, 2, 2]), np.random.default_rng(0))
    assert full[:2].tolist() == [0, 4]
    assert sorted(full[2:].tolist()) == [2, 3, 3, 3]
    assert Merge.rare(np.array([100.0, 3.0]), threshold=10.0).size == 2
    none = Merge.rare(np.array([-1.0, -2.0, 50.0]), threshold=10.0)
    np.testing.assert_allclose(none.share, [0.5, 0.5, 1])


def test_a_circle_of_dependencies_holds_both_ways() -> None:
    """a determines b and b determines a, but not for every code: the codes that break the circle cannot occur."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 500)
    codes = {"a": a, "b": 1 - a, "c": rng.integers(0, 3, 500)}
    structure = Structure(
        dependencies=(Dependency(("a",), "b", np.array([1, 0, 0])), Dependency(("b",), "a", np.array([1, 0])))
    )
    fitted = fit("mst", ArrayWindow(codes, {"a": 3, "b": 2, "c": 3}, seed=0), rho=0.1, structure=structure)
    made = fitted.sample(1000, np.random.default_rng(0))
    assert set(zip(made["a"].tolist(), made["b"].tolist(), strict=True)) == {(0, 1), (1, 0)}


def test_a_column_of_two_determinants() -> None:
    table = np.add.outer(np.arange(3), np.arange(2))
    reduction, zeros = reduce({"x": 3, "y": 2, "s": 4}, Structure(dependencies=(Dependency(("x", "y"), "s", table),)))
    assert reduction.columns == ("x", "y")
    assert zeros == ()
    counts = np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(reduction.derive(("s",), ("x", "y"), counts), [0, 1 + 2, 3 + 4, 5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StructuralZero((), np.zeros((), dtype=bool)), "distinct columns"),
        (lambda: StructuralZero(("a", "a"), np.zeros((2, 2), dtype=bool)), "distinct columns"),
        (lambda: StructuralZero(("a",), np.zeros((2, 2), dtype=bool)), "one axis per column"),
        (lambda: StructuralZero(("a",), np.zeros(2)), "boolean"),
        (lambda: StructuralZero(("a",), np.ones(2, dtype=bool)), "every combination"),
        (lambda: Dependency((), "a", np.zeros(())), "distinct"),
        (lambda: Dependency(("a",), "a", np.zeros(2, dtype=int)), "distinct"),
        (lambda: Dependency(("a",), "b", np.zeros(2)), "integer codes"),
        (lambda: Dependency(("a",), "b", np.zeros((2, 2), dtype=int)), "one axis"),
        (lambda: Structure(max_cells=0), "positive"),
        (lambda: Structure(workload={("a", "a"): 1.0}), "distinct"),
        (lambda: Structure(workload={("a",): 0.0}), "positive"),
        (lambda: Structure(workload={("x",): 1.0}).check({"a": 2}), "names column 'x'"),
        (lambda: Structure().check({"a": 0}), "at least one"),
        (lambda: Structure(zeros=(StructuralZero(("a",), np.eye(3, dtype=bool)[0]),)).check({"a": 2}), "shape"),
        (lambda: Structure(dependencies=(Dependency(("a",), "b", np.array([0, 5])),)).check({"a": 2, "b": 2}), "0..1"),
        (lambda: Structure(dependencies=(Dependency(("a",), "b", np.array([0])),)).check({"a": 2, "b": 2}), "shape"),
    ],
)
def test_guards_fire(make: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mst", {"singles": 0.0}),
        ("mst", {"singles": 0.6, "selection": 0.4}),
        ("aim", {"rounds": 0}),
        ("aim", {"selection": 1.0}),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        table_model(name, **options)


def test_purse_is_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        rho = float(10 ** rng.uniform(-8, 3))
        purse = Purse(rho)
        parts = [purse.take(rho * float(rng.uniform(0, 0.1))) for _ in range(9)]
        parts.append(purse.rest())
        assert sum(parts) == sum(reversed(parts)) == rho
        assert purse.left == 0
    with pytest.raises(BudgetError, match="does not fit"):
        Purse(1.0).take(1.0)


def test_auto_decides_by_public_facts_and_says_why() -> None:
    few = {"a": 3, "b": 4}
    assert choose(few, 0.1, None, 1.0)[0] == "aim"
    assert choose({f"c{i}": 2 for i in range(100)}, 0.1, None, 1.0)[0] == "mst"
    assert choose({"a": 3, "b": 1}, 0.1, None, 1.0)[0] == "independent"
    name, reason = choose(few, 1e-7, 100.0, 1.0)
    assert name == "independent"
    assert "100 rows" in reason
    assert choose(few, 0.1, 100.0, 1.0)[0] == "aim"
    assert choose(few, 0.1, 100.0, 1000.0)[0] == "independent"


@pytest.mark.parametrize("sizes", [(2, 3, 5), (4, 4, 9, 9), (2, 2, 2, 2, 2)])
def test_auto_shrinks_while_noise_hides_faint_pairs(sizes: tuple[int, ...]) -> None:
    shape = {f"c{i}": n for i, n in enumerate(sizes)}
    noise = pair_noise(sorted(sizes), 0.1, 1.0)
    assert choose(shape, 0.1, noise / chosen.UNNOTICED * 1.01, 1.0)[0] == "aim"
    assert choose(shape, 0.1, noise / chosen.UNNOTICED * 0.99, 1.0)[0] == "woven"
    assert choose(shape, 0.1, noise / min(sizes) * 1.01, 1.0)[0] == "woven"
    assert choose(shape, 0.1, noise / min(sizes) * 0.99, 1.0)[0] == "independent"


def test_auto_keeps_columns_together_that_say_the_same_as_long_as_noise_does_not_hide_it() -> None:
    codes = np.random.default_rng(0).integers(0, 25, 15_000)
    said_again = {"rented": codes, "returned": codes}
    window = ArrayWindow(said_again, {"rented": 25, "returned": 25}, l2=40.0, seed=0)
    model = table_model("auto").fit(
        window, rho=0.06, rows=15_000.0, structure=Structure(), progress=lambda _what, _share: None
    )
    noise = pair_noise([25, 25], 0.06, 40.0)
    assert 15_000 < noise < 25 * 15_000
    rows = model.sample(15_000, np.random.default_rng(0))
    assert (rows["rented"] == rows["returned"]).mean() > 0.2  # by chance 0.04


def test_external_refuses_what_does_not_fit() -> None:
    window = ArrayWindow({"a": [0, 1], "b": [0, 1]}, {"a": 2, "b": 2})

    def take(codes: dict[str, object], structure: Structure | None = None, rho: float = 0.0) -> FittedTable:
        return External(codes=codes).fit(  # type: ignore[arg-type]
            window, rho=rho, rows=None, structure=structure or Structure(), progress=lambda message, done: None
        )

    for codes, message in [
        ({"a": [0]}, "no column 'b'"),
        ({"a": [0], "b": [0], "c": [0]}, "unknown column 'c'"),
        ({"a": [0], "b": [0, 1]}, "differ in length"),
        ({"a": [0], "b": [2]}, "integer codes in 0..1"),
        ({"a": [0], "b": [0.5]}, "integer codes"),
    ]:
        with pytest.raises(PlanError, match=message):
            take(codes)
    with pytest.raises(PlanError, match="spends nothing"):
        take({"a": [0], "b": [0]}, rho=0.1)
    never = Structure(zeros=(StructuralZero(("a", "b"), np.eye(2, dtype=bool)),))
    with pytest.raises(PlanError, match="forbids"):
        take({"a": [0], "b": [0]}, never)
    same = Structure(dependencies=(Dependency(("a",), "b", np.array([0, 1])),))
    with pytest.raises(PlanError, match="breaks the dependency"):
        take({"a": [0], "b": [1]}, same)


def test_external_spends_its_share_on_derived_columns_alone() -> None:
    """Degrees follow the column they depend on; own columns are taken as they are; the
    share is spent to the last digit.
    """
    rng = np.random.default_rng(0)
    real = {"a": rng.integers(0, 3, 4000), "#b.a": np.zeros(4000, dtype=int), "?k": rng.integers(0, 2, 4000)}
    real["#b.a"] = np.where(rng.random(4000) < 0.8, real["a"], rng.integers(0, 3, 4000))
    window = ArrayWindow(real, {"a": 3, "#b.a": 3, "?k": 2}, seed=1)
    own = rng.permutation(np.repeat([0, 1, 2], [100, 500, 900]))
    fitted = External(codes={"a": own}).fit(
        window, rho=0.5, rows=4000.0, structure=Structure(), progress=lambda message, done: None
    )
    assert sum((Fraction(call.rho) for call in window.asked), Fraction()) == Fraction(0.5)
    assert not any("#b.a" not in c and "?k" not in c for call in window.asked for c in call.cliques)
    made = fitted.sample(1500, np.random.default_rng(1))
    assert np.bincount(made["a"]).tolist() == [100, 500, 900]
    joint = np.zeros((3, 3))
    np.add.at(joint, (made["a"], made["#b.a"]), 1)
    given = joint / joint.sum(axis=1, keepdims=True)
    assert given[1, 1] > given[0, 1] + 0.2
    assert given[2, 2] > given[0, 2] + 0.2
    np.testing.assert_allclose(fitted.marginal(("?k",)).sum(), 4000)
    state, arrays = fitted.state()
    again = restore("external", state, arrays).sample(70, np.random.default_rng(3))
    assert all((again[c] == v).all() for c, v in fitted.sample(70, np.random.default_rng(3)).items())


def test_external_without_a_share_for_derived_columns_is_refused() -> None:
    window = ArrayWindow({"a": [0, 1], "#b.a": [0, 1]}, {"a": 2, "#b.a": 2}, seed=1)
    with pytest.raises(BudgetError, match="positive share"):
        External(codes={"a": [0, 1]}).fit(
            window, rho=0.0, rows=None, structure=Structure(), progress=lambda message, done: None
        )
    assert window.asked == []


def test_external_rows_are_used_equally_often() -> None:
    window = ArrayWindow({"a": [0]}, {"a": 5})
    fitted = External(codes={"a": np.arange(5)}).fit(
        window, rho=0.0, rows=None, structure=Structure(), progress=lambda message, done: None
    )
    counts = np.bincount(fitted.sample(12, np.random.default_rng(0))["a"], minlength=5)
    assert sorted(counts.tolist()) == [2, 2, 2, 3, 3]
    assert sorted(fitted.sample(5, np.random.default_rng(0))["a"].tolist()) == [0, 1, 2, 3, 4]


def test_an_entry_point_brings_a_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("borrowed", "dpweave.tables.independent:REGISTRATION", mechanisms.ENTRY_POINTS),
        EntryPoint("broken", "dpweave.tables.independent:Independent", mechanisms.ENTRY_POINTS),
    )
    monkeypatch.setattr(mechanisms, "entry_points", lambda group: points if group == mechanisms.ENTRY_POINTS else ())
    assert "borrowed" in mechanisms.registered()
    assert isinstance(table_model("borrowed"), Independent)
    codes, shape = planted(200)
    fitted = fit("borrowed", ArrayWindow(codes, shape, seed=0), rho=0.1)
    state, arrays = fitted.state()
    assert restore("borrowed", state, arrays).rows == fitted.rows  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="not a dpweave"):
        table_model("broken")
    assert REGISTRATION.make is Independent


def test_answers_that_no_model_has_room_for_give_way_to_those_that_tell_more() -> None:
    """All pairs of eight columns are one clique of a model. Two of them go together, and these stay."""
    rng = np.random.default_rng(5)
    codes = {c: rng.integers(0, 5, 4000) for c in "abcdefgh"} | {"z": np.zeros(4000, dtype=np.int64)}
    codes["f"], codes["h"] = codes["a"], (codes["c"] + 1) % 5
    window = ArrayWindow(codes, dict.fromkeys("abcdefgh", 5) | {"z": 1}, seed=0)
    pairs = window.measure(list(combinations("abcdefgh", 2)), rho=50.0)
    small = Structure(max_model_cells=400)
    fitted = learned(pairs, window.shape, rows=4000.0, structure=small)
    assert sum(p.size for p in fitted.potentials.values()) <= 400
    for pair in (("a", "f"), ("c", "h")):
        assert np.abs(fitted.marginal(pair) - window.exact(pair)).sum() < 200
    asking = Asking(window, rho=1.0, rows=4000.0, structure=Structure(max_model_cells=400, measured=pairs))
    assert asking.cells_with(()) <= 400
