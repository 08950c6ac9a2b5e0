"""Faults on purpose: processes that die at every durable step, and what must be true afterwards."""
