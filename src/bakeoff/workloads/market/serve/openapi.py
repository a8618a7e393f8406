"""The HTTP server's description of itself, from the table of methods: for clients, and for those who fuzz it."""

from __future__ import annotations

from typing import Any

from bakeoff.version import __version__
from bakeoff.workloads.market.methods import METHODS, Method
from bakeoff.workloads.market.rpc import CODES, LARGEST_BATCH, LARGEST_ID, LONGEST_ID

IDEMPOTENCY_KEY = "[!-~]{1,100}"
_NUMBER = {"type": "number", "exclusiveMinimum": -LARGEST_ID, "exclusiveMaximum": LARGEST_ID}
_ID = {"anyOf": [{"type": "string", "maxLength": LONGEST_ID}, _NUMBER]}
_NULLABLE_ID = {"anyOf": [*_ID["anyOf"], {"type": "null"}]}
_ERROR = {
    "type": "object",
    "required": ["code", "message", "data"],
    "properties": {
        "code": {"type": "integer", "enum": sorted(CODES.values())},
        "message": {"type": "string"},
        "data": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string", "enum": sorted(CODES)}},
        },
    },
}
_ANSWER = {
    "type": "object",
    "required": ["jsonrpc", "id"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": _NULLABLE_ID,
        "result": {"type": "object"},
        "error": {"$ref": "#/components/schemas/Error"},
    },
    "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
}
_REFUSALS = {
    "400": "The body is no JSON-RPC request.",
    "401": "The token is missing or opens no seat.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "A fault of the server; nothing was lost.",
}


def openapi(paths: tuple[str, ...]) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "bakeoff market", "version": __version__, "description": "JSON-RPC 2.0, one seat a token."},
        "security": [{"token": []}],
        "paths": {**{path: {"post": _operation(path)} for path in paths}, "/health": {"get": _health()}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": _ERROR,
                "Answer": _ANSWER,
                **{_name(method): _request(method) for method in METHODS.values()},
            },
        },
    }


def _operation(path: str) -> dict[str, Any]:
    one = {"oneOf": [{"$ref": f"#/components/schemas/{_name(method)}"} for method in METHODS.values()]}
    answers = {"$ref": "#/components/schemas/Answer"}
    body = {"anyOf": [one, {"type": "array", "minItems": 1, "maxItems": LARGEST_BATCH, "items": one}]}
    return {
        "operationId": "call" if path == "/" else "a2a",
        "summary": "Call one method, or several in a batch.",
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "Repeating a request with the same key gives the first one's answers and changes nothing.",
                "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _content(
                "Answers, refusals of calls among them.", {"anyOf": [answers, {"type": "array", "items": answers}]}
            ),
            "204": {"description": "There were only notifications."},
            **{status: _content(said, answers) for status, said in _REFUSALS.items()},
        },
    }


def _health() -> dict[str, Any]:
    return {
        "operationId": "health",
        "security": [],
        "responses": {"200": _content("The server is up.", {"type": "object", "required": ["status"]})},
    }


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _name(method: Method) -> str:
    return method.short[0].upper() + method.short[1:]


def _request(method: Method) -> dict[str, Any]:
    params = method.schema
    required = ["jsonrpc", "method", *(["params"] if params.get("required") else [])]
    return {
        "type": "object",
        "description": f"{method.description} Gives {method.result}",
        "required": required,
        "additionalProperties": False,
        "properties": {"jsonrpc": {"const": "2.0"}, "method": {"const": method.name}, "id": _ID, "params": params},
    }
