"""What the server does when it is asked: a function a route, each one call into the engine. Every
file ends with the routes it answers; `routes.py` puts them together."""
