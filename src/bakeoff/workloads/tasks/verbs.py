"""Verbs and run options that this workload adds to `bakeoff`, found through entry points. Imports nothing."""

VERBS: dict[str, tuple[str, str]] = {
    "task": (
        "bakeoff.workloads.tasks.task_command",
        "Make tasks for coding agents, and prove that they can be solved.",
    ),
    "eval": ("bakeoff.workloads.tasks.eval_command", "Score stored task rollouts again, without running an agent."),
}
"""Each verb's module, which has a click command called `command`, and its line in `bakeoff --help`."""

RUN_OPTIONS: dict[str, tuple[str, str]] = {
    "sandbox": ("NAME", "For tasks: bubblewrap, docker, podman, modal or none (default: SANDBOX_BACKEND)."),
}
"""Options of `bakeoff run` for this workload: metavar and help. `TasksWorkload.configure` gets their values."""
