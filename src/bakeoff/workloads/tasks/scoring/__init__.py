"""Scores beyond tests: metrics of one's own (`custom`) and a model that judges rubrics (`judge`)."""
