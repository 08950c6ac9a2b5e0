"""Junction trees: which joint tables a model over given cliques needs, how they hang together, how big they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Variables = tuple[int, ...]


@dataclass(frozen=True)
class JunctionTree:
    """Cliques of variables in an order in which parents come first; a root has parent -1 and an empty separator.

    A clique lists the variables of its separator first, in the order of the parent, then its own. So a message to
    the parent is a reshape, and the sum over a clique's own variables runs over trailing axes.
    """

    sizes: tuple[int, ...]
    cliques: tuple[Variables, ...]
    parents: tuple[int, ...]
    separators: tuple[Variables, ...]

    @cached_property
    def cells(self) -> int:
        """Number of cells of all cliques together."""
        return sum(math.prod(self.sizes[v] for v in clique) for clique in self.cliques)

    def host(self, variables: Iterable[int]) -> int:
        """Position of the smallest clique that contains ``variables``."""
        wanted = set(variables)
        hosts = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(hosts, key=lambda i: math.prod(self.sizes[v] for v in self.cliques[i]))


def eliminate(sizes: Sequence[int], cliques: Iterable[Iterable[int]]) -> list[tuple[int, int]]:
    """Greedy elimination: each variable with the bit mask of its neighbours at that time, smallest new clique first.

    Ties go to the variable that adds fewer edges, then to the lower number, so the order is deterministic.
    """
    neighbours = [0] * len(sizes)
    for clique in cliques:
        mask = 0
        for v in clique:
            mask |= 1 << v
        for v in clique:
            neighbours[v] |= mask
    logs = [math.log(size) for size in sizes]
    for v in range(len(sizes)):
        neighbours[v] &= ~(1 << v)
    weight = [_weight(logs, neighbours[v] | 1 << v) for v in range(len(sizes))]
    left = set(range(len(sizes)))
    order: list[tuple[int, int]] = []
    while left:
        v = min(left, key=lambda u: (weight[u], u))
        around = neighbours[v]
        order.append((v, around))
        left.discard(v)
        for u in _bits(around):
            neighbours[u] = (neighbours[u] | around) & ~(1 << u) & ~(1 << v)
            weight[u] = _weight(logs, neighbours[u] | 1 << u)
    return order


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _weight(logs: Sequence[float], mask: int) -> float:
    return sum(logs[v] for v in _bits(mask))


def model_cells(sizes: Sequence[int], cliques: Iterable[Iterable[int]]) -> int:
    """Cells of the junction tree over ``cliques``, found without building it; nothing is allocated."""
    total = 0
    masks: list[int] = []
    for v, around in eliminate(sizes, cliques):
        mask = around | 1 << v
        if not any(mask & other == mask for other in masks):
            masks.append(mask)
            total += math.prod(sizes[u] for u in _bits(mask))
    return total


def junction_tree(sizes: Sequence[int], cliques: Iterable[Iterable[int]]) -> JunctionTree:
    """Junction tree (a forest where the graph is not connected) whose cliques contain every given one.

    >>> tree = junction_tree((2, 3, 2), [(0, 1), (1, 2)])
    >>> tree.cliques, tree.parents
    (((2, 1), (1, 0)), (-1, 0))
    """
    order = eliminate(sizes, cliques)
    position = {v: i for i, (v, _) in enumerate(order)}
    # In reverse elimination order the parent of v's clique is the clique of its first eliminated neighbour,
    # which contains all of them; a clique inside its child's is absorbed by growing it.
    members: list[list[int]] = []
    parents: list[int] = []
    separators: list[Variables] = []
    clique_of: dict[int, int] = {}
    for v, around in reversed(order):
        near = _bits(around)
        if not near:
            clique_of[v] = len(members)
            members.append([v])
            parents.append(-1)
            separators.append(())
            continue
        parent = clique_of[min(near, key=position.__getitem__)]
        inside = set(near)
        if inside == set(members[parent]):
            members[parent].append(v)
            clique_of[v] = parent
            continue
        clique_of[v] = len(members)
        separator = tuple(u for u in members[parent] if u in inside)
        members.append([*separator, v])
        parents.append(parent)
        separators.append(separator)
    return JunctionTree(tuple(sizes), tuple(map(tuple, members)), tuple(parents), tuple(separators))
