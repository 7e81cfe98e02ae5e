"""What changed: the difference of two states, the feed of changes, and one entity through time."""
