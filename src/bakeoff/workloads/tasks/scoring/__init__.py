"""Scores beyond tests: custom metrics (`custom`) and a model that judges rubrics (`judge`)."""
