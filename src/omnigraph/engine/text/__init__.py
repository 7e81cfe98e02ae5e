"""Words: how texts are cut into them and compared, what a search text asks for, and what people
are shown of a text. Knows of no table and of no query. Start with `analysis.py`."""
