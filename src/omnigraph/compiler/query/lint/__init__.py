"""Lint: all that can be said about a file of queries. Start reading at `report.py`."""
