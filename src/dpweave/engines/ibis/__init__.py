"""Any other engine that Ibis speaks: Spark, BigQuery, Snowflake, Trino, through a live connection.

``catalogue`` reads tables and columns, ``types`` maps their types, ``source`` counts private rows. There is no sink.
"""
