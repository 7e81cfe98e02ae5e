"""What is said to somebody who writes as in another language. Start reading at `elsewhere.py`."""
