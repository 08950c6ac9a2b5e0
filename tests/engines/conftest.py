from tests.backends import postgres, spark
from tests.mariadb_server import mariadb

__all__ = ["mariadb", "postgres", "spark"]
