"""Policies: a YAML file of who may do what, compiled to Cedar and asked for decisions.

Only this room says `cedarpy`; it imports `model` and `errors`. Start reading at `document.py` for
the file's format, then `engine.py` for how it decides. The engine and the server know a policy as
`PolicyGate` of `model/ports.py`.
"""
