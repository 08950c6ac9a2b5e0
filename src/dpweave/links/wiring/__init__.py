"""From probabilities to links: exact degrees, no pair twice, bounds kept.

Lives here:
  - Two kernels. ``exchange``: rows swap where they lead to, as long as an objective improves. ``assign``: each row gets
    one target, as far as there is room.
  - ``constraints``: what exchanges must keep. ``exchange_for_counts``,
    ``exchange_for_siblings``, ``exchange_for_order``, ``repeated_pairs``: objectives.
  - ``both_ways``: links that come in both directions.
  - ``within_groups``, ``unit_members``: who comes into question inside one unit, and how well they suit.
  - ``wire``: degrees and weights of row types become pairs.

Does not live here: learning. Everything here is given weights or log-odds.

Start with ``exchange`` and ``assign``, then ``wire``.
"""
