"""Calls that fail now and then, made until they succeed."""

from patient.clock import Clock, SystemClock
from patient.retry import GaveUp, retry

__all__ = ["Clock", "GaveUp", "SystemClock", "retry"]
