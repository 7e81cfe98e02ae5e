"""What reading keeps in memory of the tables: columns and adjacency, under one byte budget.

Everything here is derived from storage and may be dropped at any time. Start with `cache.py`.
"""
