"""What the page says of epsilon and delta: the promise in words, the verdict predicted, and what would help most."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from dpweave.explain.helpful_edits import helpful_edits
from dpweave.privacy.accounting import require_number
from dpweave.privacy.certificate import statement
from dpweave.studio.plan_view import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpweave.explain.helpful_edits import Helpful
    from dpweave.plan.explanation import Explanation
    from dpweave.plan.plan import Plan

GUESSES = (0.1, 0.5)
"""How sure somebody is beforehand, of whom it is said how sure they can become."""
PATIENCE = 2.0
"""Seconds after which no further change is tried: the best so far is better than none."""


def guess_after(before: float, *, epsilon: float) -> float:
    """Return how sure anybody can become who was so sure before, whatever else they know (Bayes), delta aside.

    >>> round(guess_after(0.5, epsilon=1.0), 3), guess_after(0.5, epsilon=1000.0)
    (0.731, 1.0)
    """
    return 1 / (1 + (1 - before) / before * math.exp(-epsilon))


def promise_words(plan: Plan, *, epsilon: float) -> dict[str, Any]:
    """Return what is promised, and what it means for somebody who guesses."""
    require_number("epsilon", epsilon, low=0)
    return {
        "statement": statement(plan.promise),
        "guesses": [{"before": g, "after": guess_after(g, epsilon=epsilon)} for g in GUESSES],
        "adds_up": len(plan.protect),
    }


def outlook(plan: Plan, found: Explanation) -> dict[str, Any]:
    """Return what an explanation says, as the page shows it."""
    predicted = found.verdict.to_dict()
    return {
        "epsilon": found.epsilon,
        "delta": found.delta,
        **promise_words(plan, epsilon=found.epsilon),
        "judged": predicted["judged"],
        "counts": counts(predicted["judged"]),
        "guessed": list(found.forecast.guessed),
        "learned": [
            {"column": i.column, "kind": i.kind, "sigma": i.sigma, "threshold": i.threshold, "by_unit": i.by_unit}
            for i in found.learned
        ],
        "warnings": list(found.warnings),
        "seconds": found.forecast.seconds,
        "memory": found.forecast.memory,
    }


def counts(judged: list[dict[str, Any]]) -> dict[str, int]:
    """How many tables and relations each word is said of."""
    return {word: sum(j["word"] == word for j in judged) for word in ("useful", "coarse", "noise only")}


def help_offered(plan: Plan, found: Explanation, *, until: Callable[[], bool]) -> list[dict[str, Any]]:
    """Return changes that would help, as the page offers them. ``until``: nobody waits for them any more."""
    end = time.monotonic() + PATIENCE
    return [_offered(h) for h in helpful_edits(plan, found, until=lambda: until() or time.monotonic() > end)]


def _offered(helpful: Helpful) -> dict[str, Any]:
    return {
        "text": helpful.text,
        "edits": [{"path": list(path), "value": plain(value)} for path, value in helpful.changes],
        "epsilon": helpful.epsilon,
        "before": helpful.before,
        "after": helpful.after,
        "useful": helpful.useful,
    }
