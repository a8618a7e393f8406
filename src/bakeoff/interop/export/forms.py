"""The formats by name: where each is written, what it needs, and which function writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from bakeoff.interop.export.job import Job


@dataclass(frozen=True, slots=True)
class Form:
    writer: str
    """`module:function` in this package, imported when it is used."""
    file: str
    """Its name below `export/` of the edition; without a suffix it is a directory."""
    needs_reward: bool = False
    grouped: bool = False
    """It is for group-relative updates: groups stay whole, and one rollout is no group."""
    holds_truth: bool = False

    @property
    def write(self) -> Callable[[Job], None]:
        module, _, function = self.writer.partition(":")
        return cast("Callable[[Job], None]", getattr(import_module(f"bakeoff.interop.export.{module}"), function))


FORMS = {
    "verifiers": Form("verifiers:write", "verifiers"),
    "trl-sft": Form("trl:write_sft", "trl-sft.jsonl"),
    "trl-kto": Form("trl:write_kto", "trl-kto.jsonl"),
    "trl-grpo": Form("trl:write_grpo", "trl-grpo.jsonl", needs_reward=True, grouped=True),
    "art": Form("art:write", "art.jsonl", needs_reward=True, grouped=True),
    "atif": Form("atif:write", "atif"),
    "sharegpt": Form("sharegpt:write", "sharegpt.jsonl"),
    "jsonl": Form("steps:write_jsonl", "steps.jsonl", holds_truth=True),
    "parquet": Form("steps:write_parquet", "steps.parquet", holds_truth=True),
}
