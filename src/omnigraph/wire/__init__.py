"""What travels between a server and its clients: the bodies of requests and answers, and how an
error becomes a status and a body and back.

May import `errors` and `model`. Start reading at `requests.py`, then `answers.py`, `failures.py`.
"""
