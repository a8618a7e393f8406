"""What a request may ask of a provider beyond an answer: by default nothing, the same for every client and every API.

Providers offer tools of their own (web search, code interpreters, remote MCP servers), keep files and conversations, and
fetch addresses that a request names. An agent with one of them is not in its sandbox any more: it can look up the
solution, or leave something for the next run. So a request may only have fields, tools, items and content parts that
are on a list here, and these only keys that are on one. Everything else is refused by name, and a run may use it if the
experiment file allows that name:

    allow_provider_tools = ["web_search"]

    denied(WIRES["responses"], {"model": "m", "tools": [{"type": "web_search_preview"}]})      # ["web_search"]

One name means the same in every API; a field, tool or part that no API of ours has goes by its own name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bakeoff.workloads.tasks.proxy.gemini import camel
from bakeoff.workloads.tasks.proxy.wire import Json, WireName, inner, objects

FILES, URLS, STORED = "files", "remote_urls", "stored_responses"
SAME_AS = {
    "browser_search": "web_search",
    "google_search": "web_search",
    "google_search_retrieval": "web_search",
    "web_search_options": "web_search",
    "web_search_preview": "web_search",
    "url_context": "web_fetch",
    "code_interpreter": "code_execution",
    "mcp_servers": "mcp",
    "mcp_server": "mcp",
    "mcp_toolset": "mcp",
    "mcp_list_tools": "mcp",
    "mcp_tool": "mcp",
    "computer_use": "computer",
    "computer_use_preview": "computer",
    "container": "containers",
    "container_upload": "containers",
    "tool_search_tool": "tool_search",
    "store": STORED,
    "previous_response_id": STORED,
    "conversation": STORED,
    "prompt": STORED,
    "item_reference": STORED,
    "cached_content": STORED,
}
"""Other words for the same power -> the name that an experiment file allows it by."""

USUAL_TIERS = ("auto", "default", "standard", "standard_only", "SERVICE_TIER_UNSPECIFIED", "STANDARD")
UNSHARED = ("prompt_cache_key",)
"""Keys by which a provider finds what it has computed before. Each run gets its own, so runs share nothing."""


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


@dataclass(frozen=True)
class Shape:
    """The keys that an object may have, and the shapes of objects below them. Below other keys anything may be."""

    keys: frozenset[str]
    below: Mapping[str, Shape]

    @classmethod
    def of(cls, keys: str, **below: Shape) -> Shape:
        return cls(_set_of(keys) | below.keys(), below)

    def unlisted(self, value: Any) -> Iterator[str]:
        """Names of keys that an object, or the objects of a list, must not have. A key without a value asks nothing."""
        for part in _several(value):
            for key, inside in part.items():
                if key in self.below:
                    yield from self.below[key].unlisted(inside)
                elif key not in self.keys and inside not in (None, False, "", []):
                    yield _name(key)

    def in_camel_case_too(self) -> Shape:
        """The same shape for an API that knows every key in two spellings."""
        below = {key: shape.in_camel_case_too() for key, shape in self.below.items()}
        return Shape(self.keys | {camel(key) for key in self.keys}, below | {camel(key): below[key] for key in below})


@dataclass(frozen=True)
class Powers:
    """What a request of one API may have."""

    shape: Shape
    """Keys of the body that are passed on."""
    escapes: Callable[[Json], Iterator[str]]
    """Names for what is in those keys and is not on a list."""
    left_out: frozenset[str] = frozenset()
    """Keys that are not passed on, and that a client may send: they say who is asking."""


def denied(wire: WireName, body: Json, allowed: Collection[str] = ()) -> list[str]:
    """Names of everything in a request that the run may not use, each once."""
    powers = POWERS[wire]
    # A key with nothing in it (`background: false`, `mcp_servers: []`) asks for nothing. It is not passed on.
    passed = {key: value for key, value in body.items() if value and key not in powers.left_out and key not in allowed}
    names = list(powers.shape.unlisted(passed))
    tier = body.get("service_tier") or body.get("serviceTier")
    if tier and tier not in USUAL_TIERS:  # others have another price and another speed
        names.append("service_tier")
    names += powers.escapes(body)
    return [name for name in dict.fromkeys(names) if name not in allowed]


def passed_on(wire: WireName, body: Json, allowed: Collection[str], scope: Callable[[str], str]) -> Json:
    """The part of an allowed request that goes to the provider. `scope` makes a key of a shared cache the run's own."""
    powers = POWERS[wire]
    kept = {
        key: value
        for key, value in body.items()
        if key in powers.shape.keys or key in allowed or (key not in powers.left_out and _name(key) in allowed)
    }
    kept |= {key: scope(str(kept[key])) for key in UNSHARED if kept.get(key)}
    if wire == "responses" and STORED not in allowed:
        kept["store"] = False  # the default is to keep every response for 30 days
    return kept


def _name(kind: Any) -> str:
    """The name of a tool, field or part: in snake case, without the date that some APIs put behind it."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(kind)).lower()
    name = re.sub(r"(_\d{4}_\d{2}_\d{2}|_\d{8}|_\d+(_\d+)?)$", "", words)
    return SAME_AS.get(name, name)


def _item_name(kind: Any) -> str:
    """The name of the tool whose call or result this item of a history is."""
    name = re.sub(r"(_tool_result|_tool_use|_call_output|_call|_approval_request|_approval_response)$", "", str(kind))
    return "code_execution" if name.endswith("code_execution") else _name(name)


def _several(value: Any) -> list[Json]:
    """The objects in a list. Some servers take a single object for a list of one, so that counts, too."""
    return objects([value] if isinstance(value, dict) else value)


_ADDRESSES = ("image_url", "video_url", "audio_url", "file_url", "document_url")


def _fetched(part: Json) -> Iterator[str]:
    """What the provider would have to fetch for a content part.

    The type of the part does not matter: vLLM, for one, goes by the keys if there is none.
    """
    if part.get("file_id"):
        yield FILES
    for key in _ADDRESSES:
        address = inner(part[key], "url") if isinstance(part.get(key), dict) else part.get(key)
        if address is not None and not (isinstance(address, str) and address.startswith("data:")):
            yield URLS
    for key in ("file_data", "data"):  # base64, for which some servers accept an address
        if part.get(key) is not None and "://" in str(part[key])[:4096]:
            yield URLS


_CACHE_MARK = Shape.of("type ttl")
_GRAMMAR = Shape.of("type syntax definition", grammar=Shape.of("syntax definition"))
_FORMAT = Shape.of("type name description schema strict", json_schema=Shape.of("name description schema strict"))
_REASONING = Shape.of("effort summary generate_summary max_tokens exclude enabled")
_THINKING = Shape.of("type budget_tokens display keep clear_thinking")
_STREAM = Shape.of("include_usage include_obfuscation continuous_usage_stats")
_CHOICE = Shape.of(
    "type name mode tools disable_parallel_tool_use",
    function=Shape.of("name"),
    custom=Shape.of("name"),
    allowed_tools=Shape.of("mode tools"),
)
# A tool that the client runs. Keys matter here, too: LiteLLM takes `{"googleSearch": {}}` for a tool of Gemini's.
_CHAT_FUNCTION = Shape.of("name description parameters strict")
_CHAT_TOOL = Shape.of(
    "type strict defer_loading",
    function=_CHAT_FUNCTION,
    custom=Shape.of("name description", format=_GRAMMAR),
    cache_control=_CACHE_MARK,
)


def _chosen(choice: Any, own: Collection[str]) -> Iterator[str]:
    """A `tool_choice` that names a tool of the provider."""
    kind = inner(choice, "type")
    if kind is not None and kind not in own:
        yield _name(kind)


# Chat completions. Beside OpenAI's fields, those of the usual servers for open models that change how tokens are
# sampled: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
_CHAT_FIELDS = _set_of(
    "model messages stream stream_options tools tool_choice parallel_tool_calls functions function_call max_tokens "
    "max_completion_tokens temperature top_p n stop seed presence_penalty frequency_penalty logit_bias logprobs "
    "top_logprobs response_format reasoning_effort reasoning verbosity prediction service_tier prompt_cache_key "
    "thinking enable_thinking "
    "top_k min_p top_a typical_p repetition_penalty length_penalty min_tokens stop_token_ids ignore_eos "
    "include_stop_str_in_output skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens "
    "prompt_logprobs return_token_ids return_tokens_as_token_ids add_generation_prompt continue_final_message "
    "chat_template_kwargs guided_json guided_regex guided_choice guided_grammar structured_outputs echo "
    "include_reasoning best_of use_beam_search usage"
)


_CHAT_PARTS = _set_of(
    "text refusal image_url video_url audio_url file input_audio thinking reasoning redacted_thinking"
)
_CHAT_PART = Shape.of(
    "type text refusal thinking reasoning signature data file_id file_url document_url filename",
    image_url=Shape.of("url detail format"),
    video_url=Shape.of("url fps max_frames"),
    audio_url=Shape.of("url"),
    file=Shape.of("file_id file_data file_url filename format"),
    input_audio=Shape.of("data format"),
    cache_control=_CACHE_MARK,
)
_CHAT_MESSAGE = Shape.of(
    # Histories repeat what servers added to their answers: vLLM, DeepSeek, OpenRouter and LiteLLM each have their own.
    "role content name tool_call_id refusal reasoning reasoning_content reasoning_details thinking_blocks annotations "
    "provider_specific_fields prefix partial",
    audio=Shape.of("id data transcript expires_at"),
    function_call=Shape.of("name arguments"),
    cache_control=_CACHE_MARK,
    tool_calls=Shape.of(
        "id type index provider_specific_fields",
        function=Shape.of("name arguments provider_specific_fields"),
        custom=Shape.of("name input"),
        extra_content=Shape.of("", google=Shape.of("thought_signature")),
    ),
)
_CHAT = Shape(
    _CHAT_FIELDS,
    {
        "messages": _CHAT_MESSAGE,
        "functions": _CHAT_FUNCTION,
        "stream_options": _STREAM,
        "tool_choice": _CHOICE,
        "function_call": Shape.of("name"),
        "response_format": _FORMAT,
        "reasoning": _REASONING,
        "thinking": _THINKING,
        "prediction": Shape.of("type", content=Shape.of("type text")),
        "usage": Shape.of("include"),
    },
)


def _chat_escapes(body: Json) -> Iterator[str]:
    for tool in _several(body.get("tools")):
        if tool.get("type", "function") not in ("function", "custom"):
            yield _name(tool.get("type"))
        else:
            yield from _CHAT_TOOL.unlisted(tool)
    yield from _chosen(body.get("tool_choice"), ("function", "custom", "allowed_tools"))
    for message in _several(body.get("messages")):
        if inner(message.get("audio"), "id"):
            yield STORED
        for part in _several(message.get("content")):
            kind = str(part.get("type", "text"))
            if kind not in _CHAT_PARTS:
                yield _name(kind)
            else:
                yield from _CHAT_PART.unlisted(part)
            for place in (part, *_several(part.get("file")), *_several(part.get("input_audio"))):
                yield from _fetched(place)


_RESPONSES_FIELDS = _set_of(
    "model input instructions stream stream_options tools tool_choice parallel_tool_calls max_output_tokens "
    "max_tool_calls temperature top_p top_k top_logprobs reasoning text include truncation service_tier "
    "prompt_cache_key seed stop presence_penalty frequency_penalty repetition_penalty min_p"
)
_CLIENT_ITEMS = _set_of(
    "message reasoning function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call "
    "local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output tool_search_call "
    "tool_search_output compaction compaction_summary ghost_snapshot"
)
_RESPONSES_PARTS = _set_of(
    "input_text output_text text summary_text reasoning_text refusal input_image input_file input_audio "
    "encrypted_content"
)
_CLIENT_TOOL_TYPES = ("function", "custom", "local_shell", "apply_patch", "namespace", "shell", "tool_search")
_RESPONSES_TOOL = Shape.of(
    "type name description parameters strict output_schema defer_loading namespace execution tools",
    format=_GRAMMAR,
    cache_control=_CACHE_MARK,
    environment=Shape.of("type"),
)
_RESPONSES_ITEM = Shape.of(
    "type id status role content name phase summary encrypted_content call_id arguments namespace output input action "
    "operation execution tools max_output_length ghost_commit",
    environment=Shape.of("type"),
)
_RESPONSES_PART = Shape.of(
    "type text refusal image_url detail file_id file_url file_data filename format data annotations logprobs "
    "encrypted_content stdout stderr outcome",
    input_audio=Shape.of("data format"),
    cache_control=_CACHE_MARK,
)
_CONTENT = _set_of(
    "content summary encrypted_content call_id arguments input output action operation execution tools ghost_commit"
)
"""An item with an id and none of these stands for one that the provider keeps."""
_RESPONSES = Shape(
    _RESPONSES_FIELDS,
    {
        "stream_options": _STREAM,
        "tool_choice": _CHOICE,
        "reasoning": _REASONING,
        "text": Shape.of("verbosity", format=_FORMAT),
    },
)


def _responses_escapes(body: Json) -> Iterator[str]:
    yield from _responses_tools(_several(body.get("tools")))
    yield from _chosen(
        body.get("tool_choice"), ("function", "custom", "allowed_tools", "shell", "local_shell", "apply_patch")
    )
    for item in [*_several(body.get("input")), *_several(body.get("instructions"))]:
        kind = str(item.get("type") or "message")
        if item.get("id") and not any(item.get(key) for key in _CONTENT):
            yield STORED
        elif kind not in _CLIENT_ITEMS:
            yield _item_name(kind)
        else:
            yield from _RESPONSES_ITEM.unlisted(item)
        if inner(item.get("environment"), "type") not in (None, "local"):
            yield "containers"
        yield from _responses_tools(_several(item.get("tools")))  # those that a search of the client has found
        for key in ("content", "output"):
            for part in _several(item.get(key)):
                yield from _responses_part(part)
        yield from Shape.of("type text").unlisted(item.get("summary"))


def _responses_tools(tools: list[Json]) -> Iterator[str]:
    for tool in tools:
        kind = tool.get("type")
        if kind in _CLIENT_TOOL_TYPES:
            yield from _RESPONSES_TOOL.unlisted(tool)
        if kind == "namespace":
            yield from _responses_tools(_several(tool.get("tools")))
        elif kind == "shell":  # in a container of the provider, unless it says that the client runs it
            if inner(tool.get("environment"), "type") != "local":
                yield "containers"
        elif kind == "tool_search":
            if tool.get("execution") != "client":
                yield "tool_search"
        elif kind not in _CLIENT_TOOL_TYPES:
            yield _name(kind)


def _responses_part(part: Json) -> Iterator[str]:
    kind = part.get("type")
    yield from _fetched(part)
    # The output of a shell call has entries without a type.
    if kind is not None and str(kind) not in _RESPONSES_PARTS:
        yield _name(kind) if kind != "computer_screenshot" else "computer"
    else:
        yield from _RESPONSES_PART.unlisted(part)


_MESSAGES_FIELDS = _set_of(
    "model messages system max_tokens stream temperature top_k top_p stop_sequences tools tool_choice thinking "
    "output_config output_format service_tier cache_control"
)
# Tools whose schema is Anthropic's and which the client runs.
_CLIENT_TOOLS = re.compile(r"custom|(bash|text_editor|memory)_\d+")
_MESSAGES_TOOL = Shape.of(
    "type name description input_schema input_examples strict defer_loading eager_input_streaming allowed_callers "
    "max_characters",
    cache_control=_CACHE_MARK,
)
_BLOCK = Shape.of(
    "type text citations title context id name input tool_use_id content is_error thinking signature data tool_name",
    source=Shape.of("type media_type data url file_id content"),
    caller=Shape.of("type"),
    cache_control=_CACHE_MARK,
)
_CLIENT_BLOCKS = _set_of(
    "text image document tool_use tool_result search_result thinking redacted_thinking tool_reference"
)
_MESSAGES = Shape(
    _MESSAGES_FIELDS,
    {
        "messages": Shape.of("role content"),
        "tool_choice": _CHOICE,
        "thinking": _THINKING,
        "output_config": Shape.of("effort", format=_FORMAT),
        "output_format": _FORMAT,
        "cache_control": _CACHE_MARK,
    },
)


def _messages_escapes(body: Json) -> Iterator[str]:
    for tool in _several(body.get("tools")):
        kind = tool.get("type") or "custom"
        if not _CLIENT_TOOLS.fullmatch(str(kind)):
            yield _name(kind)
        else:
            yield from _MESSAGES_TOOL.unlisted(tool)
        callers = tool.get("allowed_callers") or []
        for caller in callers if isinstance(callers, list) else [callers]:
            if caller != "direct":
                yield _name(caller)
    yield from _chosen(body.get("tool_choice"), ("auto", "any", "tool", "none"))
    for block in _several(body.get("system")):
        yield from _block(block)
    for message in _several(body.get("messages")):
        for block in _several(message.get("content")):
            yield from _block(block)


def _block(block: Json) -> Iterator[str]:
    kind = str(block.get("type"))
    if kind in _CLIENT_BLOCKS:
        yield from _BLOCK.unlisted(block)
    for source in _several(block.get("source")):  # whatever the block: not every server goes by its type
        fetched = source.get("type") == "base64" and "://" in str(source.get("data", ""))[:4096]
        if source.get("type") == "url" or source.get("url") or fetched:
            yield URLS
        elif source.get("type") == "file" or source.get("file_id"):
            yield FILES
        elif source.get("type") not in ("base64", "text", "content"):
            yield _name(source.get("type"))
        for part in _several(source.get("content")):
            yield from _block(part)
    if kind in ("image", "document"):
        if not isinstance(block.get("source"), dict):
            yield _name(block.get("source"))
    elif kind in ("tool_result", "search_result"):
        for part in _several(block.get("content")):
            yield from _block(part)
    elif kind == "server_tool_use":
        yield _name(block.get("name"))
    elif kind not in _CLIENT_BLOCKS:
        yield _item_name(kind)


_GEMINI_FIELDS = _set_of(
    "model stream count contents systemInstruction tools toolConfig generationConfig safetySettings serviceTier"
)
_GEMINI_PARTS = _set_of(
    "text thought thought_signature inline_data function_call function_response video_metadata media_resolution "
    "part_metadata"
)
_GEMINI_DECLARATION = Shape.of(
    "name description behavior parameters parameters_json_schema response response_json_schema"
).in_camel_case_too()
_GEMINI_PART = Shape.of(
    "",
    inline_data=Shape.of("mime_type data display_name"),
    function_call=Shape.of("id name args partial_args will_continue"),
    function_response=Shape.of("id name response parts scheduling will_continue"),
    video_metadata=Shape.of("start_offset end_offset fps"),
    media_resolution=Shape.of("level"),
).in_camel_case_too()
_GEMINI = Shape(
    _GEMINI_FIELDS,
    {
        "contents": Shape.of("role parts"),
        "systemInstruction": Shape.of("role parts"),
        "safetySettings": Shape.of("category threshold method"),
        "toolConfig": Shape.of(
            "", function_calling_config=Shape.of("mode allowed_function_names stream_function_call_arguments")
        ).in_camel_case_too(),
        "generationConfig": Shape.of(
            "stop_sequences response_mime_type response_schema response_json_schema _response_json_schema "
            "response_modalities candidate_count max_output_tokens temperature top_p top_k seed presence_penalty "
            "frequency_penalty response_logprobs logprobs media_resolution audio_timestamp",
            thinking_config=Shape.of("include_thoughts thinking_budget thinking_level"),
        ).in_camel_case_too(),
    },
)


def _gemini_escapes(body: Json) -> Iterator[str]:
    for tool in _several(body.get("tools")):
        # A tool of the provider is a key, and `{}` is enough to switch it on.
        for key, value in tool.items():
            if _name(key) == "function_declarations":
                yield from _GEMINI_DECLARATION.unlisted(value)
            elif value is not None:
                yield _name(key)
    for content in [*_several(body.get("contents")), *_several(body.get("systemInstruction"))]:
        for part in _several(content.get("parts")):
            yield from _gemini_part(part)


def _gemini_part(part: Json) -> Iterator[str]:
    for key, value in part.items():
        name = _name(key)
        if name == "file_data":  # the address of an uploaded file, of a bucket, of a video, or of anything
            address = str(inner(value, "fileUri") or inner(value, "file_uri") or "")
            yield FILES if "generativelanguage.googleapis.com" in address or address.startswith("files/") else URLS
        elif name in ("executable_code", "code_execution_result"):
            yield "code_execution"
        elif value is not None and name not in _GEMINI_PARTS:
            yield name
        elif key in _GEMINI_PART.below:
            yield from _GEMINI_PART.below[key].unlisted(value)
        if name == "function_response":
            for inside in _several(inner(value, "parts")):
                yield from _gemini_part(inside)


POWERS: dict[WireName, Powers] = {
    "chat": Powers(
        _CHAT, _chat_escapes, frozenset({"metadata", "user", "safety_identifier", "prompt_cache_retention"})
    ),
    "responses": Powers(
        _RESPONSES,
        _responses_escapes,
        frozenset({"metadata", "user", "safety_identifier", "client_metadata", "prompt_cache_retention"}),
    ),
    "messages": Powers(_MESSAGES, _messages_escapes, frozenset({"metadata"})),
    "gemini": Powers(_GEMINI, _gemini_escapes, frozenset({"labels"})),
}
