"""Coding agents: one small class or one table of a file for each."""
