"""Graphical models estimated from noisy marginals: junction tree, sum-product, mirror descent, row generation."""
