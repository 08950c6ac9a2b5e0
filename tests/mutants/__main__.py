"""``python -m tests.mutants``: see ``planting.py``."""

from tests.mutants.planting import main

if __name__ == "__main__":
    main()
