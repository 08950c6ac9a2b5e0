"""Every public choice: frozen, validated at birth, TOML in and out. A plan holds nothing private.

Lives here:
  - ``plan``: the public class ``Plan``. ``entries``: columns, keys, tables, shares. ``toml_text``: a plan as TOML.
  - ``declared``: what a plan declares, as values. ``drafting``: a first plan from a catalogue.
  - ``rules``, ``rule_checks`` and ``workloads``: what a plan may declare beside tables.
  - ``compiled``: what follows from a plan for tables, keys and relations, worked out once (``plan.compile()``).
    ``relations``: a relation, with the view its links are learned on.
  - ``mechanisms``: names of table mechanisms.
  - ``value_kinds``: of which kind each value of a plan file must be.
  - ``explanation``: what is said about a plan, as values.

Does not live here: noise, fits, rows. A draft reads a catalogue, never a row.

Start with ``plan``, then ``entries``, then ``compiled``.
"""
