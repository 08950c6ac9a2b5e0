from tests.backends import postgres, spark

__all__ = ["postgres", "spark"]
