"""refit(): a release in, another model out. No row is read, nothing is spent."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from dpweave.budget.tasks import link_task
from dpweave.errors import PlanError
from dpweave.fitting.learned_tables import learn_table, limits, table_answers
from dpweave.fitting.link_learning import learn_links, with_popularity
from dpweave.fitting.measured_sizes import known_degrees, known_sizes
from dpweave.fitting.replanning import replanned
from dpweave.fitting.rule_structure import with_zeros
from dpweave.links.map_learner import MAP
from dpweave.links.relation_model import relation_model
from dpweave.model.model import Model, degree_counts, repetitions
from dpweave.progress import reporter
from dpweave.schema.fake_values import require_faker
from dpweave.tables.auto import Auto, ChosenTable
from dpweave.tables.base import Learner, table_model
from dpweave.tables.external import ExternalTable
from dpweave.weaving.blueprint import Blueprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpweave.plan.plan import Plan
    from dpweave.tables.base import FittedTable, TableModel

DEEP = ("aim", "mst", "woven")
"""Mechanisms that learn how columns go together."""


def refit(model: Model, plan: Plan | None = None, *, progress: bool | Callable[[str, float], None] = False) -> Model:
    """Learn again from what a model's release holds, as this version of dpweave learns, or under a changed ``plan``.

    Reads no row, spends nothing, and leaves the certificate as it is. A plan may change whatever decides how answers
    are used: mechanisms, link methods, rules, placeholders, ``rows``. What it says ``learn`` about was learned already.
    What would need another question is refused by name. Without changes it gives the model that the fit gave.
    """
    settled = model.plan if plan is None else replanned(model.plan, plan)
    require_faker(settled.placeholders)
    _require_answered(model, settled)
    report, release, compiled = reporter(progress), model.release, settled.compile()
    known = known_sizes(compiled, release, known_degrees(compiled, release))
    sizes = {name: rows.used for name, rows in known.items()}
    tables: dict[str, FittedTable] = {}
    for name, before in model.tables.items():
        with report.step(f"learn table {name}"):
            learner = _learner(model, settled, name)
            codes = before.codes if isinstance(before, ExternalTable) else None
            limited = with_zeros(settled, name, limits(settled, name), model.public, codes)
            if learner is None:
                tables[name] = before
            else:
                tables[name] = learn_table(settled, name, learner, limited, release, rows=sizes[name])
    blueprint = Blueprint(
        settled,
        sizes,
        tables,
        model.public,
        degree_counts(compiled, release),
        repetitions(compiled, release),
        {name: rows.loose for name, rows in known.items()},
    )
    blueprint = with_popularity(blueprint, release)
    _, fits = learn_links(release, blueprint, report)
    mechanisms = {name: settled.table[name].mechanism for name in tables}
    step = {"step": "refit", "version": version("dpweave"), "plan": "as it was" if settled == model.plan else "changed"}
    return Model(
        blueprint,
        model.certificate,
        release,
        mechanisms,
        fits,
        model.answers,
        asked=model.asked or model.plan,
        lineage=(*model.lineage, step),
        written=model.written,
    )


def _learner(model: Model, plan: Plan, name: str) -> Learner[FittedTable] | None:
    """Return what learns a table; None where its mechanism cannot learn from answers, so that it stays as it is."""
    wanted, before = plan.table[name].mechanism, model.tables[name]
    if isinstance(before, ExternalTable):
        return _made(wanted, codes=before.codes)
    if wanted == "auto":
        return Auto(before.mechanism if isinstance(before, ChosenTable) else "")
    return _made(wanted)


def _made(mechanism: str, **options: object) -> Learner[FittedTable] | None:
    made: TableModel = table_model(mechanism, **options)
    return made if isinstance(made, Learner) else None


def _require_answered(model: Model, plan: Plan) -> None:
    """Refuse by name what the release has no answer to."""
    compiled, before = plan.compile(), model.plan.compile()
    for name in model.tables:
        wanted, was = plan.table[name].mechanism, model.mechanisms[name]
        if wanted == was:
            continue
        if wanted not in ("auto", "independent", *DEEP):
            raise PlanError(
                f"table {name!r}: the mechanism {wanted!r} asks as it learns, so it cannot learn from answers that were"
                f" given to {was!r}; take another one, or make a new fit"
            )
        varying = [c for c in compiled.table[name].model_columns if compiled.table[name].codes(c) > 1]
        known_counts = table_answers(compiled, name, model.release, rows=model.sizes[name])
        if wanted in DEEP and len(varying) > 1 and all(len(m.columns) < 2 for m in known_counts):
            raise PlanError(
                f"table {name!r}: {wanted!r} learns how columns go together, and the release counts each of them by"
                f" itself; keep {was!r}, or make a new fit"
            )
    known = {m.what for m in model.release.measured} | {m.what for m in model.release.summed_by_unit}
    for relation in compiled.relations:
        at, old = f"{relation.table}.{relation.key}", before.relation.get((relation.table, relation.key))
        if not relation.is_learned:
            continue
        answered = link_task(relation).name in known
        if old is None or (not old.is_learned and not answered):
            raise PlanError(f"links {at}: nothing was asked about them; keep their method 'random', or make a new fit")
        if answered and old.view != relation.view:
            raise PlanError(f"links {at}: they were counted by other columns; undo what changes them, or fit anew")
        if old.method != relation.method and not isinstance(relation_model(compiled, relation), MAP):
            raise PlanError(
                f"links {at}: the method {relation.method!r} asks as it learns, so it cannot learn from answers that"
                f" were given to {old.method!r}; take 'map', or make a new fit"
            )
