"""Clients of the wall that decide which synthetic rows belong together."""
