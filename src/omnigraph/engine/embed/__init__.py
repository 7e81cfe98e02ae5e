"""Embeddings: texts to vectors by a provider, for queries and for whole files."""
