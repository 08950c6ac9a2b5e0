"""From probabilities to links: exact degrees, no pair twice, bounds kept.

Lives here:
  - ``wire``: degrees and weights of row types become pairs.
  - ``exchange_for_counts``, ``repeated_pairs``: links exchange their ends until counts, or repeated pairs, are right.
  - ``within_groups``, ``unit_members``: targets are chosen inside one unit.

Does not live here: learning. Everything here is given weights or log-odds.

Start with ``wire``.
"""
