"""Whether a certificate is true: every cost worked out again from the answers in the release, and all of it held
against the ledger.

Three things bind a model, each as strong as the place where it is kept. The release lets anybody work out again what it
cost. Digests in the certificate bind answers, plan and certificate to each other; whoever may write the model can write
them anew. The ledger's last line of the run carries the same digests; whoever may write the ledger too can write that
anew. Only an anchor that is kept elsewhere (``budget.anchors``) is out of their hands.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.allocation import declared_costs
from dpweave.budget.spending import read, whole_lines
from dpweave.errors import LedgerError
from dpweave.model.file_format import release_to_dict
from dpweave.model.own_words import ASKED, CERTIFICATE, RELEASE, counts_of, own_words
from dpweave.privacy.accounting import Cost, gaussian_rho, round_up, selection_rho
from dpweave.privacy.noise import threshold_for
from dpweave.privacy.release import guarantees
from dpweave.privacy.selection import sensitivity
from dpweave.privacy.sensitivity import belonging, movement, siblings_at_most, units_of, weighed
from dpweave.privacy.unit_sums import CLIP, grid, on_grid
from dpweave.privacy.window import Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dpweave.model.model import Model
    from dpweave.plan.plan import Plan
    from dpweave.privacy.certificate import Certificate
    from dpweave.privacy.ledger import Entry
    from dpweave.privacy.release import Discovered, Measured, MeasuredMoments, MeasuredUnitSum, Release, Selected
    from dpweave.privacy.window import UnitSum
    from dpweave.schema.domain import View

ROUNDING = 1e-9
"""Part of a cost by which rounding may move it. Floats move it by some 1e-16; from 1e-12 to 1e-6 it does not matter."""


@dataclass(frozen=True)
class Verification:
    """What was found about a certificate. It is true if nothing is wrong."""

    wrong: tuple[str, ...]
    """What contradicts the certificate."""
    checked: tuple[str, ...]
    """What was worked out again or compared, and agrees unless ``wrong`` says otherwise."""
    unbound: tuple[str, ...]
    """What nothing here can tell."""

    @property
    def true(self) -> bool:
        """Whether the certificate is true, as far as this could be checked."""
        return not self.wrong

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        parts = {name: list(getattr(self, name)) for name in ("wrong", "checked", "unbound")}
        return {"true": self.true, **parts}

    def __str__(self) -> str:
        head = "The certificate is true." if self.true else "The certificate is NOT TRUE, or not of this model."
        lines = [f"  {word:<8} {text}" for word in ("wrong", "checked", "unbound") for text in getattr(self, word)]
        return "\n".join([head, *lines])


def verify(model: Model, *, ledger: str | Path | None = None) -> Verification:
    """Work out again what every answer in a model's release cost, and say whether its certificate is true.

    With the ``ledger`` of the fit, every charge is compared too, and what its last line says of answers, plan and
    certificate. Reads no row and spends nothing.
    """
    found = _Found()
    try:
        _recompute(model, found)
        _compare_digests(model, found)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):  # a stranger may have written it
        found.wrong.append("the certificate or the release holds values that none can hold: it was edited")
    if ledger is None:
        found.unbound.append("no ledger was named, so what it says was not compared")
    else:
        _compare_ledger(model.certificate, Path(ledger), found)
    if model.lineage:
        found.unbound.append(
            f"it was learned again {len(model.lineage)} times from the same answers; how is not in the certificate"
        )
    if model.certificate.insecure:
        found.unbound.append("noise came from a known seed, for tests: this protects nobody")
    return Verification(tuple(found.wrong), tuple(found.checked), tuple(found.unbound))


def bound_certificate(certificate: Certificate, release: Release, plan: Plan) -> Certificate:
    """Return a certificate that names the answers and the plan it is about, and itself, by their digests."""
    digests = {"answers": answers_digest(release), "plan": hashlib.sha256(plan.to_toml().encode()).hexdigest()}
    bound = replace(certificate, digests=digests)
    return replace(bound, digests={**digests, "certificate": _certificate_digest(bound.to_json())})


def answers_digest(release: Release, *, words: str | None = None) -> str:
    """Return the digest of every answer in a release, with what was asked: in ``words`` that say it, or in those of
    this version.
    """
    said = release_to_dict(release) if words is None else json.loads(words)
    whole = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for counts in counts_of(release).values():
        plain = np.asarray(counts, dtype="<f8" if counts.dtype.kind == "f" else "<i8")
        whole.update(repr(plain.shape).encode() + plain.tobytes())
    return whole.hexdigest()


def _certificate_digest(words: str) -> str:
    content = json.loads(words)
    content["digests"].pop("certificate", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class _Found:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.checked: list[str] = []
        self.unbound: list[str] = []

    def require(self, holds: bool, text: str) -> None:
        if not holds:
            self.wrong.append(text)


# -- what answers cost -------------------------------------------------------------------------------------------------


def _recompute(model: Model, found: _Found) -> None:
    """Work out every cost from answers and promise, and everything that the certificate concludes from costs."""
    certificate, promise = model.certificate, model.certified_plan.promise
    costs = _Costs(model)
    total, unanswered, unweighed = Cost.zero(), 0, 0
    for event in certificate.events:
        said, name = Cost(event["rho"], event["delta"]), f"charge {event['n']}, {event.get('what')!r}"
        total += said
        cost = costs.of(event)
        if isinstance(cost, Cost):
            found.require(_agree(cost, said), f"{name}: its answer costs rho {_words(cost)}, not {_words(said)}")
        elif cost == "no answer":
            unanswered += 1
        elif cost == "no weights":
            unweighed += 1
        else:
            found.wrong.append(f"{name}: {cost}")
    for what in costs.left():
        found.wrong.append(f"an answer to {what!r} is in the release, and no charge names it and its sigma")
    tables = guarantees(total, promise.protected, delta=certificate.delta)
    found.require(
        tables == certificate.tables,
        "epsilon, rho or delta of a protected table is not what the charges add up to",
    )
    found.require(
        (certificate.epsilon, certificate.rho) == (max(g.epsilon for g in tables), max(g.rho for g in tables)),
        f"charges add up to epsilon {max(g.epsilon for g in tables):.6g}, rho {max(g.rho for g in tables):.6g}; the"
        f" certificate says {certificate.epsilon:.6g} and {certificate.rho:.6g}",
    )
    found.require(model.plan.promise == promise, "the plan of this model promises something else than was asked under")
    bounds = tuple((t, k, b) for (t, k), b in promise.bounds.items())
    owned = {u: {t: n for t in promise.private if (n := belonging(promise, u, t))} for u in promise.protected}
    same = (certificate.neighbours, certificate.bounds, certificate.owned_rows) == (promise.neighbours, bounds, owned)
    found.require(same, "neighbours, bounds or the rows of a unit are not those of the plan")
    found.checked.append(f"{len(certificate.events)} charges, worked out from {costs.given} answers and the promise")
    if unanswered:
        words = (
            "1 charge has no answer in the release; it counts"
            if unanswered == 1
            else (f"{unanswered} charges have no answer in the release; they count")
        )
        found.unbound.append(f"{words} as the certificate says")
    if unweighed:
        found.unbound.append(
            f"{unweighed} choices were made by a version that kept no weights; they count as the certificate says"
        )


class _Costs:
    """The answers of a release, each given to its charge in the order in which they were made."""

    def __init__(self, model: Model) -> None:
        self.plan = model.certified_plan
        self.promise = model.certified_plan.promise
        self.given = 0
        self._measured = deque(model.release.measured)
        self._sums = deque(model.release.summed_by_unit)
        self._moments = deque(model.release.moments)
        self._selected = deque(model.release.selected)
        self._discovered = deque(model.release.discovered)

    def of(self, event: Mapping[str, Any]) -> Cost | str:
        """Return what the answers to one charge cost; or in words why that cannot be said."""
        match event.get("verb"):
            case "declared":
                declared = declared_costs(self.plan).get(str(event["what"]).removeprefix("external:"))
                return "the plan declares no such table made elsewhere" if declared is None else declared
            case "measure" if "clip" in event and "moments" not in event:
                keys = [(c, s, k) for c, s, k in zip(event["cliques"], event["sigma"], event["clip"], strict=True)]
                sums = self._take(
                    self._sums,
                    event,
                    keys,
                    lambda b: ([*b.noisy.unit_sum.columns], b.noisy.sigma, b.noisy.unit_sum.clip),
                )
                return "no answer" if sums is None else self._of_sums(sums)
            case "measure" if "moments" in event:
                asked_of = (event["moments"], event["numbers"], event["clip"], event["sigma"])
                moments = self._take(
                    self._moments,
                    event,
                    [asked_of],
                    lambda m: (
                        [*m.noisy.moments.all_columns],
                        len(m.noisy.values),
                        m.noisy.moments.clip,
                        m.noisy.sigma,
                    ),
                )
                return "no answer" if moments is None else self._of_moments(moments[0])
            case "measure":
                pairs = [(c, s) for c, s in zip(event["cliques"], event["sigma"], strict=True)]
                found = self._take(self._measured, event, pairs, lambda m: ([*m.marginal.columns], m.marginal.sigma))
                return "no answer" if found is None else sum(map(self._of_marginal, found), Cost.zero())
            case "select":
                chosen = self._take(
                    self._selected,
                    event,
                    [(event["candidates"], event["count"])],
                    lambda s: (len(s.candidates), len(s.chosen)),
                )
                return "no answer" if chosen is None else self._of_choice(chosen[0], event["scale"])
            case "discover":
                asked = (event["column"], event["sigma"], event["threshold"])
                known = self._take(
                    self._discovered, event, [asked], lambda d: (f"{d.table}.{d.column}", d.sigma, d.threshold)
                )
                return "no answer" if known is None else self._of_categories(known[0], event["delta"])
        return f"{event.get('verb')!r} is no verb that rows answer to"

    def left(self) -> list[str]:
        """Return the names of answers that no charge has asked for."""
        rest: list[deque[Any]] = [self._measured, self._sums, self._moments, self._selected, self._discovered]
        return [*dict.fromkeys(answer.what for answers in rest for answer in answers)]

    def _take(self, answers: deque[Any], event: Mapping[str, Any], keys: list[Any], key: Any) -> list[Any] | None:
        """Return the next answers, if they are those to ``event``: by name, and by ``keys``."""
        found = [*islice(answers, len(keys))]
        if [(a.what, key(a)) for a in found] != [(event["what"], k) for k in keys]:
            return None
        for _ in keys:
            answers.popleft()
        self.given += len(keys)
        return found

    def _of_marginal(self, measured: Measured) -> Cost:
        columns, sigma = measured.marginal.columns, measured.marginal.sigma
        moved = {t: movement(self.promise, measured.view, columns, t).l2 for t in self.promise.protected}
        return Cost({t: gaussian_rho(l2, sigma) for t, l2 in moved.items() if l2}, {})

    def _of_sums(self, sums: Iterable[MeasuredUnitSum]) -> Cost | str:
        cost = Cost.zero()
        for one in sums:
            units = units_of(self.promise, one.view)
            if units is None or not units.hold(one.noisy.unit_sum.all_columns):
                return "sums over units hold only where no other unit moves rows, and that is not so here"
            length = _length(one.noisy.unit_sum)
            cost += Cost({self.promise.root(one.view.base): gaussian_rho(length, one.noisy.sigma)}, {})
        return cost

    def _of_moments(self, measured: MeasuredMoments) -> Cost | str:
        moments = measured.noisy.moments
        if not siblings_at_most(self.promise, measured.view, moments):
            return "moments of units hold only where no other unit moves rows, and that is not so here"
        step, most = grid(moments.clip)
        cost = gaussian_rho(float(most), measured.noisy.sigma * step)
        return Cost({self.promise.root(measured.view.base): cost}, {})

    def _of_choice(self, chosen: Selected, scale: float) -> Cost | str:
        if not chosen.weights:
            return "no weights"
        if chosen.scale != scale or len(chosen.weights) != len(chosen.candidates):
            return f"the choice was made at scale {chosen.scale:g}, not {scale:g}"
        nothing = np.zeros(0)
        weighed_by = [Candidate(c, nothing, w) for c, w in zip(chosen.candidates, chosen.weights, strict=True)]
        moved = {
            t: sensitivity(weighed_by, [self._l1(chosen.view, c, t) for c in chosen.candidates])
            for t in self.promise.protected
        }
        count = len(chosen.chosen)
        return Cost({t: round_up(count * Fraction(selection_rho(x, scale))) for t, x in moved.items() if x}, {})

    def _l1(self, view: View, columns: tuple[str, ...], table: str) -> float:
        return movement(self.promise, view, columns, table).l1

    def _of_categories(self, known: Discovered, delta: Mapping[str, float]) -> Cost | str:
        of = weighed(self.promise, known.table)
        sigma, least = known.sigma * of.length, round(known.threshold * of.length)
        for part in set(delta.values()):
            if least < max(threshold_for(part, sigma, l0=categories, linf=weight) for categories, weight in of.alone):
                return f"its threshold is lower than delta {part:g} needs"
        return Cost({t: gaussian_rho(l2, sigma) for t, l2 in of.l2.items() if l2}, delta)


def _length(unit_sum: UnitSum) -> float:
    """How far one unit moves a unit sum, in units of its scales: the clip. Up to version 0.2 it was rounded down, on
    a grid of its own; scales of those versions are not on the grid of today.
    """
    clip = unit_sum.clip
    if np.array_equal(unit_sum.scales, CLIP / (clip * on_grid(unit_sum)[0])):
        return clip
    step = 2.0 ** (21 - math.frexp(clip)[1])
    return math.floor(step * clip) / step


def _agree(cost: Cost, said: Cost) -> bool:
    return all(
        math.isclose(ours.get(t, 0.0), theirs.get(t, 0.0), rel_tol=ROUNDING)
        for ours, theirs in ((cost.rho, said.rho), (cost.delta, said.delta))
        for t in {*ours, *theirs}
    )


def _words(cost: Cost) -> str:
    return ", ".join(f"{x:.9g} ({t})" for t, x in cost.rho.items()) or "0"


# -- what is bound to what ---------------------------------------------------------------------------------------------


def _compare_digests(model: Model, found: _Found) -> None:
    """Hold answers, plan and certificate against the digests in the certificate."""
    said = model.certificate.digests
    if not said:
        found.unbound.append(
            "the certificate was made by a version without digests: nothing binds single answers and the plan to it"
        )
        return
    words = own_words(model.release, model.certificate, model.certified_plan, written=model.written)
    ours = {
        "answers": answers_digest(model.release, words=words[RELEASE].decode()),
        "plan": hashlib.sha256(words[ASKED]).hexdigest(),
        "certificate": _certificate_digest(words[CERTIFICATE].decode()),
    }
    for name, digest in ours.items():
        found.require(said.get(name) == digest, f"the {name} in this model changed after the certificate was made")
    found.checked.append("answers, plan and certificate, held against the digests in the certificate")


def _compare_ledger(certificate: Certificate, path: Path, found: _Found) -> None:
    """Hold every charge, and what the run's last line says, against the ledger."""
    try:
        every = [e for d in read(path).databases.values() for e in d.entries]
        lines = len(whole_lines(path))
    except LedgerError as error:
        if not path.exists():
            raise
        found.wrong.append(str(error))
        return
    entries = [e for e in every if e.run == certificate.run]
    own = [event for event in certificate.events if "run" not in event]
    last = max((event["n"] for event in own), default=0)
    short = f"it ends at line {lines}, and the certificate names line {last}" if last > lines else ""
    if not entries:
        cut = f". If it is that one, it was cut off: {short}" if short else ""
        found.wrong.append(
            f"the ledger {path} knows no run {certificate.run}; name the one that the fit was charged to{cut}"
        )
        return
    if short:
        found.wrong.append(f"the ledger was cut off: {short}")
        return
    _compare_charges(certificate.database, entries, own, lines, found)
    for run in dict.fromkeys(str(event["run"]) for event in certificate.events if "run" in event):
        earlier = [{k: v for k, v in e.items() if k != "run"} for e in certificate.events if e.get("run") == run]
        if charged := [e for e in every if e.run == run]:
            _compare_charges(certificate.database, charged, earlier, lines, found)
        else:
            found.unbound.append(f"the ledger knows no run {run}, which is extended here; it was not compared")
    ends = [e.what.get("digests") for e in entries if e.kind == "close"]
    written = [d for d in ends if d is not None]
    if written:
        found.require(
            written[-1] == certificate.digests, "the ledger ends this run with other answers, plan or certificate"
        )
        found.checked.append("answers, plan and certificate, held against the line that ends the run in the ledger")
    elif certificate.digests and not ends:
        found.wrong.append("the ledger was cut off: the line that ends this run is missing")
    else:
        found.unbound.append(
            "the ledger has no digest of these answers: another process ended the run, or an older version"
        )
    found.unbound.append(
        "whoever may write both files can change both; hold the ledger against an anchor that was kept elsewhere"
    )


def _compare_charges(
    database: str, entries: Sequence[Entry], events: Sequence[Mapping[str, Any]], lines: int, found: _Found
) -> None:
    """Hold the charges of one run in a ledger against those that a certificate names."""
    charged = [_event(e) for e in entries if e.kind == "charge"]
    found.require(
        charged == [dict(event) for event in events] and {e.database for e in entries} == {database},
        "the charges that the ledger has for this run are not those in the certificate",
    )
    found.checked.append(
        f"{len(charged)} charges, held against {lines} lines of the ledger, of which each follows the last"
    )


def _event(entry: Entry) -> dict[str, Any]:
    return {"n": entry.n, "rho": dict(entry.cost.rho), "delta": dict(entry.cost.delta), **entry.what}
