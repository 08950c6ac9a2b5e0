"""Who gets how much of the budget, and why. Depends on public facts alone.

Lives here:
  - ``tasks``: everything that a fit asks. ``priorities``: what a share is worth to a task.
  - ``ways_of_counting``: how rows and links are counted, decided once for budgets, forecasts, fits and reports.
  - ``allocation``: epsilon and delta shared over the tasks.
  - ``spending``: what a ledger says, for people. ``running_fits``: which runs on a ledger are still going.
    ``anchors``: one line that stands for a ledger, to keep elsewhere.
  - ``kept_answers``: answers that were paid for, kept until the model is saved, so that a fit can go on.

Does not live here: what a mechanism costs, and the ledger itself (``privacy.accounting``, ``privacy.ledger``).

Start with ``allocation``.
"""
