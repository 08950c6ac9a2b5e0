"""Commands that look after what a fit has left, and never read a row: verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpweave.cli.options import JsonOption, ModelArgument, app
from dpweave.cli.screen import folded, say, say_json
from dpweave.errors import ModelFileError

KnownLedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger that the fit was charged to.")
]


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
