"""The engine against slow, obvious oracles: the full joint table, brute-force counts, mbi."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.errors import PlanError
from dpweave.tables import base, session
from dpweave.tables.base import Structure
from dpweave.tables.graphical import inference
from dpweave.tables.graphical.estimation import Factors, Measurement, Zero, estimate
from dpweave.tables.graphical.inference import Calibrated, Engine, Placement
from dpweave.tables.graphical.junction_tree import junction_tree, model_cells
from dpweave.tables.graphical.mbi_estimation import estimate_large
from dpweave.tables.graphical.row_generation import apportion, assign, generate
from dpweave.tables.graphical.sub_marginals import Projection
from tests.windows import ArrayWindow


def random_graph(rng: np.random.Generator, columns: int, extra: int) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    sizes = tuple(int(s) for s in rng.integers(1, 4, columns))
    cliques = [(v,) for v in range(columns)]
    shapes = rng.integers(1, min(columns, 3) + 1, extra)
    cliques += [tuple(int(v) for v in rng.choice(columns, int(k), replace=False)) for k in shapes]
    return sizes, cliques


def joint_table(engine: Engine, potentials: list[np.ndarray]) -> np.ndarray:
    """The distribution written out in full."""
    tree = engine.tree
    everything = tuple(range(len(tree.sizes)))
    total = np.zeros(tree.sizes)
    for clique, potential in zip(tree.cliques, potentials, strict=True):
        total = total + Placement(clique, everything, tree.sizes).spread(potential)
    joint = np.exp(total - total.max())
    return joint / joint.sum()


def project(joint: np.ndarray, variables: tuple[int, ...]) -> np.ndarray:
    return Placement(variables, tuple(range(joint.ndim)), joint.shape).gather(joint)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_junction_tree_is_one(seed: int, columns: int, extra: int) -> None:
    sizes, cliques = random_graph(np.random.default_rng(seed), columns, extra)
    tree = junction_tree(sizes, cliques)
    sets = [set(c) for c in tree.cliques]
    assert all(any(set(c) <= s for s in sets) for c in cliques)
    assert not any(a < b for a, b in itertools.permutations(map(frozenset, sets), 2))
    for i, (clique, parent, separator) in enumerate(zip(tree.cliques, tree.parents, tree.separators, strict=True)):
        assert parent < i
        assert clique[: len(separator)] == separator
        assert set(separator) == (set(clique) & sets[parent] if parent >= 0 else set())
    for v in range(columns):  # running intersection: the cliques with v hang together, so one of them is on top
        holders = [i for i, s in enumerate(sets) if v in s]
        assert sum(tree.parents[i] not in holders for i in holders) == 1
    assert model_cells(sizes, cliques) == tree.cells


@pytest.mark.parametrize("walk", [0, 1 << 40])
@pytest.mark.parametrize("seed", range(25))
def test_sum_product_equals_the_full_table(seed: int, walk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "WALK_CELLS", walk)
    rng = np.random.default_rng(seed)
    sizes, cliques = random_graph(rng, 7, int(rng.integers(0, 8)))
    engine = Engine(junction_tree(sizes, cliques))
    potentials = [3 * rng.normal(size=shape) for shape in engine.shapes]
    if seed % 2:
        for potential in potentials:  # impossible cells, but never all of them
            potential[rng.random(potential.shape) < 0.15] = -np.inf
            potential[(0,) * potential.ndim] = 0.0
    joint = joint_table(engine, potentials)
    model = engine.calibrate([p.copy() for p in potentials])
    for clique, marginal in zip(engine.tree.cliques, model.marginals, strict=True):
        np.testing.assert_allclose(marginal, project(joint, clique), atol=1e-12)
    wanted = [c for k in (1, 2, 3) for c in itertools.combinations(range(7), k)]
    found = model.tuples(3, wanted)
    for variables in wanted:
        np.testing.assert_allclose(found[variables], project(joint, variables), atol=1e-12)
    for variables in [(6, 0), (5, 1, 3), (2, 4, 0, 6), tuple(range(7)), ()]:
        np.testing.assert_allclose(model.marginal(variables), project(joint, variables), atol=1e-12)


def test_log_space_survives_potentials_that_overflow() -> None:
    engine = Engine(junction_tree((2, 2, 2), [(0, 1), (1, 2)]))
    model = engine.calibrate([np.array([[900.0, -900.0], [0.0, 900.0]])[: s[0], : s[1]] for s in engine.shapes])
    assert all(np.isfinite(m).all() for m in model.marginals)
    np.testing.assert_allclose([m.sum() for m in model.marginals], 1.0)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_projection_equals_direct_sums_and_its_adjoint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(s) for s in rng.integers(2, 9, 5))
    clique = tuple(int(v) for v in rng.permutation(5))
    targets = [tuple(int(v) for v in rng.permutation(5)[: rng.integers(1, 6)]) for _ in range(6)]
    projection = Projection(clique, targets, sizes)
    array = rng.random(tuple(sizes[v] for v in clique))
    gathered = projection.gather(array)
    given_arrays = [rng.random(tuple(sizes[v] for v in target)) for target in targets]
    for target, got in zip(targets, gathered, strict=True):
        np.testing.assert_allclose(got, Placement(target, clique, sizes).gather(array))
    spread = projection.spread(np.zeros_like(array), given_arrays)
    inner = sum(float((a * b).sum()) for a, b in zip(gathered, given_arrays, strict=True))
    np.testing.assert_allclose(float((spread * array).sum()), inner)


def random_measurements(
    rng: np.random.Generator, columns: int, extra: int, *, tree_only: bool
) -> tuple[tuple[int, ...], list[Measurement], float]:
    """Noisy marginals of random correlated rows: one-way ones, a random tree of pairs, and cycles on top."""
    sizes = tuple(int(s) for s in rng.integers(2, 5, columns))
    rows = 2000
    hidden = rng.integers(0, 4, rows)
    codes = [np.where(rng.random(rows) < 0.7, hidden, rng.integers(0, size, rows)) % size for size in sizes]
    order = [int(v) for v in rng.permutation(columns)]
    cliques: list[tuple[int, ...]] = [(v,) for v in range(columns)]
    cliques += [tuple(sorted((order[i], order[int(rng.integers(i))]))) for i in range(1, columns)]
    for _ in range(0 if tree_only else extra):
        new = tuple(sorted(int(v) for v in rng.choice(columns, min(columns, int(rng.integers(2, 4))), replace=False)))
        if model_cells(sizes, [*cliques, new]) < 20_000:
            cliques.append(new)
    measurements = {}
    for clique in cliques:
        sigma = float(rng.uniform(5, 40))
        dims = tuple(sizes[v] for v in clique)
        exact = np.bincount(np.ravel_multi_index([codes[v] for v in clique], dims), minlength=int(np.prod(dims)))
        noisy = exact.reshape(dims) + np.rint(rng.normal(0, sigma, dims))
        measurements[clique] = Measurement(clique, noisy, 1 / sigma**2)
    return sizes, list(measurements.values()), float(rows)


def loss_of(model: Calibrated, measurements: list[Measurement], total: float) -> float:
    return sum(
        0.5 * float((m.weight * (total * model.marginal(m.variables) - m.counts) ** 2).sum()) for m in measurements
    )


def test_estimate_reports_the_loss_it_reached_and_never_rises() -> None:
    sizes, measurements, total = random_measurements(np.random.default_rng(3), 6, 4, tree_only=False)
    losses = []
    for iterations in (0, 1, 3, 10, 30, 100, 300):
        result = estimate(sizes, measurements, total=total, iterations=iterations, tolerance=0.0)
        np.testing.assert_allclose(result.loss, loss_of(result.model, measurements, total), rtol=1e-9)
        assert result.iterations <= iterations
        losses.append(result.loss)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("seed", range(3))
def test_estimate_is_optimal(seed: int) -> None:
    """Moving towards any other distribution of the same tree raises the loss: the optimality of a convex problem."""
    rng = np.random.default_rng(seed)
    sizes, measurements, total = random_measurements(rng, 5, 3, tree_only=False)
    result = estimate(sizes, measurements, total=total, iterations=600, tolerance=1e-9)
    for _ in range(20):
        factors = Factors(sizes, [m.variables for m in measurements], ())
        other = factors.calibrate([3 * rng.normal(size=m.counts.shape) for m in measurements])
        slope = sum(
            float((m.weight * (total * p - m.counts) * total * (q - p)).sum())
            for m in measurements
            for p, q in [(result.model.marginal(m.variables), other.marginal(m.variables))]
        )
        assert slope > -1e-2 * result.loss


def test_warm_start_needs_fewer_iterations() -> None:
    sizes, measurements, total = random_measurements(np.random.default_rng(5), 8, 6, tree_only=False)
    before = estimate(sizes, measurements[:-1], total=total)
    cold = estimate(sizes, measurements, total=total, tolerance=1e-4)
    warm = estimate(sizes, measurements, total=total, tolerance=1e-4, start=before.potentials)
    assert warm.iterations < cold.iterations
    assert warm.loss == pytest.approx(cold.loss, rel=1e-2)


def test_zeros_stay_zero_whatever_was_measured() -> None:
    counts = np.array([[50.0, 50.0], [50.0, 50.0]])
    mask = np.array([[False, True], [False, False]])
    result = estimate((2, 2), [Measurement((0, 1), counts, 1.0)], total=200.0, zeros=[Zero((1, 0), mask.T)])
    law = result.model.marginal((0, 1))
    assert law[0, 1] == 0
    np.testing.assert_allclose(law.sum(), 1)
    np.testing.assert_allclose(law[~mask], 1 / 3, atol=1e-3)


def test_per_cell_weights_count() -> None:
    """A cell measured a hundred times more precisely is followed more closely."""
    measurement = Measurement((0,), np.array([80.0, 40.0]), np.array([100.0, 1.0]))
    law = estimate((2,), [measurement], total=100.0, tolerance=1e-10).model.marginal((0,))
    assert law[0] == pytest.approx(0.8, abs=0.005)


def mbi_loss(sizes: tuple[int, ...], measurements: list[Measurement], total: float, *, near: float) -> float:
    """Loss of mbi's mirror descent, which goes on from where it stopped while it is not
    near: on cycles it can be slow.
    """
    import mbi
    from mbi import estimation

    names = [str(v) for v in range(len(sizes))]
    domain = mbi.Domain(names, sizes)
    given_measurements = [
        mbi.LinearMeasurement(m.counts.ravel(), tuple(str(v) for v in m.variables), stddev=float(m.weight**-0.5))
        for m in measurements
    ]
    model, loss = None, np.inf
    for _ in range(12):
        model = estimation.MirrorDescent().estimate(
            domain, given_measurements, known_total=total, iters=2500, warm_start=model
        )
        loss = 0.0
        for m in measurements:
            counts = np.asarray(model.project(tuple(str(v) for v in m.variables)).datavector()).reshape(m.counts.shape)
            loss += 0.5 * float((m.weight * (counts - m.counts) ** 2).sum())
        if loss == pytest.approx(near, rel=1e-3):
            break
    return loss


@pytest.fixture(scope="module")
def oracle() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax = pytest.importorskip("jax", reason="mbi is the oracle: pip install 'dpweave[mbi]'")
        jax.config.update("jax_enable_x64", True)
        pytest.importorskip("mbi", reason="mbi is the oracle: pip install 'dpweave[mbi]'")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("seed", range(50))
def test_same_measurements_same_loss_as_mbi(seed: int) -> None:
    """Trees and cycles of up to 20 columns: our loss is mbi's to a thousandth, on either side."""
    rng = np.random.default_rng(seed)
    columns = 2 + seed % 19
    sizes, measurements, total = random_measurements(rng, columns, columns // 2, tree_only=seed % 2 == 0)
    result = estimate(sizes, measurements, total=total, iterations=600, tolerance=1e-6)
    assert result.loss == pytest.approx(mbi_loss(sizes, measurements, total, near=result.loss), rel=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("seed", [3, 4])
def test_mbi_as_an_engine_gives_the_same_distribution(seed: int) -> None:
    """With weights per cell and impossible combinations, as merged categories and structural zeros bring them."""
    rng = np.random.default_rng(seed)
    sizes, measurements, total = random_measurements(rng, 5, 3, tree_only=seed % 2 == 0)
    first = measurements[0]
    measurements[0] = Measurement(first.variables, first.counts, first.weight * rng.uniform(0.5, 2, first.counts.shape))
    mask = np.zeros((sizes[1], sizes[0]), dtype=bool)
    mask[0, 1] = True
    zeros = [Zero((1, 0), mask)]
    ours = estimate(sizes, measurements, total=total, zeros=zeros, iterations=600, tolerance=1e-7)
    theirs = estimate_large(sizes, measurements, total=total, zeros=zeros, iterations=2500)
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-3)
    assert theirs.model.marginal((1, 0))[0, 1] == 0
    for m in measurements:
        np.testing.assert_allclose(theirs.model.marginal(m.variables), ours.model.marginal(m.variables), atol=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("name", ["mst", "aim"])
def test_a_model_too_large_for_our_engine_is_left_to_mbi(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here anything beyond 30 cells counts as large."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 3000)
    codes = {"a": a, "b": np.where(rng.random(3000) < 0.8, a, rng.integers(0, 4, 3000)), "c": rng.integers(0, 5, 3000)}
    used = []
    for module in (base, session):
        monkeypatch.setattr(module, "MAX_MODEL_CELLS", 30)
    large = session.estimate_large
    monkeypatch.setattr(session, "estimate_large", lambda *args, **kwargs: used.append(1) or large(*args, **kwargs))
    window = ArrayWindow(codes, {"a": 4, "b": 4, "c": 5}, seed=1)
    options = {"rounds": 2.0} if name == "aim" else {}
    fitted = base.table_model(name, **options).fit(
        window, rho=2.0, rows=3000.0, structure=Structure(max_model_cells=1600), progress=lambda message, done: None
    )
    assert used
    made = fitted.sample(3000, np.random.default_rng(0))
    assert (made["a"] == made["b"]).mean() > 0.7


def test_a_model_too_large_for_our_engine_needs_mbi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_mbi_version", lambda: None)
    with pytest.raises(PlanError, match=r"4,194,304 cells is more than the 2,097,152.*pip install 'dpweave\[mbi\]'"):
        Structure(max_model_cells=1 << 22)
    assert Structure(max_model_cells=1 << 21).max_model_cells == 1 << 21


@pytest.mark.parametrize(("found", "fits"), [("1.1.0", False), ("0.9", False), ("2.0.0", True), ("10.1", True)])
def test_mbi_must_be_new_enough(found: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_mbi_version", lambda: found)
    if fits:
        assert Structure(max_model_cells=1 << 22).max_model_cells == 1 << 22
        return
    with pytest.raises(
        PlanError, match=rf"mbi {found} is here, but version 2 is needed; .*pip install 'dpweave\[mbi\]'"
    ):
        Structure(max_model_cells=1 << 22)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_apportion_rounds_up_or_down_and_adds_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, cells = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    shares = rng.random((groups, cells)) * (rng.random((groups, cells)) < 0.7)
    shares[:, 0] += 1e-3
    sizes = rng.integers(0, 50, groups)
    counts = apportion(sizes, shares, rng)
    expected = sizes[:, None] * shares / shares.sum(axis=1, keepdims=True)
    assert (counts.sum(axis=1) == sizes).all()
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert (counts[shares == 0] == 0).all()


def test_apportion_is_unbiased_and_cancels_across_groups() -> None:
    rng = np.random.default_rng(0)
    shares = np.array([[0.15, 0.25, 0.6], [0.5, 0.3, 0.2]])
    sizes = np.array([3, 5])
    draws = np.array([apportion(sizes, shares, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), sizes[:, None] * shares, atol=0.03)
    single = np.array(
        [apportion(np.ones(256, dtype=np.int64), np.full((256, 2), 0.5), rng)[:, 0].sum() for _ in range(50)]
    )
    assert np.abs(single - 128).max() <= 4  # independent draws have a standard deviation of 8


def test_rows_follow_the_model_more_closely_than_draws() -> None:
    rng = np.random.default_rng(1)
    engine = Engine(junction_tree((3, 4, 2, 3), [(0, 1), (1, 2), (2, 3)]))
    model = engine.calibrate([rng.normal(size=shape) for shape in engine.shapes])
    rows = 5000
    codes = generate(model, rows, rng)
    for pair in [(0, 1), (1, 2), (2, 3)]:
        law = model.marginal(pair)
        made = np.bincount(np.ravel_multi_index([codes[v] for v in pair], law.shape), minlength=law.size) / rows
        independent = np.sqrt(law * (1 - law) / rows).sum()
        assert np.abs(made.reshape(law.shape) - law).sum() < 0.3 * independent
    far = model.marginal((0, 3))
    made = np.bincount(np.ravel_multi_index([codes[0], codes[3]], far.shape), minlength=far.size) / rows
    np.testing.assert_allclose(made.reshape(far.shape), far, atol=0.03)


def test_assign_depends_on_nothing_but_group() -> None:
    """Given the group, the value is independent of the order of rows: halves of a group get the same shares."""
    rng = np.random.default_rng(2)
    group = np.repeat([0, 1], 4000)
    value = assign(group, np.array([[0.3, 0.7], [0.9, 0.1]]), rng)
    assert value[:4000].sum() == 2800
    assert value[4000:].sum() == 400
    assert abs(int(value[:2000].sum()) - 1400) < 120
