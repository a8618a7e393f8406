"""The version, in a module of its own so that every room can say it without reaching through the front door."""

__version__ = "0.1.0"
