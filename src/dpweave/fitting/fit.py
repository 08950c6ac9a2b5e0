"""fit(): private rows in, a model out. One straight page, top to bottom."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.allocation import Allocation, allocate, declared_costs
from dpweave.budget.kept_answers import KeptAnswers, find
from dpweave.budget.running_fits import begin
from dpweave.budget.tasks import (
    Task,
    is_category,
)
from dpweave.budget.ways_of_counting import table_way
from dpweave.engines.opening import open_source
from dpweave.errors import LedgerError, SourceError, UsageError, memory_said
from dpweave.fitting.external_rows import ExternalRows, read_external_rows
from dpweave.fitting.learned_tables import learn_table, limits, table_answers, with_workloads
from dpweave.fitting.link_learning import Asker, ask_popularity, learn_links, with_popularity
from dpweave.fitting.measured_sizes import (
    count_degrees,
    group_degrees,
    known_degrees,
    known_sizes,
    measure_sizes,
)
from dpweave.fitting.replanning import replanned
from dpweave.fitting.rule_structure import ask_for_dependencies, with_zeros
from dpweave.fitting.unit_windows import unit_window
from dpweave.measure.question import Way
from dpweave.model.extension import earlier_answers, require_extendable, total
from dpweave.model.model import Model, degree_counts, repetitions
from dpweave.model.verification import answers_digest, bound_certificate
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.certificate import said_of_lost, said_of_sizes
from dpweave.privacy.curator import Curator
from dpweave.privacy.noise import InsecureNoise, SecureNoise
from dpweave.privacy.release import certify
from dpweave.progress import Progress, reporter
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Domain, Learn, View
from dpweave.schema.fake_values import require_faker
from dpweave.tables.base import Learner, table_model
from dpweave.tables.centred_rows import centred, composition
from dpweave.tables.domains.learned_domains import categories_from, public_domain
from dpweave.tables.domains.learned_ranges import learn_bins, remarks
from dpweave.weaving.blueprint import Blueprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from dpweave.plan.plan import Plan
    from dpweave.privacy.ledger import Ledger
    from dpweave.privacy.noise import NoiseSource
    from dpweave.privacy.window import NoisyMarginal, Window
    from dpweave.schema.domain import Bins
    from dpweave.tables.base import FittedTable, Structure, TableModel
    from dpweave.tables.owned_row_counts import DegreeCounts, Rows


def fit(
    source: object,
    plan: Plan | None = None,
    *,
    epsilon: float,
    delta: float = chosen.DELTA,
    protect: Sequence[str] | None = None,
    public: Sequence[str] = (),
    ledger: str | Path | None = None,
    label: str | None = None,
    external: Mapping[str, object] | None = None,
    progress: bool | Callable[[str, float], None] = False,
    insecure_seed: int | None = None,
    resume: bool = False,
    schema: str | None = None,
    extend: Model | None = None,
) -> Model:
    """Spend (epsilon, delta) once on ``source`` as ``plan`` says, and return a model that can be sampled forever.

    For a first look, ``protect`` and ``public`` stand for a plan that :meth:`Plan.draft` makes of them; it is then in
    ``model.plan``.

    ``ledger`` names the file that remembers what was spent; without one, only the certificate does. ``label`` says in
    the ledger who asked. ``external`` brings the rows of tables whose mechanism is ``external``: data frames or paths,
    by table; (epsilon, delta) includes what their makers declared. ``insecure_seed`` makes the noise repeatable, for
    tests, and stamps the certificate INSECURE.

    Every answer is kept beside the ledger until the model is saved. ``resume`` goes on with a fit of the same arguments
    that was cut off: what was answered is not asked again, and a charge whose answer was lost is paid once more.
    ``schema`` names the schema of a PostgreSQL database, or the database of a MySQL server, that holds the tables.

    ``extend`` is a model of the same database that is to become better: (epsilon, delta) is spent on top, on questions
    of its plan, and what it was answered counts too, each answer by the inverse of its variance. Domains that it
    learned stay. The certificate states the total.
    """
    if extend is not None:
        plan = extend.plan if plan is None else replanned(extend.plan, plan)
    plan = _chosen(source, plan, protect, public, schema)
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    require_faker(plan.placeholders)
    plan, given_rows = read_external_rows(plan, external)
    models = {name: (_model(plan, name, given_rows), limits(plan, name)) for name in plan.promise.private}
    report = reporter(progress)
    noise = tried_noise(insecure_seed)
    if resume and ledger is None:
        raise UsageError("resume needs the ledger of the fit that was cut off: its answers were kept beside it")
    again_words = (
        "fit again" if ledger is None else "resume if anything was charged: answers are kept beside the ledger"
    )
    with (
        memory_said(f"give it more, and {again_words}"),
        open_source(source, schema=schema, views=plan.views) as opened,
        ExitStack() as at_end,
    ):
        opened.require_tables(plan.database.names)
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        limit = Budget(allocation.rho, allocation.spent_delta)
        if extend is not None:
            require_extendable(extend, source=opened.name, delta=delta, spent_delta=allocation.spent_delta)
        bound = _bound(plan, opened.name, epsilon, delta, given_rows, insecure_seed, extend)
        earlier = find(ledger, bound) if resume and ledger is not None else None
        run = begin(
            ledger,
            database=opened.name,
            limit=limit,
            tables=plan.protect,
            delta=delta,
            elsewhere=max(sum(declared_costs(plan).values(), Cost.zero()).rho.values(), default=0.0),
            label=label,
            resumes=earlier,
        )
        book = at_end.enter_context(run)
        seeded = noise if isinstance(noise, InsecureNoise) else None
        kept = None if ledger is None else KeptAnswers(book, ledger, noise=seeded)
        again = () if earlier is None or ledger is None else earlier.lost(ledger)
        if kept is not None:
            kept.begin(bound) if earlier is None else kept.go_on()
        salt = salt_of(book, insecure_seed)
        curator = Curator(opened, plan.promise, ledger=book, noise=noise, salt=salt, kept=kept)
        if extend is not None:
            curator.release = earlier_answers(extend)
        with report.step("check files, keys and bounds"):
            opened.require_whole(plan.database.names)
            curator.check()
        copied = {}
        for name in plan.public:
            with report.step(f"read public table {name}"):
                copied[name] = opened.whole(name)
        rows = {name: external.codes for name, external in given_rows.items()}
        models = {
            name: (model, with_zeros(plan, name, known, copied, rows.get(name)))
            for name, (model, known) in models.items()
        }
        elsewhere = _charge_external(book, plan, given_rows)
        measure_sizes(curator, plan.compile(), allocation, report)
        count_degrees(curator, plan.compile(), allocation, report)
        degrees = known_degrees(plan.compile(), curator.release)
        known = known_sizes(plan.compile(), curator.release, degrees)
        sizes = {name: rows.used for name, rows in known.items()}
        plan = _learn_domains(curator, plan, allocation, known, degrees, copied, report, regroup=extend is None)
        tables, mechanisms, longer = _fit_tables(curator, plan, allocation, sizes, models, report)
        blueprint = Blueprint(
            plan,
            sizes,
            tables,
            copied,
            degree_counts(plan.compile(), curator.release),
            repetitions(plan.compile(), curator.release),
            {name: rows.loose for name, rows in known.items()},
        )
        left = ask_popularity(curator, blueprint, allocation, report)
        blueprint = with_popularity(blueprint, curator.release)
        asker = Asker(curator, blueprint, left, allocation.siblings, longer)
        found, fits = learn_links(curator.release, blueprint, report, asker=asker)
        certificate = certify(
            plan.promise, book, delta=delta, insecure=curator.insecure, evidence=found, external=elsewhere
        )
        declared = {t.name: t.public_rows for t in plan.tables if t.public_rows is not None}
        said = (*said_of_sizes(declared, neighbours=plan.neighbours), *remarks(plan), *said_of_lost(again))
        certificate = replace(certificate, caveats=(*certificate.caveats, *said))
        if extend is not None:
            certificate = total(extend.certificate, certificate, plan.promise.protected)
        certificate = bound_certificate(certificate, curator.release, plan)
        with suppress(LedgerError):  # what was learned is not to be lost for that: others will end the run
            book.close(what={"digests": {**certificate.digests}})
    return Model(blueprint, certificate, curator.release, mechanisms, fits, None if kept is None else kept.path)


def _bound(
    plan: Plan,
    source: str,
    epsilon: float,
    delta: float,
    given_rows: Mapping[str, ExternalRows],
    seed: int | None,
    extend: Model | None,
) -> dict[str, str]:
    """Return what decides which questions a fit asks, as digests and plain words; answers belong to it."""
    rows = [(t, c, codes.tobytes()) for t, r in sorted(given_rows.items()) for c, codes in sorted(r.codes.items())]
    return {
        "plan": hashlib.sha256(plan.to_toml().encode()).hexdigest(),
        "source": source,
        "epsilon": repr(float(epsilon)),
        "delta": repr(float(delta)),
        "set of external rows": hashlib.sha256(repr(rows).encode()).hexdigest(),
        "insecure seed": str(seed),
        **({} if extend is None else {"model to extend": answers_digest(extend.release)}),
    }


def tried_noise(seed: int | None) -> NoiseSource:
    """Return where noise comes from, tried: what cannot be drawn must not be found out after a charge."""
    noise = SecureNoise() if seed is None else InsecureNoise(seed)
    try:
        if seed is None:
            noise.discrete_gaussian(np.zeros(1, dtype=np.int64), sigma=1.0)
    except (ImportError, MemoryError, OSError):
        raise SourceError(
            "noise cannot be drawn here: OpenDP does not load, most often because memory is limited (ulimit -v);"
            " nothing was charged"
        ) from None
    return noise


def salt_of(book: Ledger, insecure_seed: int | None) -> str:
    """Return the key of the order of rows: the same one for a run that goes on.

    Any key orders rows safely, if rows had no part in choosing it (docs/decisions/kept-answers.md).
    """
    return book.run if insecure_seed is None else f"seed {insecure_seed}"


def _chosen(
    source: object, plan: Plan | None, protect: Sequence[str] | None, public: Sequence[str], schema: str | None
) -> Plan:
    """Return the plan that was given, or draft one; either says who is protected, and never both."""
    from dpweave.plan.plan import Plan as Drafter

    if plan is None and protect:
        return Drafter.draft(source, protect=protect, public=public, schema=schema)
    if plan is None or protect is not None or public:
        raise UsageError("fit takes a plan, or for a first look protect=[…] and perhaps public=[…], and never both")
    return plan


def _model(plan: Plan, name: str, given_rows: Mapping[str, ExternalRows]) -> TableModel:
    """Return the table model of a table; what cannot be made is refused, before anything is spent."""
    return table_model(plan.table[name].mechanism, **({"codes": given_rows[name].codes} if name in given_rows else {}))


def _charge_external(book: Ledger, plan: Plan, given_rows: Mapping[str, ExternalRows]) -> list[dict[str, object]]:
    """Charge what the makers of tables made elsewhere declare. Returns what the certificate says about each."""
    found = []
    for name, cost in declared_costs(plan).items():
        external = plan.table[name].external
        assert external is not None
        said = external.declared
        what = {"verb": "declared", "what": f"external:{name}", "declared": said}
        if not any(e.kind == "charge" and e.what.get("what") == what["what"] for e in book.entries):  # when going on
            book.charge(cost, what=what)
        found.append(
            {
                "table": name,
                **said,
                "units": list(cost.rho),
                "rows": given_rows[name].rows,
                "source": given_rows[name].source,
            }
        )
    return found


def _learn_domains(
    curator: Curator,
    plan: Plan,
    allocation: Allocation,
    known: Mapping[str, Rows],
    degrees: Mapping[Task, DegreeCounts],
    public: dict[str, pa.Table],
    report: Progress,
    *,
    regroup: bool,
) -> Plan:
    """Fill in every domain that the plan wants learned, and tell the Curator how columns are coded.

    Groups of degrees stay as they are unless they are to be made anew.
    """
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
        if regroup:
            plan = group_degrees(curator, plan, allocation, name, degrees, known)
        for column_name, codec in plan.compile().table[name].derived_codecs.items():
            curator.set_codec(name, column_name, codec)
    return plan


def _learn_domain(
    curator: Curator, plan: Plan, allocation: Allocation, sizes: Mapping[str, float], task: Task, learn: Learn
) -> Domain:
    column = plan.table[task.table].column[task.item].column
    rho = allocation.tasks[task]
    if is_category(plan.compile(), task):
        found = curator.discover(task.table, task.item, what=task.name, rho=rho, delta=allocation.category_delta)
        return categories_from(found)
    if not column.type.ordered:
        raise UsageError(
            f"{task.table}.{task.item} is of type {column.type}, which cannot be learned; declare its domain or make it"
            " opaque"
        )

    def measure(bins: Bins, share: float) -> NoisyMarginal:
        curator.set_codec(task.table, task.item, Codec(column, bins))
        view, unit_sums = (
            View.of_table(task.table, (task.item,)),
            table_way(plan.compile().table[task.table]) is not Way.PLAIN,
        )
        window = unit_window(curator, view, task.name, sizes, unit_sums=unit_sums)
        return composition(window, [task.item], rho=share)[0]

    return learn_bins(column.type, learn, measure, rho=rho)


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
        unit_sums = table_way(plan.compile().table[name]) is not Way.PLAIN
        view = View.of_table(name, plan.compile().table[name].model_columns)
        window: Window = unit_window(curator, view, Task("tables", name).name, sizes, unit_sums=unit_sums)
        with report.step(f"fit table {name}"):
            before = table_answers(plan.compile(), name, curator.release, rows=sizes[name])
            window, left = centred(window, rho=rho, rows=sizes[name])
            asked, left = ask_for_dependencies(plan, name, window, structure, rho=left, rows=sizes[name])
            asked = replace(asked, measured=(*asked.measured, *before))
            asked = with_workloads(plan.compile(), name, tuple(window.shape), asked)
            ask = model.ask if isinstance(model, Learner) else model.fit
            found = ask(window, rho=left, rows=sizes[name], structure=asked, progress=report.inside)
            if isinstance(found, Learner):
                found = learn_table(plan, name, found, structure, curator.release, rows=sizes[name])
            fitted[name] = found
            report.inside("fitted", 1.0)
        mechanisms[name] = model.name
        longer[name] = {} if window.units is None else window.units.longer
    return fitted, mechanisms, longer
