"""The command line: parse, call the library, map one exception tree to exit codes.

Nothing here computes. Heavy imports happen inside commands, so that ``dpweave --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dpweave.cli.plan_commands
import dpweave.cli.studio_command
import dpweave.cli.upkeep_commands  # noqa: F401 - they register their commands
from dpweave import chosen
from dpweave.cli.interruption import interruptible
from dpweave.cli.options import (
    DeltaOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LabelOption,
    LedgerOption,
    ModelArgument,
    PlanOption,
    QuietOption,
    ResumeOption,
    ScaleOption,
    SchemaOption,
    SeedOption,
    SourceArgument,
    app,
)
from dpweave.cli.outputs import beside, keep, kept_safe, require_apart, require_free_file, without_password
from dpweave.cli.screen import (
    complain,
    database_dict,
    database_words,
    rows_apart,
    sample_words,
    say,
    say_json,
    spent_words,
    unspent,
    verdict_words,
    verified_words,
)
from dpweave.errors import DpweaveError, UsageError, memory_said

if TYPE_CHECKING:
    from dpweave.model.synthetic_database import SyntheticDatabase


def main() -> None:
    """Run the command line; errors of our own tree become one sentence and an exit code."""
    try:
        with memory_said("give it more, or give it less to do"):
            app()
    except SystemExit as stop:
        if stop.code == UsageError.exit_code and "--json" in sys.argv:  # the parser has said why, to people
            say_json({"error": "the arguments are wrong; the error stream says which", "exit_code": stop.code})
        raise
    except DpweaveError as error:
        complain(str(error), error.exit_code)
        sys.exit(error.exit_code)
    except Exception as error:  # its message might hold a private value, so it is not shown
        if os.environ.get("DPWEAVE_DEBUG"):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"a bug: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}; "
            "set DPWEAVE_DEBUG=1 to see it whole (that may show private values) and report it",
            1,
        )
        sys.exit(1)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("dpweave"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Turn a private relational database into a synthetic one that anybody may have."""


# -- spending ----------------------------------------------------------------------------------------------------------


@app.command()
def fit(
    source: SourceArgument,
    epsilon: EpsilonOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="MODEL", help="Where to write the model, such as shop.dpw.")
    ],
    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", metavar="PLAN.TOML", help="The plan. With --extend: that of the model."),
    ] = None,
    delta: DeltaOption = chosen.DELTA,
    ledger: LedgerOption = Path("ledger.jsonl"),
    label: LabelOption = None,
    resume: ResumeOption = False,
    schema: SchemaOption = None,
    extend: Annotated[
        Path | None,
        typer.Option("--extend", metavar="MODEL", help="An earlier model of SOURCE, whose answers count too."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Spend the budget once: measure SOURCE, write a model.

    The model can be sampled forever. Every charge is on disk in the ledger before a row is
    read, and every answer is kept beside it: a fit that was cut off goes on with --resume.
    With --extend, epsilon is spent on top of what an earlier model has cost, and the
    certificate states the total. The model holds noisy counts and the certificate, never a row: it may be shared.
    """
    from dpweave.fitting.fit import fit as library_fit
    from dpweave.model.model import load
    from dpweave.plan.plan import Plan
    from dpweave.report.html_report import verdict as judge

    if plan is None and extend is None:
        raise UsageError("fit takes a plan: --plan plan.toml, from 'dpweave draft SOURCE -o plan.toml'")
    require_apart(source, out)
    require_free_file(out, force=force)
    chosen = None if plan is None else Plan.load(plan)
    earlier = None if extend is None else load(extend)
    with interruptible(out, ledger=ledger):
        model = library_fit(
            source,
            chosen,
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            label=label,
            progress=not quiet,
            resume=resume,
            schema=schema,
            extend=earlier,
        )
        keep(model, out, ledger=ledger, force=force)
    if as_json:
        say_json(
            {
                "model": str(out),
                "sizes": dict(model.sizes),
                "unspent": unspent(model.certificate, epsilon),
                "verdict": judge(model).to_dict(),
                "certificate": json.loads(model.certificate.to_json()),
            }
        )
    else:
        say(
            f"{spent_words(model.certificate, asked=epsilon)}\n{verdict_words(judge(model))}\n"
            f"Wrote {out}. Next: dpweave sample {out} -o copy.duckdb",
            quiet=quiet,
        )


@app.command()
def sample(
    model: ModelArgument,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="TARGET",
            help="copy.duckdb, copy.sqlite, postgresql://…, mysql://…, or a folder (Parquet; CSV if it ends in .csv).",
        ),
    ],
    scale: ScaleOption = 1.0,
    seed: SeedOption = 0,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that weave parts of a large copy, each in memory of its own.")
    ] = 1,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw a synthetic database from a model, for free.

    Sampling costs no budget. The same seed gives the same rows, however many workers weave them.
    """
    from dpweave.engines.writing import require_free
    from dpweave.model.model import load

    require_free(out, overwrite=force)
    loaded = load(model)
    require_free(out, overwrite=force, database=loaded.plan.database)
    with interruptible(out):
        copy = _sample_and_write(loaded, out, scale=scale, seed=seed, workers=workers, force=force, quiet=quiet)
    if as_json:
        say_json(
            {
                "target": without_password(out),
                "scale": scale,
                "seed": seed,
                "rows": copy.rows,
                **rows_apart(copy, loaded.plan.public),
                "repairs": dict(copy.repairs),
            }
        )
    else:
        say(sample_words(copy, without_password(out), public=loaded.plan.public), quiet=quiet)


@app.command()
def report(
    model: ModelArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The synthetic database that was drawn from it.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="REPORT.HTML", help="Where to write the report.")],
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page about a copy that is safe to share.

    Made from the release and the synthetic rows alone. It shows the promise, the
    certificate, and each noisy measurement with its error band next to the synthetic value.
    """
    from dpweave.cli.read_copy import read_copy
    from dpweave.model.model import load
    from dpweave.progress import reporter
    from dpweave.report.html_report import report as write_report

    require_free_file(out, force=force)
    steps = reporter(not quiet)
    with interruptible(out):
        loaded = load(model)
        with ExitStack() as held:
            with steps.step("read the copy"):
                copy = held.enter_context(read_copy(target, loaded.plan))
            with steps.step("compare it with the release"):
                write_report(loaded, copy, out)
    if as_json:
        say_json({"report": str(out), "bytes": out.stat().st_size})
    else:
        say(f"Wrote {out}. It holds nothing private, provided that this model made the copy.", quiet=quiet)


@app.command()
def run(
    source: SourceArgument,
    out: Annotated[str, typer.Option("--out", "-o", metavar="TARGET", help="Where to write the copy, as in 'sample'.")],
    epsilon: EpsilonOption,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", metavar="PLAN.TOML", help="The plan. Without: drafted, for a first look."),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option("--protect", metavar="TABLE", help="Without a plan: a table of units to protect; repeat it."),
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option("--public", metavar="TABLE", help="Without a plan: a table that anybody may see; repeat it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without a plan: do not ask before spending.")] = False,
    delta: DeltaOption = chosen.DELTA,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FILE", help="Where to keep the model. Without: TARGET's name, .dpw."),
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Where to put the report. Without: TARGET's name, .html."),
    ] = None,
    ledger: LedgerOption = Path("ledger.jsonl"),
    label: LabelOption = None,
    resume: ResumeOption = False,
    schema: SchemaOption = None,
    scale: ScaleOption = 1.0,
    seed: SeedOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit, sample and report in one go.

    Spends the budget once. The model is kept too: sample it again for free.
    Without a plan, one is drafted from the catalogue, explained in ten lines, and
    left beside TARGET. It asks once before it spends.
    """
    from dpweave.cli.first_look import drafted
    from dpweave.engines.writing import require_free
    from dpweave.fitting.fit import fit as library_fit
    from dpweave.plan.plan import Plan
    from dpweave.report.html_report import report as write_report
    from dpweave.report.html_report import verdict as judge

    if plan is not None and (protect or public or yes):
        raise UsageError("--protect, --public and --yes are for a first look; with --plan, the plan says who and what")
    kept, page = model or beside(out, ".dpw"), report_file or beside(out, ".html")
    left = plan or beside(out, ".toml")
    if plan is None and resume:
        raise UsageError(f"the plan of a first look that was cut off is in {left}: go on with --plan {left} --resume")
    files = (kept, page) if plan else (kept, page, left)
    require_apart(source, out, *files)
    require_free(out, overwrite=force)
    for path in files:
        require_free_file(path, force=force)
    if plan is None:
        chosen = drafted(
            source,
            left,
            protect=tuple(protect or ()),
            public=tuple(public or ()),
            epsilon=epsilon,
            delta=delta,
            yes=yes,
            schema=schema,
            quiet=quiet or as_json,
        )
    else:
        chosen = Plan.load(plan)
    require_free(out, overwrite=force, database=chosen.database)
    with interruptible(kept, out, page, ledger=ledger):
        fitted = library_fit(
            source,
            chosen,
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            label=label,
            progress=not quiet,
            resume=resume,
            schema=schema,
        )
        keep(fitted, kept, ledger=ledger, force=force)
        with kept_safe(kept):
            copy = _sample_and_write(fitted, out, scale=scale, seed=seed, force=force, quiet=quiet)
            write_report(fitted, copy, page)
    if as_json:
        certificate = json.loads(fitted.certificate.to_json())
        say_json(
            {
                "model": str(kept),
                "target": without_password(out),
                "report": str(page),
                "plan": str(left),
                "rows": copy.rows,
                **rows_apart(copy, chosen.public),
                "unspent": unspent(fitted.certificate, epsilon),
                "verdict": judge(fitted).to_dict(),
                "certificate": certificate,
            }
        )
    else:
        said = sample_words(copy, without_password(out), public=chosen.public)
        judged = verdict_words(judge(fitted))
        wrote = f"{kept} and {page}" if plan else f"{kept}, {page} and the plan {left}"
        say(f"{spent_words(fitted.certificate, asked=epsilon)}\n{said}\n{judged}\nWrote {wrote}.", quiet=quiet)


@app.command()
def evaluate(
    source: SourceArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The synthetic database.")],
    plan: PlanOption,
    k: Annotated[int, typer.Option("-k", help="Compare marginals of up to so many columns.")] = 3,
    predict: Annotated[
        str | None,
        typer.Option(
            "--predict", metavar="TABLE.COLUMN", help="A column to predict on real rows, trained on synthetic ones."
        ),
    ] = None,
    may_see: Annotated[
        bool, typer.Option("--i-may-see-real-data", help="Say that you may look at the private rows themselves.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.HTML", help="Write it as HTML too.")] = None,
    schema: SchemaOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a copy with the real rows: NOT PRIVATE.

    No budget covers this, and the result must not leave those who may see SOURCE. It is
    for people who hold the data and want to know how good the copy is.
    """
    if not may_see:
        raise UsageError(
            "evaluate looks at real rows and its result is not private; say --i-may-see-real-data if you may"
        )
    from dpweave.cli.read_copy import read_copy
    from dpweave.evaluation.evaluate import evaluate as library_evaluate
    from dpweave.plan.plan import Plan

    if out is not None:
        require_free_file(out, force=force)
    chosen = Plan.load(plan)
    with interruptible(*([] if out is None else [out])):
        with read_copy(target, chosen) as copy:
            result = library_evaluate(source, copy, chosen, k=k, target=predict, progress=not quiet, schema=schema)
        if out is not None:
            result.to_html(out)
    if as_json:
        say_json(result.to_dict())
    else:
        say(str(result), quiet=quiet)


@app.command()
def ledger(
    file: Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file, such as ledger.jsonl.")],
    delta: Annotated[
        float, typer.Option("--delta", "-d", help="Total delta at which epsilon is stated.")
    ] = chosen.DELTA,
    cap_epsilon: Annotated[
        float | None, typer.Option("--cap-epsilon", help="Let all runs together spend no more than this.")
    ] = None,
    cap_delta: Annotated[float, typer.Option("--cap-delta", help="Delta of the cap.")] = chosen.DELTA,
    database: Annotated[
        str | None, typer.Option("--database", help="Which database the cap is for, where the ledger knows several.")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option("--release", metavar="RUN", help="Give back what a run that died had reserved and not spent."),
    ] = None,
    anchor: Annotated[
        bool, typer.Option("--anchor", help="Print one line to keep elsewhere: it stands for the file as it is now.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Say whether every line follows the one before, and print nothing else.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="ANCHOR", help="With --verify: an anchor, or a file of them, kept elsewhere."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was spent on what, and set a cap.

    Spending adds up over runs: two copies fitted apart reveal more than one. A cap
    stops the run that would pass it, before a row is read. A run that goes on reserves
    all it may spend; one that died gives it back when the next begins. Lines that were
    edited are always refused; an end that was cut off is noticed with --against.
    """
    from dpweave.budget.anchors import anchor as anchor_of
    from dpweave.budget.anchors import require_anchors
    from dpweave.budget.running_fits import give_back
    from dpweave.budget.spending import read
    from dpweave.privacy.ledger import set_cap

    if against is not None and not verify:
        raise UsageError("--against says what to verify the ledger against; give it with --verify")
    if release is not None:
        give_back(file, release)
    if cap_epsilon is not None:
        set_cap(file, database=_capped_database(file, database), epsilon=cap_epsilon, delta=cap_delta)
    elif database is not None and database not in read(file).databases:
        raise UsageError(
            f"the ledger {file} knows no database {database!r}: {', '.join(read(file).databases) or 'it is empty'}"
        )
    held = None if against is None else require_anchors(file, _text(against))
    found = {n: d for n, d in read(file).databases.items() if database in (None, n)}
    if as_json:
        databases = {n: database_dict(d, delta) for n, d in found.items()}
        say_json({"ledger": str(file), "anchor": anchor_of(file), "anchors_held": held, "databases": databases})
    elif verify:
        say(verified_words(anchor_of(file), held))
    elif anchor:
        say(anchor_of(file))
    else:
        say("\n\n".join(database_words(n, d, delta) for n, d in found.items()) or "Nothing was ever spent.")


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to put the shop and its copy.")
    ] = Path("dpweave-demo"),
    rows: Annotated[int, typer.Option("--rows", help="About how many rows the made-up shop has.")] = 200_000,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = chosen.DELTA,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make up a shop and copy it, in under a minute.

    The rows come from a random number generator, so real figures may be shown next to synthetic ones.
    """
    from dpweave.cli.demo import run as run_demo

    with interruptible(ledger=out / "ledger.jsonl"):
        result = run_demo(out, rows=rows, epsilon=epsilon, delta=delta, progress=not quiet)
    if as_json:
        say_json(result.to_dict())
    else:
        say(str(result), quiet=quiet)


# -- shared steps ------------------------------------------------------------------------------------------------------


def _sample_and_write(
    model: Any, out: str, *, scale: float, seed: int, force: bool, quiet: bool, workers: int = 1
) -> SyntheticDatabase:
    from dpweave.progress import reporter

    steps = reporter(not quiet)
    with steps.step("sample"):
        copy: SyntheticDatabase = model.sample(scale=scale, seed=seed, workers=workers, progress=steps.inside)
    with steps.step("write"):
        copy.write(out, overwrite=force, progress=steps.inside)
    return copy


def _text(given: str) -> str:
    """Return what a file holds, or the text itself where there is no such file."""
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return given


def _capped_database(file: Path, database: str | None) -> str:
    from dpweave.budget.spending import read

    if database is not None:
        return database
    known = list(read(file).databases) if file.exists() else []
    if len(known) != 1:
        nobody = (
            "the ledger knows none yet. fit will call it by the name of its file or folder, such as shop.duckdb, or by"
            " its address without user and password, such as postgresql://db.example/shop"
        )
        raise UsageError(f"say with --database which database the cap is for: {', '.join(known) or nobody}")
    return known[0]


if __name__ == "__main__":
    main()
