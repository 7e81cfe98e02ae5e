"""Full-text and vector search over the rows of a snapshot. Start with `search.py`."""
