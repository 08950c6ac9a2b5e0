"""link(): learn the links between two tables you bring, from synthetic tables made by any mechanism."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpweave import chosen
from dpweave.budget.kept_answers import KeptAnswers, find
from dpweave.budget.running_fits import begin
from dpweave.budget.tasks import link_task
from dpweave.engines.frames.source import as_arrow
from dpweave.engines.opening import open_source
from dpweave.errors import UsageError, memory_said, nearest
from dpweave.fitting.fit import salt_of, tried_noise
from dpweave.links.link_method import KINDS, Kind, LinkModel, LinkProblem, RandomWiring, link_model
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan, domain_from_value
from dpweave.plan.plan import Plan
from dpweave.privacy.accounting import Budget, rho_of_epsilon, split
from dpweave.privacy.certificate import said_of_lost
from dpweave.privacy.curator import Curator
from dpweave.privacy.noise import InsecureNoise
from dpweave.privacy.release import certify
from dpweave.progress import reporter
from dpweave.schema.arrow_codes import encode_table
from dpweave.schema.arrow_types import arrow_type, type_of_arrow
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Attribute, Bins, Categories, View, parse_degree
from dpweave.tables.domains.learned_domains import public_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.relations import Relation
    from dpweave.privacy.certificate import Certificate
    from dpweave.privacy.release import Release

DISTINCT = 64
"""Numbers with at most this many different values in a synthetic table are told apart; others are put into bins."""


@dataclass(frozen=True)
class Links:
    """Learned links: row positions in the synthetic tables, and what was promised about the real ones."""

    pairs: pa.Table
    certificate: Certificate
    release: Release


def link(
    left: object,
    right: object,
    pairs: object,
    *,
    left_key: str,
    right_key: str,
    synthetic_left: object,
    synthetic_right: object,
    epsilon: float,
    delta: float,
    kind: Kind = "many-to-many",
    max_degree: int | tuple[int, int] = 10,
    k: int = 3,
    neighbours: Literal["entity", "record"] = "record",
    on_excess: Literal["refuse", "truncate"] = "refuse",
    method: str | LinkModel = "map",
    m_syn: int | None = None,
    self_loops: bool = False,
    domains: Mapping[str, object] | None = None,
    ledger: str | Path | None = None,
    label: str | None = None,
    progress: bool | Callable[[str, float], None] = False,
    seed: int = 0,
    insecure_seed: int | None = None,
    resume: bool = False,
) -> Links:
    """Link the rows of ``synthetic_left`` and ``synthetic_right`` as ``pairs`` links those of ``left`` and ``right``.

    ``pairs`` has the columns ``left_key`` and ``right_key``, and so have ``left`` and ``right``, one each. Where
    ``right`` is ``left`` itself the relation is self-referential: both columns of ``pairs`` name rows of that one table
    by its column ``left_key``. In a one-to-many relation left rows are the children. ``max_degree`` bounds the links of
    one row; a pair bounds (left, right) rows separately.

    The domain of a column is taken from its values in the synthetic tables, which are public, unless
    ``domains`` declares it as a plan would. ``method`` is a name or a model with its settings, such
    as ``dw.PGD(T=10)``. All of epsilon is for the links; what the synthetic tables cost comes on top.

    Every answer is kept beside the ledger until the links are returned. ``resume`` goes on with a call of the same
    arguments that was cut off, as :func:`fit` does.
    """
    task = _Task(
        left,
        right,
        pairs,
        left_key,
        right_key,
        synthetic_left,
        synthetic_right,
        kind,
        max_degree,
        domains or {},
        self_loops,
    )
    plan = task.plan(k=k, neighbours=neighbours, on_excess=on_excess)
    model = task.model(method, k=k)
    rho = rho_of_epsilon(epsilon, delta=delta)
    for name, number in (("m_syn", 0 if m_syn is None else m_syn), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise UsageError(f"{name} must be a whole number of at least 0, not {number!r}")
    rng = np.random.default_rng(seed)
    problem = task.rehearse(plan, model, m_syn)
    report, noise = reporter(progress), tried_noise(insecure_seed)
    if resume and ledger is None:
        raise UsageError("resume needs the ledger of the call that was cut off: its answers were kept beside it")
    again = "link again" if ledger is None else "resume if anything was charged: answers are kept beside the ledger"
    with memory_said(f"give it more, and {again}"), open_source(task.frames) as source, ExitStack() as at_end:
        source.declare(plan.database)
        bound = {
            "plan": _digest(plan.to_toml()),
            "source": source.name,
            "epsilon": repr(float(epsilon)),
            "delta": repr(float(delta)),
            "insecure seed": str(insecure_seed),
            "method, number of links or seed": _digest((model, m_syn, seed)),
            "set of synthetic rows": _digest(problem),
        }
        earlier = find(ledger, bound) if resume and ledger is not None else None
        run = begin(
            ledger,
            database=source.name,
            limit=Budget(rho),
            tables=plan.protect,
            delta=delta,
            label=label,
            resumes=earlier,
        )
        book = at_end.enter_context(run)
        seeded = noise if isinstance(noise, InsecureNoise) else None
        kept = None if ledger is None else KeptAnswers(book, ledger, noise=seeded)
        lost = () if earlier is None or ledger is None else earlier.lost(ledger)
        if kept is not None:
            kept.begin(bound) if earlier is None else kept.go_on()
        salt = salt_of(book, insecure_seed)
        curator = Curator(source, plan.promise, ledger=book, noise=noise, salt=salt, kept=kept)
        with report.step("check keys and bounds"):
            curator.check(require_targets=neighbours == "record")
        for table in plan.tables:
            for column in table.modelled:
                curator.set_codec(table.name, column.name, _codec(column))
        counting, learning = split(rho, [chosen.COUNTING, 1 - chosen.COUNTING])
        with report.step("count links"):
            measured, scale = task.count(curator, plan, rho=counting)
        wanted = task.links(measured * scale) if m_syn is None else m_syn
        problem = replace(problem, links=wanted, links_measured=measured)
        relation = task.relation(plan)
        with report.step("learn links"):
            window = curator.window(relation.view, name=link_task(relation).name)
            result = model.learn(window, problem, rho=learning, rng=rng, progress=report.inside)
        certificate = certify(plan.promise, book, delta=delta, insecure=curator.insecure)
    said = (*task.caveats(m_syn), *certificate.caveats, *said_of_lost(lost))
    certificate = replace(certificate, caveats=said)
    if kept is not None:
        with suppress(OSError):
            kept.path.unlink(missing_ok=True)
    return Links(_pairs_table(result.pairs), certificate, curator.release)


@dataclass(frozen=True)
class _Task:
    """What the user gave, under fixed names: tables ``left`` and ``right``, and ``links`` where pairs are rows."""

    left: object
    right: object
    pairs: object
    left_key: str
    right_key: str
    synthetic_left: object
    synthetic_right: object
    kind: Kind
    max_degree: int | tuple[int, int]
    domains: Mapping[str, object]
    self_loops: bool

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no kind of relation is called {self.kind!r}: {nearest(self.kind, KINDS)}")
        if self.left_key == self.right_key:
            raise UsageError(f"left_key and right_key are both {self.left_key!r}; the columns of pairs need two names")
        arrows = {
            "left": as_arrow(self.left, name="left"),
            "right": as_arrow(self.right, name="right"),
            "pairs": as_arrow(self.pairs, name="pairs"),
            "synthetic_left": as_arrow(self.synthetic_left, name="synthetic_left"),
            "synthetic_right": as_arrow(self.synthetic_right, name="synthetic_right"),
        }
        for name, key in (
            ("left", self.left_key),
            ("right", self.own_right_key),
            ("pairs", self.left_key),
            ("pairs", self.right_key),
        ):
            if key not in arrows[name].column_names:
                raise UsageError(f"{name} has no column {key!r}: {nearest(key, arrows[name].column_names)}")
        for side, key in (("left", self.left_key), ("right", self.own_right_key)):
            want = set(arrows[side].column_names) - {key}
            have = set(arrows[f"synthetic_{side}"].column_names) - {key}
            if want != have:
                odd = min(want ^ have)
                raise UsageError(
                    f"synthetic_{side} and {side} must have the same columns; only one of them has {odd!r}"
                )
            for name in sorted(want):
                _require_same_kind(name, side, arrows[side][name], arrows[f"synthetic_{side}"][name])
        object.__setattr__(self, "_arrows", arrows)
        for name in self.domains:
            if name not in self.columns:
                raise UsageError(f"domains has no column to declare for {name!r}: {nearest(name, self.columns)}")

    @property
    def own_right_key(self) -> str:
        """Key column of the right table itself."""
        return self.left_key if self.selfish else self.right_key

    @property
    def selfish(self) -> bool:
        """Whether both ends of a link are rows of one table."""
        return self.right is self.left

    @property
    def arrows(self) -> dict[str, pa.Table]:
        """Everything that was given, as Arrow."""
        made: dict[str, pa.Table] = getattr(self, "_arrows")  # noqa: B009
        return made

    @property
    def columns(self) -> set[str]:
        """Columns of either table besides its own key."""
        keys = (("left", self.left_key), ("right", self.own_right_key))
        return {c for side, key in keys for c in self.arrows[side].column_names if c != key}

    @property
    def frames(self) -> dict[str, pa.Table]:
        """The private tables; in a one-to-many relation the child's key to its parent is a column of the child."""
        arrows = self.arrows
        frames = {"left": arrows["left"]} if self.selfish else {"left": arrows["left"], "right": arrows["right"]}
        pairs = arrows["pairs"].select([self.left_key, self.right_key])
        if self.kind != "one-to-many":
            return frames | {"links": pairs}
        if pairs[self.left_key].combine_chunks().value_counts().field("counts").to_numpy().max(initial=0) > 1:
            raise UsageError(f"kind is one-to-many and pairs names a child, {self.left_key!r}, more than once")
        renamed = pairs.rename_columns([self.left_key, PARENT])
        return frames | {"left": arrows["left"].join(renamed, keys=self.left_key, join_type="left outer")}

    def plan(
        self, *, k: int, neighbours: Literal["entity", "record"], on_excess: Literal["refuse", "truncate"]
    ) -> Plan:
        """Return the plan of a database of these tables."""
        left_bound, right_bound = (
            self.max_degree if isinstance(self.max_degree, tuple) else (self.max_degree, self.max_degree)
        )
        target, names = ("left", ("left",)) if self.selfish else ("right", ("left", "right"))
        tables = {name: self._table(name) for name in names}
        if self.kind == "one-to-many":
            child = tables["left"]
            parent = Column(PARENT, type_of_arrow(self.arrows["pairs"].schema.field(self.right_key).type))
            key = KeyPlan(ForeignKey((PARENT,), target, (self.own_right_key,), "parent"), "linking", right_bound)
            tables["left"] = TablePlan(
                "left", (*child.columns, ColumnPlan(parent, None)), child.primary_key, keys=(key,)
            )
            return Plan(tuple(tables.values()), names, neighbours=neighbours, on_excess=on_excess, k=k)
        schema = self.arrows["pairs"].schema
        ends = (self.left_key, self.right_key)
        columns = tuple(ColumnPlan(Column(c, type_of_arrow(schema.field(c).type), nullable=False), None) for c in ends)
        one = self.kind == "one-to-one"
        keys = (
            KeyPlan(ForeignKey((self.left_key,), "left", (self.left_key,)), "owning", 1 if one else left_bound),
            KeyPlan(ForeignKey((self.right_key,), target, (self.own_right_key,)), "linking", 1 if one else right_bound),
        )
        tables["links"] = TablePlan("links", columns, ends, keys=keys)
        return Plan(tuple(tables.values()), names, neighbours=neighbours, on_excess=on_excess, k=k)

    def _table(self, side: str) -> TablePlan:
        key = self.left_key if side == "left" else self.own_right_key
        real, synthetic = self.arrows[side], self.arrows[f"synthetic_{side}"]
        columns = []
        for field in real.schema:
            if field.name == key:
                columns.append(ColumnPlan(Column(key, type_of_arrow(field.type), nullable=False), None))
                continue
            values = synthetic[field.name]
            column = Column(field.name, _kind(field.type, values.type), nullable=values.null_count > 0)
            given = self.domains.get(field.name)
            domain = (
                public_domain(column, values.unique().to_pylist(), bins=DISTINCT)
                if given is None
                else domain_from_value(field.name, column, given)
            )
            if not isinstance(domain, Categories | Bins):
                raise UsageError(f"the domain of {field.name!r} must be a list of values or bins here, not {given!r}")
            if (
                isinstance(domain, Categories)
                and not domain.other
                and set(values.drop_null().unique().to_pylist()) - set(domain.values)
            ):
                raise UsageError(
                    f"synthetic_{side} has values of {field.name!r} that its declared domain does not list"
                )
            columns.append(ColumnPlan(column, domain))
        return TablePlan(side, tuple(columns), (key,))

    def relation(self, plan: Plan) -> Relation:
        """Return the one relation there is."""
        (relation,) = plan.compile().relations

        def given(side: tuple[tuple[str, Attribute], ...]) -> tuple[tuple[str, Attribute], ...]:
            return tuple((n, a) for n, a in side if parse_degree(a.column) is None)  # tables made elsewhere have none

        return replace(relation, kind=self.kind, left=given(relation.left), right=given(relation.right))

    def model(self, method: str | LinkModel, *, k: int) -> LinkModel:
        """Return the link model by its name, or as it was given."""
        if not isinstance(method, str):
            if not isinstance(method, LinkModel):
                raise UsageError(f"method is {method!r}; give a name or a link model such as dw.PGD(T=10)")
            return method
        return link_model(method) if method == "random" else link_model(method, k=k)

    def caveats(self, m_syn: int | None) -> tuple[str, ...]:
        """Say what the promise takes as public, because it was given and not measured."""
        found = ["The synthetic tables were given: what making them cost comes on top of this epsilon and delta."]
        read = sorted(self.columns - self.domains.keys())
        if read:
            found.append(
                f"The domains of {', '.join(read)} were read off the synthetic tables, "
                "which must be private themselves or public."
            )
        if self.domains:
            found.append(f"The domains of {', '.join(sorted(self.domains))} were declared and are taken as public.")
        if m_syn is not None:
            found.append(
                f"The number of synthetic links, m_syn = {m_syn}, was given: no budget was spent on it, so it must not "
                "come from the private links. By default it is measured."
            )
        return tuple(found)

    def rehearse(self, plan: Plan, model: LinkModel, m_syn: int | None) -> LinkProblem:
        """Raise what would be wrong with the request, before anything is spent; return it with a made-up link count."""
        relation = self.relation(plan)
        if not relation.learnable:
            raise UsageError("both tables need at least one column besides their keys; there is nothing to correlate")
        columns = len(relation.left) + len(relation.right)
        if plan.k > columns:
            raise UsageError(f"k = {plan.k} is larger than the number of columns, {columns}; lower k")
        problem = self.problem(plan, measured=1.0, links=self.links(1.0) if m_syn is None else m_syn)
        if not isinstance(model, RandomWiring) and hasattr(model, "workloads"):
            model.workloads(problem)
        return problem

    def links(self, wanted: float) -> int:
        """Return the nearest number of links that the kind allows for the synthetic rows."""
        rows: list[int] = [self.arrows[f"synthetic_{s}"].num_rows for s in ("left", "right")]
        if self.kind == "one-to-many":
            return rows[0]
        barred = rows[0] if self.selfish and not self.self_loops else 0
        most = (
            rows[0] * rows[1] - barred if self.kind == "many-to-many" else min(rows) - (min(rows) == 1 and barred > 0)
        )
        return min(max(round(wanted), 0), most)

    def problem(self, plan: Plan, *, measured: float, links: int) -> LinkProblem:
        """State what is to be linked."""
        relation = self.relation(plan)
        codes: dict[str, dict[str, IntArray]] = {}
        for side in ("left", "right"):
            table = plan.table["left" if self.selfish else side]
            codes[side] = encode_table(self.arrows[f"synthetic_{side}"], {c.name: _codec(c) for c in table.modelled})
        side_of = {"left": relation.left, "right": relation.right}
        named = {s: {n: codes[s][a.column] for n, a in side_of[s]} for s in side_of}
        codecs: dict[str, Codec] = {}
        for side in ("left", "right"):
            table = plan.table["left" if self.selfish else side]
            codecs |= {n: _codec(table.column[a.column]) for n, a in side_of[side]}
        return LinkProblem(
            named["left"],
            named["right"],
            shape={n: codec.size for n, codec in codecs.items()},
            links=links,
            links_measured=max(measured, 1.0),
            kind=self.kind,
            same_table=self.selfish
            and self.arrows["synthetic_left"].num_rows == self.arrows["synthetic_right"].num_rows,
            self_loops=self.self_loops,
            ordered={n: codec.ordered for n, codec in codecs.items()},
        )

    def count(self, curator: Curator, plan: Plan, *, rho: float) -> tuple[float, float]:
        """Return the noisy number of links, and how much larger than the real tables the synthetic ones are.

        Neighbours of the ``record`` kind have tables of the same sizes, so there sizes are public.
        """
        relation = self.relation(plan)
        sizes = [self.arrows[s].num_rows for s in ("left", "right")]
        made = [self.arrows[f"synthetic_{s}"].num_rows for s in ("left", "right")]
        what = link_task(relation).name
        if plan.neighbours == "record":
            (total,) = curator.measure(relation.view, [()], what=what, rho=rho)
            rows = [float(max(n, 1)) for n in sizes]
        else:
            shares = split(rho, [1.0, 1.0, 1.0])
            (total,) = curator.measure(relation.view, [()], what=what, rho=shares[0])
            names = ("left", "left" if self.selfish else "right")
            noisy = [
                curator.measure(View.of_table(n, ()), [()], what=f"sizes:{n}", rho=s)[0]
                for n, s in zip(names, shares[1:], strict=True)
            ]
            rows = [max(float(m.counts), 1.0) for m in noisy]
        scale = float(np.sqrt(np.prod([m / n for m, n in zip(made, rows, strict=True)])))
        return max(float(total.counts), 1.0), scale


def _digest(value: object) -> str:
    """Return the digest of texts, settings, or of the rows that are to be linked."""
    if isinstance(value, LinkProblem):
        sides = (value.left, value.right)
        value = [(name, codes.tobytes()) for side in sides for name, codes in sorted(side.items())]
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


PARENT = "parent_key"
"""Column that a child gets for the key of its parent, where pairs are given apart from the children."""


NUMBERS = ("integer", "float", "decimal")


def _require_same_kind(name: str, side: str, real: pa.ChunkedArray, synthetic: pa.ChunkedArray) -> None:
    """Refuse a column whose synthetic values could never equal a real one."""
    if synthetic.null_count == len(synthetic):
        return
    kinds = [_kind(real.type, synthetic.type), type_of_arrow(synthetic.type)]
    words = ["number" if k.kind in NUMBERS else str(arrow_type(k)) for k in kinds]
    if words[0] != words[1]:
        raise UsageError(
            f"{name!r} is {kinds[0]} in {side} and {kinds[1]} in synthetic_{side}; give both the same type"
        )


def _kind(real: pa.DataType, synthetic: pa.DataType) -> Type:
    """Return the type that values of a column are read as: that of the synthetic one, which is public. A real
    frame's own type would tell of its rows: pandas makes whole numbers floats where one of them is missing.
    """
    kind, public = type_of_arrow(real), type_of_arrow(synthetic)
    return public if kind.kind == "unknown" or {kind.kind, public.kind} <= {*NUMBERS} else kind


def _codec(column: ColumnPlan) -> Codec:
    assert isinstance(column.domain, Categories | Bins)
    return Codec(column.column, column.domain)


def _pairs_table(pairs: IntArray) -> pa.Table:
    import pyarrow as pa

    return pa.table({"left": pa.array(pairs[:, 0], pa.int64()), "right": pa.array(pairs[:, 1], pa.int64())})
