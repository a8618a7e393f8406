"""A small coding agent: four tools over any chat completions endpoint. Standard library only; runs inside the sandbox.

    python3 agent.py INSTRUCTION_FILE --url http://127.0.0.1:4000/v1 --model NAME      (key in MODEL_PROXY_KEY)

Whatever a model does wrong (no JSON, no such tool, no such file) becomes a message that it can answer. Exit codes:
0 the model says that it is done, 3 its turns are used up, 4 the endpoint refused or failed.

The file must run on Python 3.7, which old images have.
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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    Json = dict[str, Any]

SYSTEM = """\
You are a careful software engineer working alone in a sandbox. The current directory is {cwd}.
Use the tools to look at files, to change them and to run commands. Make the change that is asked for, check that it
works, and do nothing else. Nobody can answer questions. When you are finished, answer with a short summary and no
tool call."""

NUDGE = """\
You have not called a tool. If your work is finished, say so. Otherwise call one; if you know no other way, write
<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>
There are bash (command), read (path), write (path, content) and edit (path, old, new)."""
"""Sent once to a model that answers with text alone: some servers do not show tools to small models."""
OUTPUT = 16_000
"""Characters of a tool's result that the model sees."""
REMEMBERED = 200
"""Characters of older results that are kept when the conversation is too long for the model."""
TRIES = 3
MALFORMED = 5
"""Turns in a row with nothing but errors, after which the agent gives up."""
RETRYABLE = (408, 409, 429, 500, 502, 503, 504, 529)


def tool(name: str, description: str, required: Json, optional: Json) -> Json:
    """A tool definition; arguments are `name: (type, description)`."""
    properties = {key: {"type": kind, "description": text} for key, (kind, text) in {**required, **optional}.items()}
    schema = {"type": "object", "properties": properties, "required": list(required)}
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


class ToolError(Exception):
    """A tool cannot do what the model asked for; the text says why."""


class TooLong(Exception):
    """The endpoint rejects the request, most likely because the conversation is too long."""


class Call(NamedTuple):
    """A tool call of the model. `arguments` should be JSON text or an object, but a model may send anything."""

    id: str
    name: str
    arguments: Any


def bash(arguments: Json) -> str:
    """Run a command; its output with its exit code. The whole process group is killed after the timeout."""
    seconds = number(arguments, "timeout", 120)
    process = subprocess.Popen(
        ["bash", "-c", text(arguments, "command")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that its children can be killed with it
    )
    try:
        output, note = process.communicate(timeout=seconds)[0], ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, note = process.communicate()[0], f"\n[stopped after {seconds} s]"
    return f"{shorten(output.decode('utf-8', 'replace'))}{note}\n[exit code {process.returncode}]"


def read(arguments: Json) -> str:
    """Lines of a file with their numbers."""
    first, count = number(arguments, "first", 1), number(arguments, "lines", 400)
    with open(text(arguments, "path"), encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    if not lines:
        return "[the file is empty]"
    if first > len(lines):
        raise ToolError(f"the file has only {len(lines)} lines")
    chosen = lines[first - 1 : first - 1 + count]
    rest = len(lines) - (first - 1 + len(chosen))
    numbered = "\n".join(f"{index:6d}  {line}" for index, line in enumerate(chosen, first))
    return shorten(numbered) + (f"\n[{rest} more lines]" if rest > 0 else "")


def write(arguments: Json) -> str:
    """Write a whole file."""
    path, content = text(arguments, "path"), text(arguments, "content")
    data = content.encode()  # before the file is truncated: half a surrogate pair cannot be encoded
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return f"wrote {path} ({len(content)} characters)"


def edit(arguments: Json) -> str:
    """Replace a text that occurs exactly once. Line ends stay as they are in the file."""
    path, old, new = text(arguments, "path"), text(arguments, "old"), text(arguments, "new")
    if not old:
        raise ToolError("`old` is empty; use write for a new file")
    with open(path, encoding="utf-8", newline="") as file:
        content = file.read()
    occurrences = content.count(old)
    if occurrences != 1:
        raise ToolError(f"`old` occurs {occurrences} times in {path}; it must occur exactly once")
    data = content.replace(old, new).encode()
    with open(path, "wb") as file:
        file.write(data)
    return f"changed {path}"


RUN: dict[str, Callable[[Json], str]] = {"bash": bash, "read": read, "write": write, "edit": edit}


def text(arguments: Json, key: str) -> str:
    """A required argument. Raises ToolError."""
    value = arguments.get(key)
    if not isinstance(value, str):
        raise ToolError(f"the argument `{key}` must be given as text")
    return value


def number(arguments: Json, key: str, default: int) -> int:
    """An optional argument; models write numbers in many ways, and a wrong one means the default."""
    try:
        return max(1, min(100_000, int(arguments.get(key, default))))
    except (TypeError, ValueError, OverflowError):
        return default


def shorten(output: str) -> str:
    """Long output without its middle."""
    if len(output) <= OUTPUT:
        return output
    half = OUTPUT // 2
    return f"{output[:half]}\n[... {len(output) - OUTPUT} characters left out ...]\n{output[-half:]}"


def carry_out(call: Call) -> str:
    """The result of a tool call as text; every mistake of the model becomes a text that begins with `Error:`."""
    arguments = call.arguments
    if call.name not in RUN:
        return f"Error: there is no tool {call.name!r}; there are {', '.join(RUN)}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return "Error: the arguments must be a JSON object"
    try:
        return RUN[call.name](arguments)
    except (ToolError, OSError, ValueError) as error:
        return f"Error: {error}"


def calls_in(message: Json) -> list[Call]:
    """The tool calls of a message; entries that are not calls are skipped."""
    calls = []
    entries = message.get("tool_calls")
    for entry in entries if isinstance(entries, list) else []:
        function = entry.get("function") if isinstance(entry, dict) else None
        if isinstance(function, dict):
            name, arguments = str(function.get("name") or ""), function.get("arguments") or ""
            calls.append(Call(str(entry.get("id") or ""), name, arguments))
    return calls


def written_calls(content: str) -> list[Call]:
    """Calls that a model without a template for tools writes as text: `<tool_call>{...}</tool_call>` or fenced JSON."""
    blocks = re.findall(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", content, re.S)
    blocks += re.findall(r"```(?:json|tool_call)?\s*(\{.*?\})\s*```", content, re.S)
    calls = []
    for block in blocks:
        try:
            call = json.loads(block, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(call, dict) and call.get("name") in RUN:
            calls.append(Call("", call["name"], call.get("arguments", call.get("parameters"))))
    return calls


class Endpoint:
    """A chat completions endpoint."""

    def __init__(self, url: str, model: str, key: str, extra: Json) -> None:
        self.url, self.model, self.key, self.extra = url.rstrip("/") + "/chat/completions", model, key, extra

    def ask(self, messages: list[Json]) -> Json:
        """The assistant's message. Raises TooLong; ends the agent when there is no answer."""
        body = {**self.extra, "model": self.model, "messages": messages, "tools": TOOLS}
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(2**attempt)
            try:
                with urllib.request.urlopen(request, timeout=900) as response:
                    answer = json.load(response)
                choices = answer.get("choices") if isinstance(answer, dict) else None
                first = choices[0] if isinstance(choices, list) and choices else None
                message = first.get("message") if isinstance(first, dict) else None
                if isinstance(message, dict):
                    return message
                reason = f"no usable answer from {self.url}: the answer has no message"
            except urllib.error.HTTPError as error:
                reason = f"the endpoint answered {error.code}: {error.read(2000).decode('utf-8', 'replace')}"
                if error.code in (400, 413):
                    raise TooLong(reason) from error
                if error.headers.get("x-should-retry") == "false" or error.code not in RETRYABLE:
                    stop(4, reason)
            except (OSError, ValueError) as error:
                reason = f"no usable answer from {self.url}: {error}"
        stop(4, reason)


def stop(code: int, why: str) -> NoReturn:
    """End the agent with this exit code."""
    print(f"agent: {why}", file=sys.stderr)
    raise SystemExit(code)


def forget(messages: list[Json]) -> bool:
    """Cut older results short, or else the last one. False when there is nothing left to cut."""
    results = [message for message in messages[2:] if message["role"] != "assistant"]
    for group in (results[:-1], results[-1:]):
        long = [message for message in group if len(message["content"]) > 2 * REMEMBERED]
        for message in long:
            message["content"] = message["content"][:REMEMBERED] + "\n[... left out ...]"
        if long:
            return True
    return False


def work(endpoint: Endpoint, instruction: str, turns: int) -> None:
    """Ask and carry out until the model says that it is done; returns then, and ends the agent otherwise."""
    messages = [
        {"role": "system", "content": SYSTEM.format(cwd=os.getcwd())},
        {"role": "user", "content": instruction},
    ]
    errors, nudged = 0, False  # turns in a row with nothing but errors; whether NUDGE was sent
    for _ in range(turns):
        while True:
            try:
                message = endpoint.ask(messages)
                break
            except TooLong as refusal:
                if not forget(messages):
                    stop(4, str(refusal))
        content = message.get("content")
        content = content if isinstance(content, str) else ""
        if content:
            print(content, flush=True)
        formal = calls_in(message)
        calls = formal or written_calls(content)
        if not calls and (nudged or len(messages) > 2):  # a model that has worked before, or was asked twice, is done
            return
        messages.append(assistant(content, formal))
        if not calls:
            nudged = True
            messages.append({"role": "user", "content": NUDGE})
            continue
        results = [(call, carry_out(call)) for call in calls]
        if formal:
            messages += [{"role": "tool", "tool_call_id": call.id, "content": result} for call, result in results]
        else:  # a model that writes its calls as text does not know tool messages
            content = "\n\n".join(f"Result of {call.name}:\n{result}" for call, result in results)
            messages.append({"role": "user", "content": content})
        for call, result in results:
            print(f"[{call.name}] {result[:400]}", flush=True)
        errors = errors + 1 if all(result.startswith("Error:") for _, result in results) else 0
        if errors == MALFORMED:
            stop(3, f"{errors} turns in a row with nothing but errors")
    stop(3, f"all {turns} turns are used up")


def assistant(content: str, calls: list[Call]) -> Json:
    """What the model said, as it goes into the next request."""
    message: Json = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = []
    for call in calls:
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        function = {"name": call.name, "arguments": arguments}
        message["tool_calls"].append({"id": call.id, "type": "function", "function": function})
    return message


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A small coding agent.")
    parser.add_argument("instruction", help="file with the instruction")
    parser.add_argument("--url", required=True, help="base URL of a chat completions endpoint, with /v1")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--turns", type=int, default=50, help="the most model calls (default: 50)")
    parser.add_argument("--extra", default="{}", help="more parameters for each request, as JSON")
    options = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a model may write what the encoding does not have
            stream.reconfigure(errors="backslashreplace")
    with open(options.instruction, encoding="utf-8") as file:
        instruction = file.read()
    key = os.environ.pop("MODEL_PROXY_KEY", "none")  # the model's commands must not see it
    work(Endpoint(options.url, options.model, key, json.loads(options.extra)), instruction, options.turns)


if __name__ == "__main__":
    main()
