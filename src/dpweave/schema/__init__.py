"""Public facts: tables, columns, keys, domains. Nothing here ever sees a value of a private row."""
