"""Commands that look after what a fit has left, and never read a row: refit, verify, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpweave.cli.interruption import interruptible
from dpweave.cli.options import ForceOption, JsonOption, LedgerOption, ModelArgument, QuietOption, app
from dpweave.cli.outputs import require_free_file
from dpweave.cli.screen import check_words, folded, say, say_json, verdict_words
from dpweave.errors import ModelFileError, TargetError

KnownLedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger that the fit was charged to.")
]


@app.command()
def refit(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Where to write the new model.")],
    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", metavar="PLAN.TOML", help="A changed plan. Without: the plan that it has."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn again from a model's answers, for free: no row is read.

    As this version of dpweave learns, or under a changed plan: other mechanisms, link
    methods, rules, placeholders. The certificate stays as it is. What would need a new
    question is refused by name.
    """
    from dpweave.fitting.refit import refit as library_refit
    from dpweave.model.model import load
    from dpweave.plan.plan import Plan
    from dpweave.report.html_report import verdict as judge

    require_free_file(out, force=force)
    with interruptible(out):
        better = library_refit(load(model), None if plan is None else Plan.load(plan), progress=not quiet)
        better.save(out)
    if as_json:
        lineage = [dict(step) for step in better.lineage]
        judged = judge(better).to_dict()
        say_json({"model": str(out), "sizes": dict(better.sizes), "verdict": judged, "lineage": lineage})
    else:
        wrote = f"Wrote {out}. Nothing was spent. Next: dpweave sample {out} -o copy.duckdb"
        say(f"{verdict_words(judge(better))}\n{wrote}", quiet=quiet)


@app.command()
def verify(model: ModelArgument, ledger: KnownLedgerOption = None, as_json: JsonOption = False) -> None:
    """Work out again what a model cost: is its certificate true?

    Every answer in the release is priced anew, and answers, plan and certificate are held
    against their digests. With --ledger, against every charge too. Exit code 5 if not true.
    """
    from dpweave.model.model import load
    from dpweave.model.verification import verify as library_verify

    found = library_verify(load(model), ledger=ledger)
    if as_json:
        say_json({"model": str(model), **found.to_dict()})
    else:
        say(folded(str(found), indent=11))
    if not found.true:
        raise typer.Exit(ModelFileError.exit_code)


@app.command()
def doctor(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN.TOML]", help="A plan to look at too.")] = None,
    ledger: LedgerOption = Path("ledger.jsonl"),
    as_json: JsonOption = False,
) -> None:
    """Say what a fit here would meet, and what to do about it.

    Versions, engines, permissions, disk, locks, files that were left, and the state of the
    ledger. Spends nothing. Exit code 5 where something would stop a fit.
    """
    from dpweave.explain.doctor import diagnose

    found = diagnose(plan=plan, ledger=ledger)
    if as_json:
        say_json(found.to_dict())
    else:
        say(check_words(found.findings))
    if not found.well:
        raise typer.Exit(TargetError.exit_code)
