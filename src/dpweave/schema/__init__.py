"""Public facts: tables, columns, keys, domains, codes. Nothing here ever sees a value of a private row.

Lives here:
  - ``database``: tables, columns, types, keys as values. ``key_graph``: how keys hang
    together. ``proposed_keys``: guessed keys.
  - ``domain``: domains, views and cliques. ``codec``: value to code and back. ``arrow_codes``: the same in Arrow.
  - ``gathered``: columns of public tables that say what public rows which lead there say.
  - ``arrow_types``, ``key_lookup``, ``placeholders``, ``fake_values``, ``degree_buckets``, ``covering``.

Does not live here: engines and plans.

Start with ``database``, then ``domain``.
"""
