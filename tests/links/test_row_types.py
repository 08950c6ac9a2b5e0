from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpweave.errors import UsageError
from dpweave.links.row_types import Layout, LinkOperator, RowTypes
from dpweave.measure.cross_workloads import Workload, cross_workloads
from tests.links.random_relations import Relation, answers_from_matrix, random_relation


def operators(relation: Relation, workloads: tuple[Workload, ...]) -> tuple[LinkOperator, LinkOperator]:
    left, right = sorted({c for w in workloads for c in w.left}), sorted({c for w in workloads for c in w.right})
    collapsed = LinkOperator(
        RowTypes.of(relation.left, left, shape=relation.shape),
        RowTypes.of(relation.right, right, shape=relation.shape),
        workloads,
    )
    full = LinkOperator(
        RowTypes.each_row(relation.left, left, shape=relation.shape),
        RowTypes.each_row(relation.right, right, shape=relation.shape),
        workloads,
    )
    return collapsed, full


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30))
def test_types_group_equal_rows(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows)
    types = RowTypes.of({"a": table[:, 0], "b": table[:, 1]}, ["a", "b"], shape={"a": 3, "b": 4})
    assert types.count == len(set(rows))
    np.testing.assert_array_equal(types.codes[types.of_row], table)
    np.testing.assert_array_equal(np.bincount(types.of_row), types.multiplicity)
    order, starts = types.members
    for t in range(types.count):
        assert {rows[i] for i in order[starts[t] : starts[t + 1]]} == {tuple(types.codes[t])}


def test_no_columns_make_one_type() -> None:
    types = RowTypes.of({"a": np.array([0, 1, 1])}, [], shape={})
    assert types.count == 1
    assert types.multiplicity.tolist() == [3]


@pytest.mark.parametrize("seed", range(5))
def test_operators_agree_with_the_query_by_query_oracle(seed: int) -> None:
    relation = random_relation(seed=seed, left_rows=14, right_rows=11, links=20)
    workloads = (*cross_workloads(list(relation.left), list(relation.right), k=3), Workload(("l1",), ()))
    collapsed, full = operators(relation, workloads)
    value = np.random.default_rng(seed).random(collapsed.shape)
    expanded = value[collapsed.left.of_row][:, collapsed.right.of_row]
    answers = collapsed.apply(value)
    np.testing.assert_allclose(answers, full.apply(expanded), atol=1e-12)
    for workload, block in collapsed.unstack(answers).items():
        oracle = answers_from_matrix(workload, relation.left, relation.right, expanded, shape=relation.shape)
        np.testing.assert_allclose(block.ravel(), oracle.ravel(), atol=1e-12)
    r = np.random.default_rng(seed + 100).normal(size=answers.shape)
    back = collapsed.adjoint(r)
    np.testing.assert_allclose(back[collapsed.left.of_row][:, collapsed.right.of_row], full.adjoint(r), atol=1e-12)
    assert np.vdot(answers, r) == pytest.approx(np.vdot(value * collapsed.multiplicity, back), rel=1e-12)


def test_wide_domains_take_the_sparse_path_with_the_same_result() -> None:
    relation = random_relation(
        seed=9, left_rows=40, right_rows=30, links=20, left_shape=(50, 60), right_shape=(2, 2), planted=0.0
    )
    collapsed, full = operators(relation, cross_workloads(["l0", "l1"], ["r0", "r1"], k=3))
    value = np.random.default_rng(0).random(full.shape)
    explicit = full.explicit() @ value.ravel()
    np.testing.assert_allclose(
        np.concatenate([x.ravel() for x in full.unstack(full.apply(value)).values()]), explicit, atol=1e-12
    )
    assert collapsed.shape[1] == 4


@pytest.mark.parametrize("seed", range(12))
def test_any_workloads_in_any_order_agree_with_the_oracle(seed: int) -> None:
    """Blocks that belong to no workload are not computed, whichever side is summed up first."""
    rng = np.random.default_rng(seed)
    rows = (60, 4) if seed % 2 else (4, 60)
    relation = random_relation(
        seed=seed, left_rows=rows[0], right_rows=rows[1], links=20, left_shape=(3, 30, 4), right_shape=(2, 40, 3)
    )
    every = cross_workloads(list(relation.left), list(relation.right), k=int(rng.integers(2, 5)))
    every = (*every, Workload((), ("r1",)), Workload(("l1", "l2"), ()))
    chosen = tuple(every[i] for i in rng.permutation(len(every))[: rng.integers(1, len(every) + 1)])
    _, full = operators(relation, chosen)
    value = rng.random(full.shape)
    found = full.unstack(full.apply(value))
    explicit = full.explicit()
    np.testing.assert_allclose(np.concatenate([x.ravel() for x in found.values()]), explicit @ value.ravel(), atol=1e-9)
    r = {w: rng.normal(size=x.shape) for w, x in found.items()}
    back = explicit.T @ np.concatenate([x.ravel() for x in r.values()])
    np.testing.assert_allclose(full.laid_out(full.stack(r)).ravel(), back, atol=1e-9)


def test_most_of_the_matrix_of_answers_is_never_computed() -> None:
    """Of three columns at a time, pairs of one side go with single columns of the other."""
    sizes = [{f"{side}{i}": 8 for i in range(6)} for side in "lr"]
    layout = Layout.of(cross_workloads(list(sizes[0]), list(sizes[1]), k=3), *sizes)
    computed = sum((g.rows.stop - g.rows.start) * g.end for g in layout.groups)
    assert layout.mask.sum() <= computed < 0.15 * layout.mask.size
    assert set(layout.blocks) == set(layout.workloads)
    assert Layout.of([Workload(("a",), ("b",))], {"a": 2}, {"b": 0}).shape == (2, 0)


def test_stack_and_unstack_are_inverse() -> None:
    relation = random_relation(seed=1, left_rows=6, right_rows=5, links=3)
    workloads = cross_workloads(list(relation.left), list(relation.right), k=2)
    operator, _ = operators(relation, workloads)
    values = {w: np.random.default_rng(3).random([relation.shape[c] for c in w.columns]) for w in workloads}
    for workload, block in operator.unstack(operator.stack(values)).items():
        np.testing.assert_array_equal(block.ravel(), values[workload].ravel())


def test_codes_outside_the_domain_and_unknown_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="domain"):
        RowTypes.of({"a": np.array([0, 3])}, ["a"], shape={"a": 3})
    with pytest.raises(UsageError, match="did you mean 'age'"):
        RowTypes.of({"age": np.array([0])}, ["aeg"], shape={"age": 3})


@pytest.mark.parametrize("sizes", [(3, 4), (1000, 1000, 1000), (1 << 40, 1 << 40, 5), (1,), ()])
def test_types_by_numbers_are_those_of_sorted_rows(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    few = [rng.integers(0, s, min(s, 3)) for s in sizes]
    codes = {str(i): rng.choice(values, 200) for i, values in enumerate(few)}
    types = RowTypes.of(codes, list(codes), shape={str(i): s for i, s in enumerate(sizes)}, rows=200)
    table = np.stack(list(codes.values()), axis=1) if codes else np.zeros((200, 0), dtype=np.int64)
    found, inverse, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    assert np.array_equal(types.codes, found)
    assert np.array_equal(types.of_row, inverse.reshape(-1))
    assert np.array_equal(types.multiplicity, counts)
