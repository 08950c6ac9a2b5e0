"""Changes that break the promise, planted one by one to see whether the tests notice.
Start reading in ``mutations.py``.

They live with the tests, and not with the benchmarks, because ``make bench`` runs all
of those and a test here checks each change against the code.
"""
