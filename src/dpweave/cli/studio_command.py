"""The studio: a page on this machine for the whole way from a database to a copy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from dpweave.cli.options import LedgerOption, SourceArgument, app
from dpweave.cli.outputs import require_apart, without_password
from dpweave.cli.screen import say


@app.command()
def studio(
    source: SourceArgument,
    plan: Annotated[
        Path,
        typer.Option("--plan", "-p", metavar="PLAN.TOML", help="The plan; drafted and not yet saved if there is none."),
    ] = Path("plan.toml"),
    ledger: LedgerOption = Path("ledger.jsonl"),
    port: Annotated[int, typer.Option("--port", help="Where to listen on this machine. 0: any port that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser of this machine.")] = True,
) -> None:
    """Plan, spend and copy on a page in your browser.

    The page shows the catalogue and the plan, never a row. It listens on this machine
    alone, and only the browser that opens the link first can use it. Ctrl-C ends it.
    """
    from dpweave.studio.server import studio as serve

    require_apart(source, plan, ledger)
    with serve(source, plan, ledger=ledger, shown_source=without_password(source), port=port) as server:
        say(f"Open this link in a browser; it works once:\n\n  {server.link}\n\nCtrl-C ends the studio.")
        if browser:
            typer.launch(server.link)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("The studio has ended. What was saved stays.")
