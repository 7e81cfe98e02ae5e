"""What calls of a graph answer, as values: rows, differences, merges, receipts of writes.

A graph of this machine and one of a server answer with the same classes, so they stand below both.
They know no storage: importing them loads Arrow at most. Start with `rows.py`.
"""
