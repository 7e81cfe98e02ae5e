"""Merging one branch into another: find the base, combine by entity, check the result, commit once.

Start with `run.py`; `combine.py` finds each type's base and decides entity by entity;
`conflicts.py` holds what can go wrong.
"""
