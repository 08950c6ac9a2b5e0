"""Inputs that strangers may have written, broken in every way that a generator thinks of.

``python -m tests.fuzz --count 10000`` runs every target; ``make fuzz`` writes the table of docs/fuzzing.md too. Each
target says what it breaks (:mod:`tests.fuzz.targets`). Whatever is not an error of our own tree, takes too long or too
much memory is a finding. It is kept in ``corpus/`` and tried again for ever by ``tests/fuzz/test_fuzz.py``.
"""
