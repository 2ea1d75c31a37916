"""Tuning by measuring: schedules are tried out on one node at a time (`trial.py`), and those that help are searched
(`search.py`)."""
