from __future__ import annotations

from math import comb

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.measure.cross_workloads import Workload, answers_from_links, cross_workloads
from tests.links.random_relations import answers_from_matrix, random_relation


@pytest.mark.parametrize("k", [2, 3, 4])
def test_number_of_workloads(k: int) -> None:
    left, right = ["a", "b", "c"], [f"g{i}" for i in range(18)]
    workloads = cross_workloads(left, right, k=k)
    assert len(workloads) == len(set(workloads)) == comb(21, k) - comb(3, k) - comb(18, k)
    assert all(w.left and w.right and w.k == k for w in workloads)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_answers_from_links_and_from_matrix_agree_exactly(k: int) -> None:
    relation = random_relation(seed=k, left_rows=12, right_rows=9, links=40)
    matrix = np.zeros((12, 9))
    matrix[relation.links[:, 0], relation.links[:, 1]] = 1.0
    for workload in cross_workloads(list(relation.left), list(relation.right), k=k):
        links = answers_from_links(workload, relation.left, relation.right, relation.links, shape=relation.shape)
        full = answers_from_matrix(workload, relation.left, relation.right, matrix, shape=relation.shape)
        assert links.sum() == 40
        np.testing.assert_array_equal(links, full)


@pytest.mark.parametrize(
    ("left", "right", "k"), [(["a"], ["b"], 1), (["a"], ["b"], 3), ([], ["b", "c"], 2), (["a", "c"], [], 2)]
)
def test_impossible_workloads_are_refused(left: list[str], right: list[str], k: int) -> None:
    with pytest.raises(UsageError):
        cross_workloads(left, right, k=k)


def test_a_column_may_not_occur_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        Workload(("a",), ("a",))
