"""fit(): private rows in, a model out. One straight page, top to bottom."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.allocation import Allocation, allocate, declared_costs
from dpweave.budget.priorities import codes, seen_rows
from dpweave.budget.running_fits import begin
from dpweave.budget.tasks import (
    Task,
    favoured,
    is_category,
    is_clipped,
    is_owned,
    is_summed_by_unit,
    link_method,
    link_task,
    popularity_task,
)
from dpweave.engines.opening import open_source
from dpweave.errors import PlanError, UsageError
from dpweave.fitting.external_rows import ExternalRows, bring
from dpweave.links.evidence import describe
from dpweave.links.link_method import LinkModel, Refittable
from dpweave.links.map_learner import MAP
from dpweave.links.popularity import MOST_TARGETS, popularity, share_for
from dpweave.links.relation_model import relation_model
from dpweave.model.model import Model, degree_counts, repetitions
from dpweave.plan.relations import (
    Relation,
    counted_keys,
    degree_codec,
    derived_codecs,
    fine_degrees,
    has_popular_targets,
    is_centred,
    is_dictated,
    model_columns,
    newcomer_view,
    relations,
    repetition_codec,
    repetition_view,
    weaving_order,
)
from dpweave.privacy.accounting import Budget, Cost, subtract
from dpweave.privacy.certificate import said_of_sizes
from dpweave.privacy.curator import Curator, CuratorWindow
from dpweave.privacy.noise import InsecureNoise
from dpweave.privacy.release import certify
from dpweave.progress import Progress, reporter
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Domain, Learn, View, degree, parse_degree, parse_repetition, size
from dpweave.tables.aim import MAX_TRIPLES
from dpweave.tables.base import Structure, table_model
from dpweave.tables.centred_rows import centred, composition
from dpweave.tables.learned_domains import categories_from, public_domain
from dpweave.tables.learned_ranges import learn_bins, remarks
from dpweave.tables.owned_row_counts import (
    BAND,
    Rows,
    combined,
    degree_groups,
    kept_share,
    modest,
    with_declared,
    within_owners,
)
from dpweave.tables.woven import seen_through_links
from dpweave.weaving.blueprint import Blueprint
from dpweave.weaving.state import WeavingState
from dpweave.weaving.weaver import Weaver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.links.degrees import Degrees
    from dpweave.links.link_method import LinkProblem
    from dpweave.plan.plan import Plan
    from dpweave.privacy.ledger import Ledger
    from dpweave.privacy.release import Release
    from dpweave.privacy.window import Columns, NoisyMarginal, Window
    from dpweave.schema.database import ForeignKey
    from dpweave.schema.domain import Bins, Scalar
    from dpweave.tables.base import FittedTable, TableModel


def fit(
    source: object,
    plan: Plan,
    *,
    epsilon: float,
    delta: float,
    ledger: str | Path | None = None,
    label: str | None = None,
    external: Mapping[str, object] | None = None,
    progress: bool | Callable[[str, float], None] = False,
    insecure_seed: int | None = None,
) -> Model:
    """Spend (epsilon, delta) once on ``source`` as ``plan`` says, and return a model that can be sampled forever.

    ``ledger`` names the file that remembers what was spent; without one, only the certificate does. ``label`` says in
    the ledger who asked. ``external`` brings the rows of tables whose mechanism is ``external``: data frames or paths,
    by table; (epsilon, delta) includes what their makers declared. ``insecure_seed`` makes the noise repeatable, for
    tests, and stamps the certificate INSECURE.
    """
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    plan, brought = bring(plan, external)
    models = {name: (_model(plan, name, brought), _structure(plan, name)) for name in plan.promise.private}
    report = reporter(progress)
    with open_source(source) as opened, ExitStack() as at_end:
        opened.require_tables(plan.database.names)
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        limit = Budget(allocation.rho, allocation.spent_delta)
        run = begin(
            ledger,
            database=opened.name,
            limit=limit,
            tables=plan.protect,
            delta=delta,
            elsewhere=max(sum(declared_costs(plan).values(), Cost.zero()).rho.values(), default=0.0),
            label=label,
        )
        book = at_end.enter_context(run)
        noise = None if insecure_seed is None else InsecureNoise(insecure_seed)
        curator = Curator(opened, plan.promise, ledger=book, noise=noise)
        with report.step("check files, keys and bounds"):
            opened.require_whole(plan.database.names)
            curator.check()
        elsewhere = _charge_external(book, plan, brought)
        public = {}
        for name in plan.public:
            with report.step(f"read public table {name}"):
                public[name] = opened.whole(name)
        _measure_sizes(curator, plan, allocation, report)
        degrees = _count_degrees(curator, plan, allocation, report)
        known = _known_sizes(plan, curator.release, degrees)
        sizes = {name: rows.used for name, rows in known.items()}
        plan = _learn_domains(curator, plan, allocation, known, degrees, public, report)
        tables, mechanisms, longer = _fit_tables(curator, plan, allocation, sizes, models, report)
        blueprint = Blueprint(
            plan,
            sizes,
            tables,
            public,
            degree_counts(plan, curator.release),
            repetitions(plan, curator.release),
            {name: rows.loose for name, rows in known.items()},
        )
        blueprint, left = _learn_popularity(curator, blueprint, allocation, report)
        found, fits = _learn_links(curator, blueprint, left, longer, report)
        certificate = certify(
            plan.promise, book, delta=delta, insecure=curator.insecure, evidence=found, external=elsewhere
        )
        declared = {t.name: t.public_rows for t in plan.tables if t.public_rows is not None}
        said = (*said_of_sizes(declared, neighbours=plan.neighbours), *remarks(plan))
        certificate = replace(certificate, caveats=(*certificate.caveats, *said))
    return Model(blueprint, certificate, curator.release, mechanisms, fits)


def _model(plan: Plan, name: str, brought: Mapping[str, ExternalRows]) -> TableModel:
    """Return the table model of a table; what cannot be made is refused, before anything is spent."""
    return table_model(plan.table[name].mechanism, **({"codes": brought[name].codes} if name in brought else {}))


def _structure(plan: Plan, name: str) -> Structure:
    """Return the size limits of a table's model; columns that they cannot hold are
    refused, before anything is spent.
    """
    table = plan.table[name]
    structure = Structure() if table.model_cells is None else Structure(max_model_cells=table.model_cells)
    declared = {c.name: c for c in table.modelled if not isinstance(c.domain, Learn | None)}
    shape = {n: size(c.domain, nullable=c.column.nullable) for n, c in declared.items()}  # type: ignore[arg-type]
    try:
        structure.require_room(shape, cells=sum(shape.values()))
    except PlanError as error:
        raise PlanError(f"table {name!r}: {error}") from None
    return structure


def _charge_external(book: Ledger, plan: Plan, brought: Mapping[str, ExternalRows]) -> list[dict[str, object]]:
    """Charge what the makers of tables made elsewhere declare. Returns what the certificate says about each."""
    found = []
    for name, cost in declared_costs(plan).items():
        external = plan.table[name].external
        assert external is not None
        said = external.declared
        book.charge(cost, what={"verb": "declared", "what": f"external:{name}", "declared": said})
        found.append(
            {"table": name, **said, "units": list(cost.rho), "rows": brought[name].rows, "source": brought[name].source}
        )
    return found


def _learn_domains(
    curator: Curator,
    plan: Plan,
    allocation: Allocation,
    known: Mapping[str, Rows],
    degrees: Mapping[Task, NoisyMarginal],
    public: dict[str, pa.Table],
    report: Progress,
) -> Plan:
    """Fill in every domain that the plan wants learned, and tell the Curator how columns are coded."""
    sizes = {name: rows.used for name, rows in known.items()}
    for table in plan.tables:
        for column in table.columns:
            domain = column.domain
            if domain is None:
                continue
            if isinstance(domain, Learn):
                with report.step(f"learn the domain of {table.name}.{column.name}"):
                    if table.name in public:
                        domain = public_domain(
                            column.column, public[table.name][column.name].unique().to_pylist(), bins=domain.bins
                        )
                    else:
                        task = Task("domains", table.name, column.name)
                        domain = _learn_domain(curator, plan, allocation, sizes, task, domain)
                plan = plan.replace_domain(table.name, column.name, domain)
            curator.set_codec(table.name, column.name, Codec(column.column, domain))
    for name in plan.promise.private:
        plan = _group_degrees(curator, plan, allocation, name, degrees, known)
        for column_name, codec in derived_codecs(plan, name).items():
            curator.set_codec(name, column_name, codec)
    return plan


def _count_degrees(curator: Curator, plan: Plan, allocation: Allocation, report: Progress) -> dict[Task, NoisyMarginal]:
    """Count how many rows owners have, in fine buckets and beyond any bound."""
    found = {}
    for name in plan.promise.private:
        for child, key in counted_keys(plan, name):
            task = Task("domains", name, degree(child, key))
            if task in allocation.tasks:
                with report.step(f"learn how many {child} a row of {name} has"):
                    curator.set_codec(name, task.item, degree_codec(child, key, fine_degrees(plan, child, key)))
                    window = curator.window(View.of_table(name, (task.item,)), name=task.name)
                    (found[task],) = window.measure([(task.item,)], rho=allocation.tasks[task])
    return found


def _known_sizes(plan: Plan, release: Release, degrees: Mapping[Task, NoisyMarginal]) -> dict[str, Rows]:
    """How many rows of each private table bounds leave, by all counts of it: one unit
    moves degrees of owners by little, whatever the bound.
    """
    out: dict[str, Rows] = {}
    for name in weaving_order(plan):
        if plan.table[name].public_rows is None:
            (direct,) = release.find(Task("sizes", name).name)
            out[name] = Rows(float(direct.counts), direct.sigma)
            if plan.table[name].rows is not None:
                out[name] = with_declared(out[name], seen_rows(plan, name))
    out = _with_public_sizes(plan, out, degrees)
    # Rows without owner are nobody's degree, and blank rows are counted by degrees alone.
    owned = [name for name in out if is_centred(plan, name)]
    keys = {name: plan.database[name].key[plan.promise.owning[name]] for name in owned}
    for name, key in keys.items():
        task = Task("domains", key.target, degree(name, key.name))
        if task in degrees and out[name].sigma > 0:
            edges, bound = fine_degrees(plan, name, key.name), plan.promise.bounds[name, key.name]
            out[name] = combined(out[name], out[key.target], degrees[task], edges, bound=bound)
    for name, key in reversed(keys.items()):
        bound = plan.promise.bounds[name, key.name]
        out[name], out[key.target] = within_owners(out[name], out[key.target], bound=bound)
    for name in (n for n in out if n in plan.promise.owning):
        own = plan.promise.owning[name]
        owners = out[plan.database[name].key[own].target]
        out[name] = modest(out[name], owners, bound=plan.promise.bounds[name, own])
    return out


def _with_public_sizes(
    plan: Plan, measured: Mapping[str, Rows], degrees: Mapping[Task, NoisyMarginal]
) -> dict[str, Rows]:
    """Add public numbers of rows, less those that bounds leave out, by what degrees tell: nothing else is counted."""
    out: dict[str, Rows] = {}
    kept: dict[str, float] = {}
    for name in weaving_order(plan):
        declared, own, most = plan.table[name].public_rows, plan.promise.owning.get(name), math.inf
        kept[name] = 1.0
        if own is not None:
            key, bound = plan.database[name].key[own], plan.promise.bounds[name, own]
            task = Task("domains", key.target, degree(name, own))
            if task in degrees:
                kept[name] = kept_share(degrees[task], fine_degrees(plan, name, own), bound=bound)
            kept[name] *= kept[key.target]
            owners = out[key.target]
            if is_centred(plan, name) and owners.rows > BAND * owners.sigma:
                most = bound * owners.rows
        out[name] = measured[name] if declared is None else Rows(min(declared * kept[name], most), 0.0)
    return out


def _group_degrees(
    curator: Curator,
    plan: Plan,
    allocation: Allocation,
    name: str,
    degrees: Mapping[Task, NoisyMarginal],
    known: Mapping[str, Rows],
) -> Plan:
    """Group degrees so that the owner's table model can tell them apart."""
    spent_on_table = allocation.tasks[Task("tables", name)] if counted_keys(plan, name) else 0.0
    for child, key in counted_keys(plan, name):
        task = Task("domains", name, degree(child, key))
        if task in degrees:
            others = [codes(plan, name, c) for c in model_columns(plan, name) if c != task.item]
            # A table model spends about as much on each column's pair with the degree.
            l2 = max(curator.l2(View.of_table(name, (task.item,)), (task.item,)).values())
            noise = l2 * math.sqrt(max(len(others), 1) / (2 * spent_on_table))
            groups = degree_groups(
                degrees[task],
                fine_degrees(plan, child, key),
                bound=plan.promise.bounds[child, key],
                noise=noise,
                values=max(others, default=1),
                rows=known[child].used,
            )
            plan = plan.replace_degree_edges(child, key, groups)
    return plan


def _learn_domain(
    curator: Curator, plan: Plan, allocation: Allocation, sizes: Mapping[str, float], task: Task, learn: Learn
) -> Domain:
    column = plan.table[task.table].column[task.item].column
    rho = allocation.tasks[task]
    if is_category(plan, task):
        found = curator.discover(task.table, task.item, what=task.name, rho=rho, delta=allocation.category_delta)
        return categories_from(found)
    if not column.type.ordered:
        raise UsageError(
            f"{task.table}.{task.item} is of type {column.type}, which cannot be learned; declare its domain or make it"
            " opaque"
        )

    def measure(bins: Bins, share: float) -> NoisyMarginal:
        curator.set_codec(task.table, task.item, Codec(column, bins))
        view, unit_sums = View.of_table(task.table, (task.item,)), is_centred(plan, task.table)
        window = _window(curator, view, task.name, sizes, unit_sums=unit_sums)
        return composition(window, [task.item], rho=share)[0]

    return learn_bins(column.type, learn, measure, rho=rho)


def _measure_sizes(curator: Curator, plan: Plan, allocation: Allocation, report: Progress) -> None:
    """Measure numbers of rows, and of rows that repeat a pair."""
    with report.step("measure sizes"):
        for task, rho in allocation.tasks.items():
            if key := parse_repetition(task.item):
                curator.set_codec(task.table, task.item, repetition_codec(key))
                view = repetition_view(plan, task.table, key)
                curator.measure(view, [(task.item,)], what=task.name, rho=rho)
            elif task.group == "sizes":
                curator.measure(View.of_table(task.table, ()), [()], what=task.name, rho=rho)


def _fit_tables(
    curator: Curator,
    plan: Plan,
    allocation: Allocation,
    sizes: dict[str, float],
    models: Mapping[str, tuple[TableModel, Structure]],
    report: Progress,
) -> tuple[dict[str, FittedTable], dict[str, str], dict[str, Mapping[str, float]]]:
    """Fit every private table that has columns; one made elsewhere spends only on the columns its rows lack.

    Also returns the mechanisms, and how much longer than expected units' vectors were, by table and column.
    """
    fitted: dict[str, FittedTable] = {}
    mechanisms: dict[str, str] = {}
    longer: dict[str, Mapping[str, float]] = {}
    shares = {task.table: rho for task, rho in allocation.tasks.items() if task.group == "tables"}
    for name, rho in (dict.fromkeys(declared_costs(plan), 0.0) | shares).items():
        model, structure = models[name]
        unit_sums = is_centred(plan, name) and plan.table[name].external is None
        view = View.of_table(name, model_columns(plan, name))
        window: Window = _window(curator, view, Task("tables", name).name, sizes, unit_sums=unit_sums)
        workload = _favoured(plan, Task("tables", name), tuple(window.shape))
        with report.step(f"fit table {name}"):
            window, left = centred(window, rho=rho, rows=sizes[name])
            fitted[name] = model.fit(
                window,
                rho=left,
                rows=sizes[name],
                structure=replace(structure, workload=workload, linked=_linked(plan, name)),
                progress=report.inside,
            )
        mechanisms[name] = model.name
        longer[name] = {} if window.units is None else window.units.longer
    return fitted, mechanisms, longer


def _window(curator: Curator, view: View, name: str, sizes: Mapping[str, float], *, unit_sums: bool) -> CuratorWindow:
    """Open a window on a view. If it may measure unit sums, they know about how many rows a unit has."""
    window = curator.window(view, name=name, unit_sums=unit_sums)
    if window.units is None:
        return window
    mean = sizes[view.base] / max(sizes[curator.promise.root(view.base)], 1.0)
    return replace(window, units=replace(window.units, mean=mean))


def _favoured(plan: Plan, task: Task, columns: Columns) -> dict[Columns, float] | None:
    """Return the workload of a table where some is declared: of weight 1, as much as
    all other sets of columns together.
    """
    declared = favoured(plan, task)
    if not declared:
        return None
    order = min(3 if math.comb(len(columns), 3) <= MAX_TRIPLES else 2, len(columns))
    every = list(combinations(columns, order))
    wanted = dict.fromkeys(every, 1 / len(every))
    for names, weight in declared.items():
        key = tuple(c for c in columns if c in names)
        wanted[key] = wanted.get(key, 0.0) + weight
    return wanted


def _linked(plan: Plan, name: str) -> dict[Columns, float]:
    """Return what links see of a table's rows: sets of its columns, each with a degree,
    by the workloads they are in.
    """
    out: dict[Columns, float] = {}
    for child, key in counted_keys(plan, name):
        for relation in (r for r in relations(plan) if r.table == child):
            for side, other in ((relation.left, relation.right), (relation.right, relation.left)):
                own = [a.column for _, a in side if a.path == (key,) and parse_degree(a.column) is None]
                found = seen_through_links(
                    own, degree(child, key), others=len(other), k=plan.k, beside=len(side) - len(own)
                )
                for columns, weight in found.items():
                    out[columns] = out.get(columns, 0.0) + weight
    return out


def _learn_popularity(
    curator: Curator, blueprint: Blueprint, allocation: Allocation, report: Progress
) -> tuple[Blueprint, dict[str, float]]:
    """Count how often each row of a public table is led to, where noise lets that show;
    return what links have left, by task.

    One row of each owner counts for a target, which noise need hide no more of (docs/proofs, Theorem 5).
    """
    plan, found = blueprint.plan, {}
    left = {task.name: rho for task, rho in allocation.tasks.items() if task.group == "links"}
    for relation in relations(plan):
        task, target = link_task(relation), plan.database[relation.table].key[relation.key].target
        if task.name not in left or not has_popular_targets(plan, relation):
            continue
        if not isinstance(relation_model(plan, relation), MAP) or blueprint.public[target].num_rows > MOST_TARGETS:
            continue
        with report.step(f"count links to each row of {target}"):
            keys = curator.set_targets(relation.table, relation.key)
            window = curator.window(newcomer_view(relation), name=popularity_task(relation).name) if keys else None
            order = _places(keys, blueprint.public[target], plan.database[relation.table].key[relation.key])
            if window is None or order is None:
                continue
            (column,) = window.shape
            mean = blueprint.sizes[relation.table] * blueprint.share(relation.table, relation.key) / len(keys)
            rho = left[task.name] * share_for(
                rho=left[task.name], l2=window.l2((column,)), mean=mean, targets=len(keys)
            )
            if rho > 0:
                (noisy,) = window.measure([(column,)], rho=rho)
                left[task.name] = subtract(left[task.name], rho)
                codes = WeavingState(plan, blueprint.public, seed=0).codes[target]
                found[relation.table, relation.key] = popularity(noisy.counts[order], sigma=noisy.sigma, columns=codes)
    return replace(blueprint, popularity=found), left


def _places(keys: tuple[Scalar, ...], table: pa.Table, key: ForeignKey) -> IntArray | None:
    """Which of ``keys`` each row of a public table has; None where they are not the same."""
    place = {value: i for i, value in enumerate(keys)}
    rows = table[key.target_columns[0]].to_pylist() if keys else []
    return np.array([place[v] for v in rows]) if len(rows) == len(place) == len(place.keys() & set(rows)) else None


def _learn_links(
    curator: Curator,
    blueprint: Blueprint,
    shares: Mapping[str, float],
    longer: Mapping[str, Mapping[str, float]],
    report: Progress,
) -> tuple[list[dict[str, object]], dict[tuple[str, str], Any]]:
    """Weave a first database, learning each relation when its turn comes; what was measured stays in the release.

    Returns what the noisy counts say about each relation, and what was fitted to them.
    """
    found: list[dict[str, object]] = []
    fits: dict[tuple[str, str], Any] = {}

    def learn(relation: Relation, problem: LinkProblem, degrees: Degrees, rng: np.random.Generator) -> IntArray | None:
        name = link_task(relation).name
        if name not in shares:
            return None
        unit_sums = any(counted(blueprint.plan, relation) for counted in (is_summed_by_unit, is_clipped, is_owned))
        window = _window(curator, relation.view, name, blueprint.sizes, unit_sums=unit_sums)
        if window.units is not None:
            told = longer.get(relation.table, {})
            own = {n: told[a.column] for n, a in relation.left if not a.path and a.column in told}
            window = replace(window, units=replace(window.units, longer=own))
        model = _for_hidden(relation_model(blueprint.plan, relation), relation, problem, degrees)
        with report.step(f"learn links {relation.table}.{relation.key}"):
            result = model.learn(window, problem, rho=shares[name], rng=rng, progress=report.inside, degrees=degrees)
        found.append(
            {
                "relation": f"{relation.table}.{relation.key}",
                **describe(problem, result.measured, degrees=degrees, rng=rng),
            }
        )
        if result.fit is not None and isinstance(model, Refittable):
            fits[relation.table, relation.key] = result.fit
        return result.pairs

    if shares:
        Weaver(blueprint, linker=learn, scale=1.0, seed=0, fits=fits).wire()
    asked = {e["relation"] for e in found}
    left = [r for r in relations(blueprint.plan) if f"{r.table}.{r.key}" not in asked]
    return [*found, *(_unlearned(blueprint.plan, r) for r in left)], fits


def _for_hidden(model: LinkModel, relation: Relation, problem: LinkProblem, degrees: Degrees) -> LinkModel:
    """Favour how columns of owned rows go with their owner's degree, by the share of rows that bounds hide.

    What hidden rows are like is told by nothing else (:func:`dpweave.links.draw_links.renewed_rows`).
    """
    if not (isinstance(model, MAP) and problem.left_may_repeat) or degrees.right is None or degrees.right_seen is None:
        return model
    hidden = 1 - float((degrees.right * degrees.right_seen).sum()) / max(float(degrees.right.sum()), 1.0)
    counted = [n for n, a in relation.right if parse_degree(a.column) == (relation.table, relation.key)]
    pairs: dict[Columns, float] = {(n, c): hidden / len(relation.left) for n, _ in relation.left for c in counted}
    return replace(model, favoured={**pairs, **model.favoured}) if hidden > 0 else model


def _unlearned(plan: Plan, relation: Relation) -> dict[str, object]:
    """Say of a relation that nothing was asked about its links, and why."""
    if link_method(plan, relation.table, relation.key) == "random":
        why = "the plan asks for that"
    elif is_dictated(plan, relation.table, relation.key):
        why = "another key shares its columns"
    elif not relation.learnable:
        why = "one of its sides has no column to correlate"
    else:
        why = "the noisy sizes leave no rows to link, or its tables nothing to ask for"
    verdict = f"links are wired at random within the degrees, because {why}; nothing was measured about them"
    return {"relation": f"{relation.table}.{relation.key}", "verdict": verdict, "components": []}
