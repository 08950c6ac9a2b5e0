"""``python -m dpweave.cli``."""

from dpweave.cli.commands import main

main()
