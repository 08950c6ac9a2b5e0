r"""The kernel of exchanges: two rows swap where they lead to, as often as that improves an objective.

Row i leads to ``ends[i]``. An exchange swaps the ends of two rows, so that every row keeps its one end and every end
keeps its number of rows. All else is a value that is handed in:

- an :class:`Objective` proposes exchanges, and says by how much each would change its loss;
- each :class:`Constraint` says which exchanges are allowed.

A round makes many exchanges at once, the best first. Those that share a row, or a label that an objective or a
constraint names (``conflicts``), are never made together. Changes are those of one exchange made alone. So a round
asks for the change of all of them together, of the better half, of the better quarter, as long as that is better, and
makes the best of these batches. The loss only falls.

Cost: a round is linear in what is proposed. What may be proposed in a round, and the number of rounds, are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray, IntArray

Mask = np.ndarray[Any, Any]


class Exchanges(NamedTuple):
    """Rows ``one``, each with its partner among rows ``two``, and the ends that both have before they exchange them."""

    one: IntArray
    two: IntArray
    ends: IntArray
    others: IntArray

    @classmethod
    def between(cls, one: IntArray, two: IntArray, ends: IntArray) -> Exchanges:
        """Pair up rows that lead to ``ends`` now."""
        return cls(one, two, ends[one], ends[two])

    def between_owners(self, above: IntArray) -> Exchanges:
        """The same exchanges as ones between those that own the ends; ``above`` says who does."""
        return Exchanges(self.one, self.two, above[self.ends], above[self.others])

    def some(self, which: IntArray | Mask | slice) -> Exchanges:
        """Only these of them."""
        return Exchanges(*(x[which] for x in self))


class Objective(Protocol):
    """What exchanges shall improve, for the ends as they are now. It never changes: ``after`` returns another one."""

    @property
    def loss(self) -> float:
        """How far off the ends are; it is never negative."""
        ...

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Pairs of rows that may exchange ends, at random; a partner of -1 is nobody. None at all: it is done."""
        ...

    def change(self, some: Exchanges) -> FloatArray:
        """By how much each exchange, made alone, changes the loss. Only what is below zero is made.

        An objective may prefer some of the exchanges that leave the loss as it is, by a change next to zero.
        """
        ...

    def conflicts(self, some: Exchanges) -> IntArray | None:
        """Labels of each exchange, as ``(exchanges, labels)``: of two that share one, only the better is made."""
        ...

    def most(self, some: Exchanges) -> int:
        """How many of these, which come the best first, may be made at once."""
        ...

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """The objective after all of these, and the change that they bring together."""
        ...


class Constraint(Protocol):
    """What exchanges must keep, for the ends as they are now."""

    def allows(self, some: Exchanges) -> Mask:
        """Which of the exchanges keep it, each made alone."""
        ...

    def conflicts(self, some: Exchanges) -> IntArray | None:
        """As those of an objective: exchanges without a common label keep the constraint together, too."""
        ...

    def after(self, some: Exchanges) -> Self:
        """The constraint after all of these."""
        ...


O = TypeVar("O", bound=Objective)  # noqa: E741


class Effort(NamedTuple):
    """When to stop: after so many ``rounds``, or after more than ``patience`` rounds in a row each of which lowers the
    loss by less than the share ``enough`` of it. With 0, a round that makes any exchange is enough.
    """

    rounds: int
    patience: int
    enough: float = 0.0


@dataclass(frozen=True)
class Exchanged(Generic[O]):
    """Ends after the exchanges, the objective and the constraints with them, and how many were made."""

    ends: IntArray
    objective: O
    keep: tuple[Constraint, ...]
    made: int
    rounds: int


def exchange(
    ends: IntArray, keep: Sequence[Constraint], objective: O, *, effort: Effort, rng: np.random.Generator
) -> Exchanged[O]:
    """Let rows exchange ends as long as that lowers the loss of ``objective`` and all that is to ``keep`` allows it.

    >>> class Sorted(NamedTuple):  # neighbours that stand the wrong way round
    ...     loss: float
    ...     def propose(self, ends, rng): return np.arange(len(ends) - 1), np.arange(1, len(ends))
    ...     def change(self, some): return (some.others - some.ends).astype(float)
    ...     def conflicts(self, some): return None
    ...     def most(self, some): return len(some.one)
    ...     def after(self, some): return self, self.change(some).sum()
    >>> effort = Effort(rounds=9, patience=0)
    >>> exchange(np.array([2, 1, 0]), (), Sorted(0.0), effort=effort, rng=np.random.default_rng(0)).ends
    array([0, 1, 2])
    """
    found: Exchanged[O] = Exchanged(ends.copy(), objective, tuple(keep), 0, 0)
    idle, bold = 0, 1.0
    while found.rounds < effort.rounds and idle <= effort.patience:
        one, two = found.objective.propose(found.ends, rng)
        if not len(one):
            break
        batch = _improving(found, one, two)
        limit = int(np.ceil(bold * found.objective.most(batch))) if len(batch.one) else 0
        before = found.objective.loss
        found, made = _made(found, batch.some(slice(limit)))
        bold = min(2 * bold, 1.0) if made == limit else bold * made / limit
        fell = before - found.objective.loss
        idle = 0 if made and fell >= effort.enough * before else idle + 1
    return found


def _improving(found: Exchanged[O], one: IntArray, two: IntArray) -> Exchanges:
    """Exchanges that are allowed and lower the loss, the best first, none in conflict with another."""
    there = two >= 0
    some = Exchanges.between(one[there], two[there], found.ends)
    allowed = some.ends != some.others
    for constraint in found.keep:
        some = some.some(allowed)
        allowed = constraint.allows(some)
    some = some.some(allowed)
    change = found.objective.change(some)
    better = np.flatnonzero(change < 0)
    some = some.some(better[np.argsort(change[better], kind="stable")])
    fine = disjoint(np.stack([some.one, some.two], axis=1))
    for labels in (found.objective.conflicts(some), *(constraint.conflicts(some) for constraint in found.keep)):
        fine &= True if labels is None else disjoint(labels)
    return some.some(fine)


def disjoint(labels: IntArray) -> Mask:
    """Which rows of ``labels`` have no entry that an earlier row has, too.

    >>> disjoint(np.array([[0, 1], [1, 2], [2, 3], [4, 5]]))
    array([ True, False, False,  True])
    """
    _, first = np.unique(labels.reshape(-1), return_index=True)
    fresh = np.zeros(labels.size, dtype=bool)
    fresh[first] = True
    return np.asarray(fresh.reshape(labels.shape).all(axis=1))


def _made(found: Exchanged[O], batch: Exchanges) -> tuple[Exchanged[O], int]:
    """Make a batch, or the best half of it, or of that, as long as this is better; and return how many were made."""
    best, least, made, size = found.objective, 0.0, 0, len(batch.one)
    while size:
        objective, change = found.objective.after(batch.some(slice(size)))
        if change < least:
            best, least, made = objective, change, size
        elif made:
            break
        size //= 2
    some = batch.some(slice(made))
    found.ends[some.one], found.ends[some.two] = some.others, some.ends
    keep = tuple(constraint.after(some) for constraint in found.keep)
    return Exchanged(found.ends, best, keep, found.made + made, found.rounds + 1), made
