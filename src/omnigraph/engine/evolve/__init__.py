"""Applying a schema: what it asks of stored rows, and the tables that change with it."""
