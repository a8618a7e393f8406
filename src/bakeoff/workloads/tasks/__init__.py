"""The `tasks` workload: coding agents on real tasks, isolated, verified and scored."""
