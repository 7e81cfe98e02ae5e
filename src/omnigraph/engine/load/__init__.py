"""Loading records: reading them, shaping them into rows, and making one change of them."""
