"""Pictures as SVG text: of a schema, of commits, of how a query ran, of a small network.

No picture has chance in it, loads anything, or needs a script; each has its own ground and its own
colours for light and dark, so that it can be read wherever it is put. `svg.py` has what they share.
"""
