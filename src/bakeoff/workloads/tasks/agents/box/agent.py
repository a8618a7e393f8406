"""A small coding agent: four tools over any chat completions endpoint. Standard library only; runs inside the box.

    python3 agent.py INSTRUCTION_FILE --url http://127.0.0.1:4000/v1 --model NAME      (key in MODEL_PROXY_KEY)

Whatever a model does wrong (no JSON, no such tool, no such file) becomes a message that it can answer. Exit codes:
0 it said that it is done, 3 its turns are used up, 4 the endpoint refused or failed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # an image may have an old Python, which only reads annotations
    from collections.abc import Callable
    from typing import NoReturn

    Json = dict[str, Any]
    Call = tuple[str, str, Any]
    """Id, name, arguments."""

SYSTEM = """\
You are a careful software engineer working alone in a sandbox. The current directory is {cwd}.
Use the tools to look at files, to change them and to run commands. Make the change that is asked for, check that it
works, and do nothing else. Nobody can answer questions. When you are finished, answer with a short summary and no
tool call."""

NUDGE = """\
You have not called a tool. If your work is finished, say so. Otherwise call one; if you know no other way, write
<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>
There are bash (command), read (path), write (path, content) and edit (path, old, new)."""
"""Said once, to a model that answers with words alone: some servers do not show small models their tools."""
OUTPUT = 16_000
"""Characters of a tool's result that the model is shown."""
REMEMBERED = 200
"""Characters that are left of older results when a conversation has become too long for the model."""
TRIES = 3
MALFORMED = 5
"""Turns in a row with nothing but errors, after which there is no hope."""
AGAIN = (408, 409, 429, 500, 502, 503, 504, 529)


def tool(name: str, description: str, needed: Json, optional: Json) -> Json:
    properties = {key: {"type": kind, "description": said} for key, (kind, said) in {**needed, **optional}.items()}
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


FILE = ("string", "Path of the file.")
TOOLS = [
    tool(
        "bash",
        "Run a shell command in the working directory; shows its output and exit code.",
        {"command": ("string", "The command.")},
        {"timeout": ("integer", "Seconds until it is stopped; 120 if not given.")},
    ),
    tool(
        "read",
        "Read a text file, with line numbers.",
        {"path": FILE},
        {"first": ("integer", "First line; 1 if not given."), "lines": ("integer", "How many; 400 if not given.")},
    ),
    tool(
        "write",
        "Write a whole file; directories are made as needed.",
        {"path": FILE, "content": ("string", "All of its new content.")},
        {},
    ),
    tool(
        "edit",
        "Replace one piece of text in a file by another.",
        {
            "path": FILE,
            "old": ("string", "The text as it stands in the file; it must occur exactly once."),
            "new": ("string", "What takes its place."),
        },
        {},
    ),
]


class Wrong(Exception):
    """What the model asked for cannot be done; the text says why."""


class TooLong(Exception):
    """The endpoint does not take the request as it is, most likely for its length."""


def bash(arguments: Json) -> str:
    seconds = number(arguments, "timeout", 120)
    process = subprocess.Popen(
        ["bash", "-c", text(arguments, "command")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, note = process.communicate(timeout=seconds)[0], ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, note = process.communicate()[0], f"\n[stopped after {seconds} s]"
    return f"{shorten(output.decode('utf-8', 'replace'))}{note}\n[exit code {process.returncode}]"


def read(arguments: Json) -> str:
    first, count = number(arguments, "first", 1), number(arguments, "lines", 400)
    with open(text(arguments, "path"), encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    if not lines:
        return "[the file is empty]"
    if first > len(lines):
        raise Wrong(f"the file has only {len(lines)} lines")
    chosen = lines[first - 1 : first - 1 + count]
    rest = len(lines) - (first - 1 + len(chosen))
    numbered = "\n".join(f"{index:6d}  {line}" for index, line in enumerate(chosen, first))
    return shorten(numbered) + (f"\n[{rest} more lines]" if rest > 0 else "")


def write(arguments: Json) -> str:
    path, content = text(arguments, "path"), text(arguments, "content")
    data = content.encode()  # before the file is emptied: half a surrogate pair is no text
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return f"wrote {path} ({len(content)} characters)"


def edit(arguments: Json) -> str:
    path, old, new = text(arguments, "path"), text(arguments, "old"), text(arguments, "new")
    if not old:
        raise Wrong("`old` is empty; use write for a new file")
    with open(path, encoding="utf-8", newline="") as file:
        content = file.read()
    found = content.count(old)
    if found != 1:
        raise Wrong(f"`old` occurs {found} times in {path}; it must occur exactly once")
    data = content.replace(old, new).encode()
    with open(path, "wb") as file:
        file.write(data)
    return f"changed {path}"


RUN: dict[str, Callable[[Json], str]] = {"bash": bash, "read": read, "write": write, "edit": edit}


def text(arguments: Json, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str):
        raise Wrong(f"the argument `{key}` must be given as text")
    return value


def number(arguments: Json, key: str, default: int) -> int:
    try:
        return max(1, min(100_000, int(arguments.get(key, default))))
    except (TypeError, ValueError, OverflowError):
        return default


def shorten(output: str) -> str:
    if len(output) <= OUTPUT:
        return output
    half = OUTPUT // 2
    return f"{output[:half]}\n[... {len(output) - OUTPUT} characters left out ...]\n{output[-half:]}"


def carry_out(name: str, arguments: Any) -> str:
    """The result of a tool call as text, whatever the call looks like."""
    if name not in RUN:
        return f"Error: there is no tool {name!r}; there are {', '.join(RUN)}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return "Error: the arguments must be a JSON object"
    try:
        return RUN[name](arguments)
    except (Wrong, OSError, ValueError) as error:
        return f"Error: {error}"


def calls_in(message: Json) -> list[Call]:
    found = []
    given = message.get("tool_calls")
    for call in given if isinstance(given, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found.append((str(call.get("id") or ""), str(function.get("name") or ""), function.get("arguments") or ""))
    return found


def written_calls(content: str) -> list[Call]:
    """Calls that a model without a template for tools writes as text: `<tool_call>{...}</tool_call>` or fenced JSON."""
    blocks = re.findall(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", content, re.S)
    blocks += re.findall(r"```(?:json|tool_call)?\s*(\{.*?\})\s*```", content, re.S)
    found = []
    for block in blocks:
        try:
            call = json.loads(block, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(call, dict) and call.get("name") in RUN:
            found.append(("", call["name"], call.get("arguments", call.get("parameters"))))
    return found


class Endpoint:
    def __init__(self, url: str, model: str, key: str, extra: Json) -> None:
        self.url, self.model, self.key, self.extra = url.rstrip("/") + "/chat/completions", model, key, extra

    def ask(self, messages: list[Json]) -> Json:
        """The assistant's message; the end when there is none to be had."""
        body = {**self.extra, "model": self.model, "messages": messages, "tools": TOOLS}
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(2**attempt)
            try:
                with urllib.request.urlopen(request, timeout=900) as response:
                    return message_of(json.load(response))
            except urllib.error.HTTPError as error:
                reason = f"the endpoint answered {error.code}: {error.read(2000).decode('utf-8', 'replace')}"
                if error.code in (400, 413):
                    raise TooLong(reason) from error
                if error.headers.get("x-should-retry") == "false" or error.code not in AGAIN:
                    stop(4, reason)
            except (OSError, ValueError) as error:
                reason = f"no usable answer from {self.url}: {error}"
        stop(4, reason)


def message_of(answer: Any) -> Json:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise ValueError("the answer has no message")
    return message


def stop(code: int, why: str) -> NoReturn:
    print(f"agent: {why}", file=sys.stderr)
    raise SystemExit(code)


def forget(messages: list[Json]) -> bool:
    """Cut older results short, or else the last one; False when nothing is left to cut."""
    results = [message for message in messages[2:] if message["role"] != "assistant"]
    for group in (results[:-1], results[-1:]):
        long = [message for message in group if len(message["content"]) > 2 * REMEMBERED]
        for message in long:
            message["content"] = message["content"][:REMEMBERED] + "\n[... left out ...]"
        if long:
            return True
    return False


def answered(endpoint: Endpoint, messages: list[Json]) -> Json:
    while True:
        try:
            return endpoint.ask(messages)
        except TooLong as refusal:
            if not forget(messages):
                stop(4, str(refusal))


def work(endpoint: Endpoint, instruction: str, turns: int) -> None:
    messages = [
        {"role": "system", "content": SYSTEM.format(cwd=os.getcwd())},
        {"role": "user", "content": instruction},
    ]
    errors, nudged = 0, False
    for _ in range(turns):
        message = answered(endpoint, messages)
        given = message.get("content")
        content = given if isinstance(given, str) else ""
        if content:
            print(content, flush=True)
        calls = calls_in(message)
        results = [(id, name, carry_out(name, arguments)) for id, name, arguments in calls or written_calls(content)]
        if not results and (nudged or len(messages) > 2):
            return
        if not results:
            nudged = True
            messages += [said(content, []), {"role": "user", "content": NUDGE}]
            continue
        messages += [said(content, calls), *heard(results, formal=bool(calls))]
        for _, name, result in results:
            print(f"[{name}] {result[:400]}", flush=True)
        errors = errors + 1 if all(result.startswith("Error:") for _, _, result in results) else 0
        if errors == MALFORMED:
            stop(3, f"{errors} turns in a row with nothing but errors")
    stop(3, f"all {turns} turns are used up")


def said(content: str, calls: list[Call]) -> Json:
    message: Json = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": as_text(arguments)}}
            for id, name, arguments in calls
        ]
    return message


def heard(results: list[tuple[str, str, str]], *, formal: bool) -> list[Json]:
    """Results as tool messages, or as a user's words to a model that does not know tool messages."""
    if formal:
        return [{"role": "tool", "tool_call_id": id, "content": result} for id, _, result in results]
    return [{"role": "user", "content": "\n\n".join(f"Result of {name}:\n{result}" for _, name, result in results)}]


def as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description="A small coding agent.")
    parser.add_argument("instruction", help="file with the instruction")
    parser.add_argument("--url", required=True, help="base URL of a chat completions endpoint, with /v1")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--turns", type=int, default=50, help="model calls at most")
    parser.add_argument("--extra", default="{}", help="more parameters of each request, as JSON")
    given = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a model may write what no encoding has
            stream.reconfigure(errors="backslashreplace")
    with open(given.instruction, encoding="utf-8") as file:
        instruction = file.read()
    key = os.environ.pop("MODEL_PROXY_KEY", "none")  # its commands need not see it
    work(Endpoint(given.url, given.model, key, json.loads(given.extra)), instruction, given.turns)


if __name__ == "__main__":
    main()
