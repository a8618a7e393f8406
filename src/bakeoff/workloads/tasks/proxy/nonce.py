"""A text of the run before everything that a provider may cache, so that two runs share no prefix of a prompt.

    unshared("chat", {"messages": [{"role": "system", "content": "Help."}]}, "3f2a")
    # {"messages": [{"role": "system", "content": "[3f2a]\\nHelp."}]}

Caches of providers go by the beginning of a prompt. What is at the beginning differs: tools or instructions, whichever a
server renders first. So the text is before the first description of a tool and before the first instruction or message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bakeoff.workloads.tasks.proxy.wire import Json, WireName, objects

_Edit = Callable[[Any], Any]


def unshared(wire: WireName, sent: Json, nonce: str) -> Json:
    """A request with `nonce` before what may be cached of it. `sent` stays as it is."""
    mark = f"[{nonce}]\n"

    def before_text(text: Any) -> Any:
        return mark + text if isinstance(text, str) else text

    def before(part: Json) -> _Edit:
        """Before text, or as a `part` of its own before a list of parts."""
        return lambda content: [part, *content] if isinstance(content, list) else before_text(content)

    text_part: Json = {"type": "text", "text": mark}
    tools = _in_first("tools")
    if wire == "chat":
        sent = tools(sent, lambda tool: _in(tool, "function", lambda own: _in(own, "description", before_text)))
        return _in_first("messages")(sent, lambda message: _in(message, "content", before(text_part)))
    if wire == "gemini":
        declarations = _in_first("functionDeclarations", "function_declarations")
        sent = tools(sent, lambda tool: declarations(tool, lambda own: _in(own, "description", before_text)))
        instruction = sent.get("systemInstruction")
        instruction = instruction if isinstance(instruction, dict) else {}
        return {
            **sent,
            "systemInstruction": {**instruction, "parts": [{"text": mark}, *objects(instruction.get("parts"))]},
        }
    sent = tools(sent, lambda tool: _in(tool, "description", before_text))
    if wire == "responses":
        message = {"type": "message", "role": "developer", "content": mark}
        return {**sent, "instructions": before(message)(sent.get("instructions") or "")}
    return {**sent, "system": before(text_part)(sent.get("system") or "")}


def _in(tree: Json, key: str, edit: _Edit) -> Json:
    """`tree` with an edited value, if it has one at `key`."""
    return {**tree, key: edit(tree[key])} if isinstance(tree.get(key), dict | list | str) else tree


def _in_first(*keys: str) -> Callable[[Json, _Edit], Json]:
    """Edit the first object of a list that the edit changes. The list is at the first of `keys` that is there."""

    def edited(tree: Json, edit: _Edit) -> Json:
        key = next((key for key in keys if isinstance(tree.get(key), list)), None)
        if key is None:
            return tree
        for place, part in enumerate(tree[key]):
            changed = edit(part) if isinstance(part, dict) else part
            if changed != part:
                return {**tree, key: [*tree[key][:place], changed, *tree[key][place + 1 :]]}
        return tree

    return edited
