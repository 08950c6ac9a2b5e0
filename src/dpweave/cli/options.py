"""The application object, and the arguments and options that commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="dpweave",
    help="Turn a private relational database into a synthetic one that anybody may have.",
    epilog="Start with 'dpweave demo', or with 'dpweave draft SOURCE -o plan.toml'. "
    "Exit codes: 0 done, 1 bug, 2 usage, 3 bad plan or schema, 4 budget refused, 5 source or target trouble, "
    "130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


class Neighbours(StrEnum):
    """Two neighbour relations."""

    ENTITY = "entity"
    RECORD = "record"


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="The private database: shop.duckdb, shop.sqlite, postgresql://…, mysql://…, "
        "or a folder of Parquet or CSV files.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema", metavar="NAME", help="On a server: the schema (PostgreSQL) or database (MySQL) of the tables."
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that 'dpweave fit' wrote.")]
PlanOption = Annotated[Path, typer.Option("--plan", "-p", metavar="PLAN.TOML", help="The plan, from 'dpweave draft'.")]
EpsilonOption = Annotated[
    float,
    typer.Option("--epsilon", "-e", help="How much the release may reveal about one unit. 1 is strong, 10 is weak."),
]
DeltaOption = Annotated[
    float, typer.Option("--delta", "-d", help="Chance that the promise fails; well below one in the number of units.")
]
LedgerOption = Annotated[
    Path, typer.Option("--ledger", metavar="FILE", help="The file that remembers what was spent; made when missing.")
]
LabelOption = Annotated[str | None, typer.Option("--label", help="Who asks, for the ledger.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on with a fit that was cut off; what it paid for is not paid again."),
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Replace the output if it exists.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no words, errors excepted.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")]
ScaleOption = Annotated[float, typer.Option("--scale", help="Size of the copy, relative to the original.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="The same seed gives the same copy; another one, another copy.")
]
