"""The command line: parse, call the library, print.

Lives here:
  - ``commands``: one function per command. ``plan_commands``: those that read a plan or a catalogue and never a row.
    ``upkeep_commands``: those that look after models and ledgers. ``studio_command``: the page.
    ``options``: arguments and options that they share.
  - ``screen``: the words that a command prints. ``outputs``: where a command may write.
  - ``interruption``: what happens at Ctrl-C. ``demo``: the made-up shop. ``read_copy``: a copy read back.
    ``first_look``: a copy without a plan file.

Does not live here: anything that computes. A command calls a public function and prints what it returns.
Heavy imports happen inside commands, so that ``dpweave --help`` answers at once.

Start with ``commands``.
"""

from __future__ import annotations

from dpweave.cli.commands import main

__all__ = ["main"]
