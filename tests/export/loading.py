"""Run by the training libraries' own Python: loads what was exported with their own code and prints what they saw.

loading.py DIRECTORY OUTPUT    every format below its default name; what was seen goes to OUTPUT as JSON
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": tempfile.mkdtemp(), "TRANSFORMERS_VERBOSITY": "error"}

TEMPLATE = (
    "{% for tool in tools or [] %}[tool {{ tool.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments.x }}){% endfor %}</>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, unk_token="x")))
    made.chat_template = TEMPLATE
    return made


def trl(place: Path) -> dict[str, Any]:
    """TRL's own view of each dataset, and its rows as text through TRL's own use of a chat template."""
    from datasets import load_dataset
    from trl.data_utils import apply_chat_template, is_conversational

    found = {}
    reader = tokenizer()
    for name in ("trl-sft", "trl-kto", "trl-grpo"):
        data = load_dataset("json", data_files=str(place / f"{name}.jsonl"), split="train")
        keys = [key for key in ("prompt", "completion", "label") if key in data.column_names]
        rows = [apply_chat_template({key: row[key] for key in keys}, reader, tools=row["tools"]) for row in data]
        found[name] = {
            "columns": data.column_names,
            "conversational": all(is_conversational({key: row[key] for key in keys}) for row in data),
            "texts": rows,
            "rows": [{**row, "prompt": None, "completion": None} for row in data],
        }
    return found


def art(place: Path) -> list[dict[str, Any]]:
    from art import Trajectory, TrajectoryGroup
    from art.trajectories import History
    from art.utils.trajectory_migration import deserialize_trajectory_groups, dict_to_message_or_choice
    from openai.types.chat.chat_completion import Choice

    def history(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "messages_and_choices": [dict_to_message_or_choice(one) for one in raw["messages_and_choices"]]}

    def trajectory(raw: dict[str, Any]) -> Any:
        others = [History(**history(one)) for one in raw["additional_histories"]]
        return Trajectory(**{**history(raw), "additional_histories": others})

    lines = (place / "art.jsonl").read_text()
    groups = []
    for line, own in zip(lines.splitlines(), deserialize_trajectory_groups(lines), strict=True):
        raw = json.loads(line)
        group = TrajectoryGroup([trajectory(one) for one in raw["trajectories"]], metadata=raw["metadata"])
        assert [one.messages() for one in group] == [one.messages() for one in own]
        groups.append({"metadata": group.metadata, "trajectories": [_seen_by_art(one, Choice) for one in group]})
    return groups


def _seen_by_art(one: Any, choice: type) -> dict[str, Any]:
    replies = [item for item in one.messages_and_choices if isinstance(item, choice)]
    return {
        "reward": one.reward,
        "version": one.initial_policy_version,
        "metadata": one.metadata,
        "metrics": one.metrics,
        "tools": one.tools,
        "messages": one.messages(),
        "replies": len(replies),
        "logprobs": [[(t.token, t.logprob) for t in item.logprobs.content] for item in replies if item.logprobs],
        "histories": [len(history.messages()) for history in one.additional_histories],
    }


def verifiers(place: Path) -> list[dict[str, Any]]:
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes

    return [
        {
            "id": episode.id,
            "ok": episode.ok,
            "group": episode.group.id,
            "task": episode.task.data.name,
            "errors": [error.type for error in episode.errors],
            "turns": episode.num_turns,
            "input": episode.num_input_tokens,
            "output": episode.num_output_tokens,
            "reward": {name: reward.value for name, reward in trace.rewards.items()},
            "trainable": trace.agent.trainable,
            "model": trace.agent.config.model,
            "tools": [tool.name for tool in trace.tools],
            "transcript": trace.transcript,
            "branches": [
                {
                    "messages": len(branch.messages),
                    "token_ids": branch.token_ids,
                    "mask": branch.sampled_mask,
                    "logprobs": branch.logprobs,
                }
                for branch in trace.branches
            ],
        }
        for episode in read_episodes(place / "verifiers", WireTrace)
        for trace in episode.traces
    ]


def atif(place: Path) -> list[dict[str, Any]]:
    """Harbor's own models refuse unknown keys, wrong order and results of calls that were not made."""
    from harbor.models.trajectories import Trajectory

    paths = sorted((place / "atif").glob("*/agent/trajectory.json"))
    return [Trajectory.model_validate_json(path.read_text()).to_json_dict() for path in paths]


def parquet(place: Path) -> dict[str, Any]:
    from datasets import load_dataset

    data = load_dataset("parquet", data_files=str(place / "steps.parquet"), split="train")
    return {"rows": len(data), "columns": data.column_names}


def inspect(place: Path) -> list[dict[str, Any]]:
    """What Inspect's own reader finds in each log, by the two ways that `inspect view` reads it."""
    from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries

    logs = []
    for info in list_eval_logs(str(place / "inspect")):
        log = read_eval_log(info.name)
        logs.append(
            {
                "listed": [info.task, info.task_id],
                **log.model_dump(mode="json", include={"status", "eval", "results"}),
                "samples": [sample.model_dump(mode="json") for sample in log.samples],
                "summaries": [each.model_dump(mode="json") for each in read_eval_log_sample_summaries(info.name)],
            }
        )
    return logs


def inspect_frame(_place: Path) -> str:
    """Inspect's frame of real logs: a Parquet file, which keeps its types, in base 64."""
    from inspect_ai.analysis import EvalModel, EvalTask, SampleSummary, samples_df

    logs = Path(__file__).parents[1] / "fixtures/inspect/skill"
    frame = samples_df(str(logs), columns=EvalTask + EvalModel + SampleSummary, quiet=True)
    return base64.b64encode(frame.to_parquet()).decode()


if __name__ == "__main__":
    directory, output = Path(sys.argv[1]), Path(sys.argv[2])
    readers = {"trl": trl, "art": art, "verifiers": verifiers, "atif": atif, "parquet": parquet}
    readers |= {"inspect": inspect, "inspect_frame": inspect_frame}
    output.write_text(json.dumps({name: read(directory) for name, read in readers.items()}))
