"""Sum-product on a junction tree: from log-potentials to every clique's marginal, and from those to any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

Scalar = TypeVar("Scalar", bound=np.generic)

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Sequence

    import numpy.typing as npt

    from dpweave.arrays import FloatArray
    from dpweave.tables.graphical.junction_tree import JunctionTree, Variables


class Placement:
    """How an array over ``variables`` lies in a clique: ``spread`` broadcasts it,
    ``gather`` sums a clique down to it.
    """

    def __init__(self, variables: Variables, clique: Variables, sizes: Sequence[int]) -> None:
        inside = [v for v in clique if v in variables]
        self.order = tuple(variables.index(v) for v in inside)
        self.inverse = tuple(inside.index(v) for v in variables)
        self.shape = tuple(sizes[v] for v in variables)
        self.spread_shape = tuple(sizes[v] if v in variables else 1 for v in clique)
        self.summed = tuple(axis for axis, v in enumerate(clique) if v not in variables)
        self.sorted = self.order == tuple(range(len(variables)))

    def spread(self, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """View of ``array`` that broadcasts against the clique."""
        return (array if self.sorted else array.transpose(self.order)).reshape(self.spread_shape)

    def gather(self, clique: FloatArray) -> FloatArray:
        """Sum of ``clique`` over the variables that are not ours, axes in our order."""
        summed = np.add.reduce(clique, axis=self.summed) if self.summed else clique
        return summed if self.sorted else summed.transpose(self.inverse)


class Engine:
    """Work plan for sum-product on one junction tree."""

    def __init__(self, tree: JunctionTree) -> None:
        self.tree = tree
        sizes = tree.sizes
        self.shapes = [tuple(sizes[v] for v in clique) for clique in tree.cliques]
        self.flat = [
            (math.prod(sizes[v] for v in sep), math.prod(sizes[v] for v in clique[len(sep) :]))
            for sep, clique in zip(tree.separators, tree.cliques, strict=True)
        ]
        self.up = [
            Placement(sep, tree.cliques[parent], sizes) if parent >= 0 else None
            for sep, parent in zip(tree.separators, tree.parents, strict=True)
        ]

    def calibrate(self, potentials: Sequence[FloatArray]) -> Calibrated:
        r"""Marginals of :math:`p(x) \propto \exp(\sum_c \theta_c(x_c))`.

        Upwards, in log space, each clique is split into a message to its parent and the conditional law of its own
        variables given the separator; downwards conditionals are multiplied by the separator's law. One ``exp`` per
        cell. ``potentials`` are overwritten. A potential of minus infinity is an impossible cell.
        """
        conditionals: list[FloatArray] = [_NONE] * len(potentials)
        for c in range(len(potentials) - 1, -1, -1):
            belief = potentials[c].reshape(self.flat[c])
            top = np.maximum.reduce(belief, axis=1, keepdims=True)
            np.copyto(top, 0.0, where=np.isneginf(top))
            belief = np.subtract(belief, top, out=belief)
            np.exp(belief, out=belief)
            total = np.add.reduce(belief, axis=1, keepdims=True)
            placement = self.up[c]
            if placement is not None:
                with np.errstate(divide="ignore"):
                    message = np.log(total) + top
                parent = potentials[self.tree.parents[c]]
                parent += placement.spread(message.reshape(placement.shape))
            np.copyto(total, 1.0, where=total == 0)
            belief /= total
            conditionals[c] = belief
        marginals: list[FloatArray] = []
        for c, conditional in enumerate(conditionals):
            placement = self.up[c]
            if placement is None:
                marginals.append(conditional.reshape(self.shapes[c]))
            else:
                separator = placement.gather(marginals[self.tree.parents[c]])
                marginals.append((conditional * separator.reshape(-1, 1)).reshape(self.shapes[c]))
        return Calibrated(self, tuple(conditionals), tuple(marginals))


_NONE: FloatArray = np.zeros(0)
WALK_CELLS = 1 << 25
"""Cells that walking the tree for all tuples may touch."""


def _summed(names: list[int], array: FloatArray, keep: frozenset[int]) -> tuple[list[int], FloatArray]:
    axes = tuple(i for i, v in enumerate(names) if v not in keep)
    return [v for v in names if v in keep], np.add.reduce(array, axis=axes)


def _contract(left: tuple[list[int], FloatArray], right: tuple[list[int], FloatArray]) -> tuple[list[int], FloatArray]:
    """Product of two factors over the union of their variables, the left's first."""
    names, array = left
    others, factor = right
    union = names + [v for v in others if v not in names]
    order = [others.index(v) for v in union if v in others]
    sizes = dict(zip(others, factor.shape, strict=True))
    spread = factor.transpose(order).reshape([sizes.get(v, 1) for v in union])
    return union, array.reshape(array.shape + (1,) * (len(union) - len(names))) * spread


@dataclass(frozen=True)
class Calibrated:
    """A distribution: per clique its marginal, and the conditional law given its separator (two axes)."""

    engine: Engine
    conditionals: tuple[FloatArray, ...]
    marginals: tuple[FloatArray, ...]

    @cached_property
    def _neighbours(self) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in self.marginals]
        for child, parent in enumerate(self.engine.tree.parents):
            if parent >= 0:
                lists[child].append(parent)
                lists[parent].append(child)
        return tuple(map(tuple, lists))

    def marginal(self, variables: Variables) -> FloatArray:
        """Probabilities over ``variables``: one clique's where they share one, else joined along the tree."""
        wanted = frozenset(variables)
        if not variables:
            return np.ones(())
        if any(wanted <= clique for clique in self._sets):
            ordered, array = self._inside(self.engine.tree.host(wanted), wanted)
        else:
            ordered, array = self._joined(wanted)
        return array.transpose(tuple(ordered.index(v) for v in variables))

    @cached_property
    def _sets(self) -> tuple[frozenset[int], ...]:
        return tuple(map(frozenset, self.engine.tree.cliques))

    @cached_property
    def _cache(self) -> dict[tuple[int, frozenset[int]], tuple[Variables, FloatArray]]:
        return {}

    def _inside(self, clique: int, variables: frozenset[int]) -> tuple[Variables, FloatArray]:
        """Marginal of one clique over some of its variables, in the clique's order, remembered."""
        key = (clique, variables)
        if key not in self._cache:
            order = self.engine.tree.cliques[clique]
            array = self.marginals[clique]
            # From the smallest remembered marginal that has them all.
            for (other, larger), (kept, smaller) in self._cache.items():
                if other == clique and variables <= larger and smaller.size < array.size:
                    order, array = kept, smaller
            axes = tuple(i for i, v in enumerate(order) if v not in variables)
            self._cache[key] = (tuple(v for v in order if v in variables), np.add.reduce(array, axis=axes))
        return self._cache[key]

    def _joined(self, wanted: frozenset[int]) -> tuple[Variables, FloatArray]:
        """Variable elimination over the smallest subtrees that cover ``wanted``, leaves first."""
        tree = self.engine.tree
        keep = self._covering(wanted)
        factors: dict[int, tuple[list[int], FloatArray]] = {}
        roots: list[tuple[list[int], FloatArray]] = []
        for c in sorted(keep, reverse=True):  # parents come first in the tree, so children come first here
            above = frozenset(tree.separators[c]) if tree.parents[c] in keep else frozenset()
            below = [frozenset(tree.separators[o]) for o in keep if tree.parents[o] == c]
            order, array = self._inside(c, (wanted & self._sets[c]).union(above, *below))
            if above:
                axes = tuple(i for i, v in enumerate(order) if v not in above)
                given = np.add.reduce(array, axis=axes, keepdims=True)
                array = np.divide(array, given, out=np.zeros_like(array), where=given > 0)
            names, product = list(order), array
            for child in [o for o in keep if tree.parents[o] == c]:
                names, product = _contract((names, product), factors.pop(child))
            names, product = _summed(names, product, wanted | above)
            if above:
                factors[c] = (names, product)
            else:
                roots.append((names, product))
        names, product = roots[0]
        for other, array in roots[1:]:
            names, product = names + other, np.multiply.outer(product, array)
        return tuple(names), product

    def _covering(self, wanted: frozenset[int]) -> set[int]:
        """Cliques left when leaves that hold no wanted variable of their own are pruned again and again."""
        keep = set(range(len(self._sets)))
        holders = {v: sum(v in clique for clique in self._sets) for v in wanted}
        stack = list(keep)
        while stack:
            c = stack.pop()
            if c not in keep or sum(o in keep for o in self._neighbours[c]) > 1:
                continue
            if all(holders[v] > 1 for v in wanted & self._sets[c]):
                keep.discard(c)
                for v in wanted & self._sets[c]:
                    holders[v] -= 1
                stack.extend(self._neighbours[c])
        return keep

    def singles(self) -> list[FloatArray]:
        """Every one-way marginal."""
        return [self.marginal((v,)) for v in range(len(self.engine.tree.sizes))]

    def tuples(self, order: int, wanted: Collection[Variables]) -> dict[Variables, FloatArray]:
        """The marginals over increasing variables of length 1, 2 and up to ``order`` (at most 3) that are ``wanted``.

        From each variable the tree is walked once for the pairs, and once more, with the first variable as a batch
        axis, for the triples: tens of microseconds per marginal, where eliminating variables for each takes hundreds.
        With large cliques that would move too much memory, and each is computed by itself.
        """
        tree = self.engine.tree
        if sum(tree.sizes) ** (order - 1) * tree.cells > WALK_CELLS:
            return {v: self.marginal(v) for v in wanted if len(v) <= order}
        found: dict[Variables, FloatArray] = {(v,): p for v, p in enumerate(self.singles()) if (v,) in wanted}
        top = [m[np.newaxis] for m in self.marginals]
        links = self._links(top)
        for a in range(len(tree.sizes) if order > 1 else 0):
            joints = self._walk(a, top, links)
            self._collect(joints, (a,), wanted, found)
            if order < 3 or a + 2 >= len(tree.sizes):
                continue
            batch = [joint[0] for joint in joints]
            conditioned = self._links(batch)
            for b in range(a + 1, len(tree.sizes) - 1):
                self._collect(self._walk(b, batch, conditioned), (a, b), wanted, found)
        return found

    @cached_property
    def _clique_of(self) -> dict[int, int]:
        clique_of: dict[int, int] = {}
        for c, clique in enumerate(self.engine.tree.cliques):
            for v in clique:
                clique_of.setdefault(v, c)
        return clique_of

    @cached_property
    def _steps(self) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Per direction from clique to clique: axes to sum there, axes to sum here, shape of the separator here."""
        tree = self.engine.tree
        steps = {}
        for child, parent in enumerate(tree.parents):
            if parent < 0:
                continue
            separator = set(tree.separators[child])
            for here, there in ((child, parent), (parent, child)):
                away = tuple(i for i, v in enumerate(tree.cliques[here]) if v not in separator)
                own = tuple(i for i, v in enumerate(tree.cliques[there]) if v not in separator)
                spread = tuple(tree.sizes[v] if v in separator else 1 for v in tree.cliques[there])
                steps[here, there] = (away, own, spread)
        return steps

    def _links(self, marginals: Sequence[FloatArray]) -> dict[tuple[int, int], FloatArray]:
        """Law of each clique given the separator towards a neighbour, batch axis first."""
        links = {}
        for (here, there), (_, own, _) in self._steps.items():
            joint = marginals[there]
            separator = np.add.reduce(joint, axis=tuple(i + 1 for i in own), keepdims=True)
            links[here, there] = np.divide(joint, separator, out=np.zeros_like(joint), where=separator > 0)
        return links

    def _walk(
        self, a: int, marginals: Sequence[FloatArray], links: dict[tuple[int, int], FloatArray]
    ) -> list[FloatArray]:
        """Joint law of (batch, variable ``a``, clique) for every clique."""
        size = self.engine.tree.sizes[a]
        start = self._clique_of[a]
        axis = self.engine.tree.cliques[start].index(a)
        dims = [1] * (marginals[start].ndim - 1)
        dims[axis] = size
        seed = marginals[start][:, np.newaxis] * np.eye(size).reshape(size, *dims)
        joints: dict[int, FloatArray] = {start: seed}
        stack = [start]
        while stack:
            here = stack.pop()
            joint = joints[here]
            for there in self._neighbours[here]:
                if there not in joints:
                    away, _, spread = self._steps[here, there]
                    separator = np.add.reduce(joint, axis=tuple(i + 2 for i in away))
                    joints[there] = separator.reshape(*separator.shape[:2], *spread) * links[here, there][:, np.newaxis]
                    stack.append(there)
        if len(joints) < len(marginals):  # other components are independent of a, given the batch variable
            law = np.add.reduce(seed, axis=tuple(range(2, seed.ndim)))
            total = np.add.reduce(law, axis=1, keepdims=True)
            given = np.divide(law, total, out=np.zeros_like(law), where=total > 0)
            for c in set(range(len(marginals))) - set(joints):
                joints[c] = given.reshape(*given.shape, *([1] * (marginals[c].ndim - 1))) * marginals[c][:, np.newaxis]
        return [joints[c] for c in range(len(marginals))]

    def _collect(
        self,
        joints: Sequence[FloatArray],
        prefix: Variables,
        wanted: Container[Variables],
        found: dict[Variables, FloatArray],
    ) -> None:
        for v in range(prefix[-1] + 1, len(self.engine.tree.sizes)):
            key = (*prefix, v)
            if key in wanted:
                c = self._clique_of[v]
                axis = self.engine.tree.cliques[c].index(v) + 2
                joint = joints[c]
                marginal = np.add.reduce(joint, axis=tuple(i for i in range(2, joint.ndim) if i != axis))
                found[key] = marginal if len(prefix) == 2 else marginal[0]
