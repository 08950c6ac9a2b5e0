"""Commands that read a plan or a catalogue and never a row: draft, check, explain, diff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpweave import chosen
from dpweave.cli.options import (
    DeltaOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    Neighbours,
    QuietOption,
    SchemaOption,
    SourceArgument,
    app,
)
from dpweave.cli.outputs import require_free_file
from dpweave.cli.screen import after_draft, check_words, say, say_json
from dpweave.engines.staging import write_text

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN.TOML", help="A plan, from 'dpweave draft'.")]


@app.command()
def draft(
    source: SourceArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PLAN.TOML", help="Where to write the plan.")],
    protect: Annotated[
        list[str] | None,
        typer.Option("--protect", metavar="TABLE", help="A table of units to protect; repeat it. Without: proposed."),
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option("--public", metavar="TABLE", help="A table that anybody may see, copied as it is; repeat it."),
    ] = None,
    neighbours: Annotated[
        Neighbours,
        typer.Option("--neighbours", help="Hide whether a unit is there (entity), or what it says (record)."),
    ] = Neighbours.ENTITY,
    max_degree: Annotated[
        int, typer.Option("--max-degree", help="First guess of how many rows may point at one row through a key.")
    ] = 10,
    schema: SchemaOption = None,
    view: Annotated[
        list[str] | None,
        typer.Option("--view", metavar="NAME", help="A view of a server that is taken for a table; repeat it."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a first plan, with comments, for you to edit.

    Reads the catalogue and never a row. The plan says who is protected, how many rows one unit may own, and which
    values each column can take. All of it is public.
    """
    from dpweave.explain.draft_notes import draft_text, not_copied, untyped

    require_free_file(out, force=force)
    plan, text = draft_text(
        source,
        protect=tuple(protect or ()),
        public=tuple(public or ()),
        neighbours=neighbours.value,
        max_degree=max_degree,
        schema=schema,
        views=tuple(view or ()),
    )
    write_text(out, text)
    left_out = not_copied(source, schema=schema, views=tuple(view or ()))
    if as_json:
        say_json(
            {
                "plan": str(out),
                "protect": list(plan.protect),
                "public": list(plan.public),
                "not_copied": list(left_out),
                "content": plan.to_dict(),
            }
        )
    else:
        say(after_draft(plan, out, left_out=left_out, untyped=untyped(source, schema=schema)), quiet=quiet)


@app.command()
def explain(
    plan: PlanArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption = chosen.DELTA,
    as_json: JsonOption = False,
) -> None:
    """Say what a plan promises, spends and can give.

    Needs the plan alone: no database, no row, no budget. Change the plan until you like what you read.
    """
    from dpweave.plan.plan import Plan

    explanation = Plan.load(plan).explain(epsilon=epsilon, delta=delta)
    if as_json:
        say_json(explanation.to_dict())
    else:
        say(str(explanation))


@app.command()
def check(plan: PlanArgument, source: SourceArgument, schema: SchemaOption = None, as_json: JsonOption = False) -> None:
    """Hold a plan against the catalogue of SOURCE, and list what is risky.

    Reads the catalogue and never a row; spends nothing. Exit code 3 where a fit would be refused.
    """
    from dpweave.explain.check_plan import check_plan
    from dpweave.plan.plan import Plan

    findings = check_plan(Plan.load(plan), source, schema=schema)
    if as_json:
        say_json({"findings": [{"severity": f.severity, "where": f.where, "text": f.text} for f in findings]})
    else:
        say(check_words(findings))
    if any(f.severity == "wrong" for f in findings):
        raise typer.Exit(3)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="PLAN_A.TOML", help="A plan.")],
    second: Annotated[Path, typer.Argument(metavar="PLAN_B.TOML", help="Another plan, for the same database.")],
    epsilon: EpsilonOption,
    delta: DeltaOption = chosen.DELTA,
    as_json: JsonOption = False,
) -> None:
    """Say what changes in promise, noise and worth from one plan to another.

    Needs the two plans alone: no database, no row, no budget.
    """
    from dpweave.explain.compare_plans import compare_plans
    from dpweave.plan.plan import Plan

    found = compare_plans(Plan.load(first), Plan.load(second), epsilon=epsilon, delta=delta)
    if as_json:
        say_json(found.to_dict())
    else:
        say(str(found))
