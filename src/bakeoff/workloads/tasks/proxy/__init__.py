"""The recording model proxy: every client's calls go through it, with budgets, and without keys in the box."""
