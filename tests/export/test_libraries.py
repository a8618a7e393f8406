"""Every format is read back by the library that it is for. `seen` is what that library found."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet
import pytest

import bakeoff

pytestmark = [pytest.mark.trainers, pytest.mark.slow]  # starts the Python of .trainers
FIXTURES = Path(__file__).parents[1] / "fixtures"
LLM_ROLLOUTS = 36
"""Of 48: two arms of 12 with whole conversations (one of them broke), one that starts anew in each step."""


def of_run(rows: list[dict[str, Any]], arm: str, task: str, seed: int, rollout: int) -> list[dict[str, Any]]:
    wanted = (arm, task, seed, rollout)
    return [row for row in rows if (row["arm"], row["task"], row["seed"], row["rollout"]) == wanted]


@pytest.mark.parametrize("name", ["trl-sft", "trl-kto", "trl-grpo"])
def test_trl_takes_every_row_for_a_conversation_and_renders_it_with_a_chat_template(seen: Any, name: str) -> None:
    found = seen["trl"][name]
    assert found["conversational"]
    assert {"prompt", "completion"} <= set(found["columns"])
    assert all(text["prompt"] and text["completion"] for text in found["texts"])


def test_trl_sft_has_a_row_for_each_reply_with_only_the_reply_to_learn_from(seen: Any) -> None:
    rows, texts = seen["trl"]["trl-sft"]["rows"], seen["trl"]["trl-sft"]["texts"]
    mine = [text for text, row in zip(texts, rows, strict=True) if of_run([row], "chat", "add", 1, 2)]
    system = "[tool calc]<system>You calculate. Zahlen: ü → 😀</><user>add in world 1</>"
    assert mine == [
        {"prompt": f"{system}<assistant>", "completion": "calc(2)</>"},
        {"prompt": f"{system}<assistant>calc(2)</><tool>42</><assistant>", "completion": "answer 2</>"},
    ]


def test_trl_sft_keeps_an_example_in_the_prompt_out_of_what_is_learnt(seen: Any) -> None:
    rows, texts = seen["trl"]["trl-sft"]["rows"], seen["trl"]["trl-sft"]["texts"]
    mine = [text for text, row in zip(texts, rows, strict=True) if of_run([row], "forgetful", "sub", 1, 0)]
    assert [text["completion"] for text in mine] == ["tick 0 by 0</>", "tick 1 by 0calc(1)</>", "tick 2 by 0</>"]
    assert all("<user>1+1</><assistant>2</><user>sub" in text["prompt"] for text in mine)


def test_trl_kto_labels_each_reply_by_the_success_of_its_run(seen: Any) -> None:
    rows = seen["trl"]["trl-kto"]["rows"]
    assert {row["label"] for row in of_run(rows, "twin", "add", 1, 2)} == {True}
    assert {row["label"] for row in of_run(rows, "twin", "add", 1, 1)} == {False}


def test_trl_grpo_gives_advantages_that_sum_to_nothing_in_each_group(seen: Any) -> None:
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for row in seen["trl"]["trl-grpo"]["rows"]:
        groups.setdefault(row["group"], {})[row["run_id"]] = row
    assert len(groups) == 8
    for rows in groups.values():
        assert sum(row["advantage"] for row in rows.values()) == pytest.approx(0, abs=1e-9)
        best = max(rows.values(), key=lambda row: row["reward"])
        assert best["advantage"] == max(row["advantage"] for row in rows.values())


def test_a_broken_run_stays_in_its_group_with_what_failing_is_worth(seen: Any) -> None:
    (broken,) = of_run(seen["trl"]["trl-grpo"]["rows"], "chat", "add", 2, 2)
    (sibling,) = of_run(seen["trl"]["trl-grpo"]["rows"], "chat", "add", 2, 1)
    assert broken["reward"] == -5.0
    assert broken["group"] == sibling["group"]
    assert broken["advantage"] < sibling["advantage"]


def test_token_ids_and_log_probabilities_reach_trl(seen: Any) -> None:
    (row,) = of_run(seen["trl"]["trl-grpo"]["rows"], "chat", "sub", 1, 1)
    assert row["tokens"] == [
        {"prompt_ids": [1, 2, 3], "completion_ids": [4, 5], "logprobs": [-0.25, -0.5]},
        {"prompt_ids": [1, 2, 3, 4, 5, 6, 7], "completion_ids": [8], "logprobs": [-0.125]},
    ]


def test_art_finds_groups_with_trainable_choices_and_their_tokens(seen: Any) -> None:
    groups = seen["art"]
    assert len(groups) == 8
    group = next(one for one in groups if one["trajectories"][0]["metadata"]["arm"] == "chat")
    assert len(group["trajectories"]) == 6  # two arms that are one policy
    first = group["trajectories"][0]
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert (first["replies"], first["version"], first["metrics"]) == (2, 7, {"score": -1.0})
    assert first["logprobs"] == [[["token_id:4", -0.25], ["token_id:5", -0.5]], [["token_id:8", -0.125]]]
    assert first["tools"][0]["function"]["name"] == "calc"
    assert [one["reward"] for one in group["trajectories"]] == [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0]


def test_art_gets_contexts_that_start_anew_as_further_histories(seen: Any) -> None:
    forgetful = [one for group in seen["art"] for one in group["trajectories"] if one["metadata"]["arm"] == "forgetful"]
    assert all(one["histories"] == [5, 5] and one["replies"] == 1 for one in forgetful)


def test_verifiers_reads_episodes_whose_tokens_are_what_the_model_read_and_wrote(seen: Any) -> None:
    episodes = {episode["id"]: episode for episode in seen["verifiers"]}
    assert len(episodes) == LLM_ROLLOUTS
    episode = next(one for key, one in episodes.items() if key.startswith("chat__sub__s1__r2"))
    assert (episode["ok"], episode["turns"], episode["tools"]) == (True, 2, ["calc"])
    assert episode["reward"] == {"reward": 10.0}
    (branch,) = episode["branches"]
    assert branch["token_ids"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert branch["mask"] == [False] * 3 + [True] * 2 + [False] * 2 + [True]
    assert branch["logprobs"] == [0, 0, 0, -0.25, -0.5, 0, 0, -0.125]
    assert '[tool_call calc({"x": 2})]' in episode["transcript"]


def test_verifiers_sees_a_failure_as_one(seen: Any) -> None:
    (broken,) = [episode for episode in seen["verifiers"] if not episode["ok"]]
    assert broken["errors"] == ["failed"]


def test_harbors_models_accept_every_trajectory(seen: Any) -> None:
    documents = seen["atif"]
    assert len(documents) == 48
    assert {document["schema_version"] for document in documents} == {"ATIF-v1.7"}
    chat = next(one for one in documents if one["session_id"].startswith("twin__add__s2__r1"))
    assert [step["source"] for step in chat["steps"]] == ["system", "user", "agent", "agent"]
    assert chat["steps"][2]["observation"] == {"results": [{"content": "42", "source_call_id": "c1"}]}
    assert chat["final_metrics"]["total_completion_tokens"] == 3


def test_atif_says_that_a_numeric_policy_called_no_model(seen: Any) -> None:
    numeric = next(one for one in seen["atif"] if one["session_id"].startswith("numeric"))
    agent = [step for step in numeric["steps"] if step["source"] == "agent"]
    assert [step["llm_call_count"] for step in agent] == [0, 0]
    assert [json.loads(step["message"]) for step in agent] == [[0, -1], [1, -1]]


def test_atif_marks_what_was_retold_so_that_nobody_trains_on_it_twice(seen: Any) -> None:
    forgetful = next(one for one in seen["atif"] if one["session_id"].startswith("forgetful"))
    own = [step["message"] for step in forgetful["steps"] if not step.get("is_copied_context")]
    assert [text for text in own if text.startswith("tick")] == ["tick 0 by 0", "tick 1 by 0", "tick 2 by 0"]
    assert own.count("You calculate. Zahlen: ü → 😀") == 1 and "2" not in own


def test_parquet_is_read_by_polars_pyarrow_and_datasets(seen: Any, exported: Path) -> None:
    frame = pl.read_parquet(exported / "steps.parquet")
    table = pyarrow.parquet.read_table(exported / "steps.parquet")
    assert frame.height == table.num_rows == seen["parquet"]["rows"] == 107
    assert frame.columns == seen["parquet"]["columns"]
    first = frame.filter(arm="chat", task="add", seed=1, rollout=0).row(0, named=True)
    assert json.loads(first["messages"])[1]["content"] == "add in world 1"
    assert (first["prompt_ids"], first["logprobs"], first["reward"]) == ([1, 2, 3], [-0.25, -0.5], -0.5)


def test_jsonl_and_parquet_hold_the_same_steps(exported: Path) -> None:
    lines = [json.loads(line) for line in (exported / "steps.jsonl").read_text().splitlines()]
    frame = pl.read_parquet(exported / "steps.parquet").to_dicts()
    assert [line["run_id"] for line in lines] == [row["run_id"] for row in frame]
    assert [line["observation"] for line in lines] == [json.loads(row["observation"]) for row in frame]
    numeric = next(line for line in lines if line["arm"] == "numeric")
    assert numeric["observation"] == {"price": [1.5, None]}  # standard JSON has no NaN


def test_sharegpt_turns_alternate_and_hold_tool_calls_as_text(exported: Path) -> None:
    rows = [json.loads(line) for line in (exported / "sharegpt.jsonl").read_text().splitlines()]
    for row in rows:
        sides = [turn["from"] for turn in row["conversations"]]
        assert sides[0] == "system"
        assert sides[1:] == ["human", "gpt"] * (len(sides[1:]) // 2)
        assert all(turn.keys() == {"from", "value"} for turn in row["conversations"])
    chat = next(row for row in rows if row["arm"] == "chat" and row["rollout"] == 1)
    assert [turn["value"] for turn in chat["conversations"][2:]] == [
        '<tool_call>\n{"name":"calc","arguments":{"x":1}}\n</tool_call>',
        "<tool_response>\n42\n</tool_response>",
        "answer 1",
    ]
    assert (chat["result"], chat["model"]) == ("0.0", "tiny/1")


def test_inspect_reads_a_log_for_each_arm_with_messages_scores_and_errors(seen: Any) -> None:
    logs = {log["eval"]["solver"]: log for log in seen["inspect"]}
    assert set(logs) == {"chat", "twin", "forgetful", "numeric"}
    chat = logs["chat"]
    assert (chat["status"], chat["eval"]["model"], chat["listed"]) == ("success", "tiny/1", ["talks", "chat"])
    assert chat["eval"]["metadata"]["bakeoff"]["analysis"]["failure_score"] == -5
    assert len(chat["samples"]) == len(chat["summaries"]) == 12
    assert {(sample["id"], sample["epoch"]) for sample in chat["samples"]} == {
        (f"{task}__s{seed}", epoch) for task in ("add", "sub") for seed in (1, 2) for epoch in (1, 2, 3)
    }
    (first,) = [each for each in chat["samples"] if (each["id"], each["epoch"]) == ("add__s1", 3)]
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert first["messages"][2]["tool_calls"][0]["arguments"] == {"x": 2}
    assert first["output"]["completion"] == "answer 2"
    assert first["scores"]["score"]["value"] == 1
    (broken,) = [each for each in chat["samples"] if each["error"] is not None]
    assert "broke" in broken["error"]["message"] and not broken["scores"]
    # One of twelve failed and counts -5, as in a verdict.
    assert chat["results"]["scores"][0]["metrics"]["mean"]["value"] == pytest.approx(-0.5)
    assert chat["results"]["completed_samples"] == 11


def test_the_recipe_for_inspects_frame_gives_the_verdict_of_its_logs(seen: Any) -> None:
    pandas = pytest.importorskip("pandas")
    samples = pandas.read_parquet(io.BytesIO(base64.b64decode(seen["inspect_frame"])), dtype_backend="pyarrow")
    samples["correct"] = samples["score_match"].map({"C": 1, "P": 0.5, "I": 0, "N": 0})
    roles = {"arm": "task_arg_skill", "task": "id", "rollout": "epoch", "status": "error", "ignore": ("sample_id",)}
    (frame,) = bakeoff.compare(samples, metric="correct", columns=roles, failure_score=0)
    (logs,) = bakeoff.compare(FIXTURES / "inspect/skill")
    assert (frame.candidate, frame.failed, frame.units) == ("calculator", 3, 12)
    assert (frame.verdict, frame.effect, frame.p) == (logs.verdict, logs.effect, logs.p)
