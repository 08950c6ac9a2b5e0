"""What people read before a fit, and the verdict on a copy. No row is read, nothing is spent.

Lives here:
  - ``explain_plan``: works out the values of an explanation.
  - ``prices``: what each question gets, and the noise that buys.
  - ``explanation_text``: the same in words. ``forecast``: time, memory and errors of links.
  - ``verdict``: what a copy is worth, before a fit from the plan alone and after it from the release.
  - ``check_plan``: a plan held against a catalogue. ``compare_plans``: two plans side by side.
  - ``doctor``: what a fit would meet on this machine.
  - ``draft_notes``: the comments in a drafted plan. ``helpful_edits``: what would help most, each change tried.

Does not live here: the values themselves (``dpweave.plan.explanation``), and any number
that a fit computes in another way.

Start with ``explain_plan``.
"""
