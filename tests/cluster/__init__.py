"""Tests on clusters of real daemons; benchmarks use the same clusters."""
