"""Mutations: the statements of a query become one checked change, staged for one commit."""
