"""Scores beyond tests: metrics of one's own (`custom.py`) and a model that judges rubrics (`judge.py`)."""
