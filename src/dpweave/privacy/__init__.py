"""TRUSTED. The only code that sees private rows, and the accounting of what they cost.

Lives here:
  - ``promise``, ``sensitivity``: who is protected, and how far one unit can move a count.
  - ``bounding``, ``counts``, ``unit_sums``: exact numbers, which never leave.
    ``noise``, ``selection``: what makes them safe.
  - ``accounting``, ``ledger``: what it costs. ``curator``: the door. ``window``: what a client may hold.
  - ``release``, ``certificate``: what crossed, and what was promised.

Does not live here: plans, models, files of results. A change here needs a proof (docs/proofs) and a test.

Start with ``curator``, then ``sensitivity``.
"""
