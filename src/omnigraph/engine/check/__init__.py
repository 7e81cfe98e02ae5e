"""The rules of a schema over a change: values, uniqueness, ends of edges and their number."""
