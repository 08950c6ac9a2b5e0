"""What people read before a fit. Works from the plan, epsilon and delta alone: no row is read, nothing is spent.

Lives here:
  - ``explain_plan``: works out the values of an explanation.
  - ``explanation_text``: the same in words. ``forecast``: time, memory and errors of links.
  - ``draft_notes``: the comments in a drafted plan.

Does not live here: the values themselves (``dpweave.plan.explanation``), and any number
that a fit computes in another way.

Start with ``explain_plan``.
"""
