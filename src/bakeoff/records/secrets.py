"""Secrets in what is recorded: found by their shape or by the name before them, and replaced.

    hide("psql postgres://me:hunter2@db/x")        # 'psql postgres://me:[redacted]@db/x'
    hide_tree({"api_key": "abc123def456", "n": 3}) # {'api_key': '[redacted]', 'n': 3}

`SHAPES` is the one table of patterns. Each takes time in proportion to the text: a pattern starts only where a word
starts, and what it repeats is bounded. Words that must occur are looked for first, which is quick, so a text without
any costs next to nothing. What a run prints into its own files is the run's business and is not searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

REDACTED = "[redacted]"


class Shape(NamedTuple):
    """Text that gives a secret away. The pattern's group `s` is the secret; without one, all of it is."""

    what: str
    hints: tuple[str, ...]
    """One of these is in the text, in small letters, wherever the pattern matches."""
    pattern: str
    test: Callable[[re.Match[str]], bool] | None = None
    """What else has to hold."""


_START = r"(?<![A-Za-z0-9_\-])"
_TOKEN = r"[A-Za-z0-9_\-]"
_END = r"(?![A-Za-z0-9_\-])"


def _token(what: str, prefix: str, body: str, *hints: str) -> Shape:
    """A token that tells by its prefix what it is."""
    return Shape(what, tuple(hint.lower() for hint in hints), f"{_START}(?:{prefix}){body}")


# -- names

_PASSWORDS = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "pass", "pgpassword", "userpass"})
_WORDS = frozenset(
    {"secret", "token", "apikey", "credential", "credentials", "jwt", "bearer", "pat", "signature", "sig"}
)
_BEFORE_KEY = frozenset(
    {"api", "access", "secret", "private", "auth", "account", "signing", "encryption", "master", "service", "subscription",
     "license", "deploy", "ssh", "gpg", "storage", "admin", "app", "x"}
)  # fmt: skip
_BROAD = (
    r"(?i)key|token|secret|passw|passphrase|[_-]pass$|^pass$|[_-]pwd$|credential|auth|cookie|_pat$|^pat$|private|dsn"
    r"|database_url|connection_?string|webhook|session|signature|^sig$"
)
_SECRET_OPTION = (
    r"(?i)(?:[a-z0-9_.\-]{0,100}[_.\-])?(?:pass(?:word|wd|phrase|code)?|pwd|token|secret|credentials?|jwt|pat|auth(?:orization)?"
    r"|cookie|dsn|signature|(?:(?:api|access|secret|private|auth|account|signing|encryption|master|admin)[_\-]?)?key"
    r"(?<!sort.key)(?<!dict.key)(?<!primary.key)(?<!foreign.key)(?<!group.key))"
)
"""Options and settings on a command line whose values are not recorded."""
_OPTION = r"-(?:-?|[A-Za-z]{1,3}\d{0,4}|-[A-Za-z][A-Za-z0-9_.\-]{0,60})"
"""An argument that is an option itself (-v, -j2, --name), where the value of the one before it could be."""
_SPLIT = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"


def sounds_secret(name: str) -> bool:
    """Whether a variable, an option or a URL's parameter of this name holds a secret, rather too often than not."""
    return re.search(_BROAD, name) is not None


def _holds(name: str, value: str) -> bool:
    """Whether `name` is that of a secret and `value` is one: for parameters and code, where most `token`s are none.

    A password is any text. A token, a secret or a key has letters and digits and is not short: `eos_token = "</s>"`,
    `sort_key = "name"` and `max_tokens = 512` stay.
    """
    if not value or value.startswith(("$", "<", "{", "%", REDACTED)) or re.fullmatch(r"[*xX.]{3,}", value):
        return False
    words = [word.lower() for word in re.findall(_SPLIT, name)]
    if not words:
        return False
    last = words[-1] if not words[-1].isdigit() or len(words) == 1 else words[-2]
    if words == ["pass"]:  # a verdict of a test, most of the time
        return len(value) >= 8 and _opaque(value)
    if last in _PASSWORDS:
        return value.lower() not in ("none", "null", "true", "false", "str", "string", "required", "optional")
    if last == "key" and (len(words) == 1 or words[-2] not in _BEFORE_KEY):
        return len(value) >= 20 and _opaque(value)
    if last == "key" or last in _WORDS or name.lower().endswith(("apikey", "authtoken", "accesstoken")):
        return len(value) >= 8 and _opaque(value)
    return last in ("dsn", "auth", "authorization", "cookie") and len(value) >= 16 and _opaque(value)


def _opaque(value: str) -> bool:
    """Whether text could be drawn at random: one word of letters and digits, and no path, call or expression."""
    return (
        re.fullmatch(r"[A-Za-z0-9_\-.+/=~:!@#$%^&*?|]{1,4096}", value) is not None
        and re.search(r"[0-9]", value) is not None
        and re.search(r"[A-Za-z]", value) is not None
        and re.match(r"\.{0,2}/|~/|[A-Za-z]:\\|(?:os|self|args|config|settings|env|sys)\.", value) is None
    )


def _named(match: re.Match[str]) -> bool:
    return _holds(match["name"], match["s"])


def _url_parameter(match: re.Match[str]) -> bool:
    return sounds_secret(match["name"]) and not match["s"].startswith(("$", "{", REDACTED))


# -- shapes

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private key",
        ("private key",),
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<s>(?:[^-]|-(?!----)){1,40000})"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
    _token("OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse", "sk", rf"-(?=[A-Za-z_\-]{{0,200}}\d){_TOKEN}{{20,400}}", "sk-"),
    _token("Groq, Stripe, ElevenLabs", "gsk|sk|rk|whsec", r"_(?:live_|test_)?[A-Za-z0-9]{24,400}", "gsk_", "sk_", "rk_", "whsec_"),
    _token("xAI, Perplexity, NVIDIA, Tavily", "xai|pplx|nvapi|tvly", rf"-{_TOKEN}{{20,400}}", "xai-", "pplx-", "nvapi-", "tvly-"),
    _token("Replicate, Fireworks, Linear, Docker", "r8|fw|lin_api|dckr_pat|dckr_oat", rf"_{_TOKEN}{{20,400}}", "r8_", "fw_", "lin_api_", "dckr_"),
    _token("Hugging Face", "hf|api_org", r"_[A-Za-z0-9]{24,400}", "hf_", "api_org_"),
    _token("Weights & Biases", "wandb_v[0-9]", rf"_{_TOKEN}{{20,400}}", "wandb_v"),
    _token("LangSmith", "lsv2_(?:pt|sk)", r"_[A-Za-z0-9]{24,100}_[A-Za-z0-9]{6,40}", "lsv2_"),
    _token("AWS key id", "AKIA|ASIA|AROA|AIDA|ABIA|ACCA", rf"[A-Z2-7]{{16}}{_END}", "akia", "asia", "aroa", "aida", "abia", "acca"),
    _token("GitHub", "gh[pousr]|github_pat", r"_[A-Za-z0-9_]{22,400}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _token("GitLab", "gl(?:pat|oas|dt|rt|cbt|ptt|ft|soat|agent|imt|ffct)", r"-[A-Za-z0-9_\-.=]{20,400}", "gl"),
    _token("Slack", "xox[abceoprs]|xapp", r"-[A-Za-z0-9\-.]{10,400}", "xox", "xapp-"),
    _token("Google", "AIza", rf"{_TOKEN}{{35}}{_END}", "aiza"),
    _token("Google OAuth", r"ya29\.|1//0|GOCSPX-", rf"{_TOKEN}{{20,400}}", "ya29.", "1//0", "gocspx-"),
    _token("npm", "npm", rf"_[A-Za-z0-9]{{36}}{_END}", "npm_"),
    _token("PyPI", "pypi-AgEI", rf"{_TOKEN}{{40,400}}", "pypi-agei"),
    _token("Databricks", "dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_END}", "dapi"),
    _token("DigitalOcean", "do[opr]_v1", rf"_[0-9a-f]{{64}}{_END}", "_v1_"),
    _token("SendGrid", r"SG\.", rf"{_TOKEN}{{16,64}}\.{_TOKEN}{{32,64}}", "sg."),
    _token("Twilio", "SK", rf"[0-9a-f]{{32}}{_END}", "sk"),
    _token("Telegram", r"\d{8,10}:AA", rf"{_TOKEN}{{33}}{_END}", ":aa"),
    _token("Shopify", "shp(?:at|ca|pa|ss)", rf"_[0-9a-fA-F]{{32}}{_END}", "shp"),
    _token("Notion", "ntn|secret", rf"_[A-Za-z0-9]{{40,60}}{_END}", "ntn_", "secret_"),
    _token("Vault", r"hv[sbr]\.", rf"{_TOKEN}{{24,400}}", "hvs.", "hvb.", "hvr."),
    _token("Modal", "a[ks]", rf"-[A-Za-z0-9]{{22}}{_END}", "ak-", "as-"),
    _token("age", "AGE-SECRET-KEY-1", r"[A-Z0-9]{40,80}", "age-secret-key-1"),
    _token("Cerebras, LlamaCloud, Heroku, New Relic, Postman", "csk|llx|HRKU|NRAK|PMAK", rf"-{_TOKEN}{{20,400}}", "csk-", "llx-", "hrku-", "nrak-", "pmak-"),
    _token("Supabase, Netlify, Sentry, Figma", "sbp|sb_secret|nfp|sntry[su]|figd", rf"_{_TOKEN}{{20,800}}", "sbp_", "sb_secret_", "nfp_", "sntry", "figd_"),
    _token("Grafana, PlanetScale, Pinecone, E2B", "glsa|glc|pscale_(?:tkn|pw|oauth)|pcsk|e2b", r"_[A-Za-z0-9_\-+=]{20,800}", "glsa_", "glc_", "pscale_", "pcsk_", "e2b_"),
    _token("Daytona, Jina, Anyscale", "dtn|jina|esecret", rf"_{_TOKEN}{{24,400}}", "dtn_", "jina_", "esecret_"),
    _token("Firecrawl, Mailgun, Mailchimp", "", rf"(?:(?:fc|key)-[0-9a-f]{{32}}|[0-9a-f]{{32}}-us\d{{1,2}}){_END}", "fc-", "key-", "-us"),
    _token("Voyage", "pa", rf"-(?=[A-Za-z_\-]{{0,40}}\d){_TOKEN}{{43}}{_END}", "pa-"),
    _token("Alibaba, Tencent", "LTAI|AKID", rf"[A-Za-z0-9]{{16,40}}{_END}", "ltai", "akid"),
    _token("Atlassian", "ATATT3x|ATCTT3x|ATBB", r"[A-Za-z0-9_\-=]{24,400}", "atatt3x", "atctt3x", "atbb"),
    _token("Square", "EAAA", rf"{_TOKEN}{{60}}{_END}", "eaaa"),
    _token("Airtable", "pat", rf"[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}{_END}", "pat"),
    _token("Terraform", r"[A-Za-z0-9]{14}\.atlasv1\.", rf"{_TOKEN}{{40,100}}", ".atlasv1."),
    _token("JSON web token", "eyJ", rf"{_TOKEN}{{8,4000}}\.eyJ{_TOKEN}{{8,8000}}(?:\.{_TOKEN}{{0,4000}})?", "eyj"),
    Shape(
        "webhook",
        ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/"),
        (
            r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/)"
            r"(?P<s>[A-Za-z0-9_\-/@.]{10,400})"
        ),
    ),
    Shape(
        "authorization header",
        ("bearer", "basic", "authorization"),
        (
            r"(?i)(?<![a-z])(?:(?:bearer|basic)(?:\s{1,3}|:\s{0,3})(?=[A-Za-z0-9._~+/=\-]{16})"
            r"|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|bearer|token|api-?key)\s{1,3})"
            r"(?P<s>[A-Za-z0-9._~+/=\-]{6,8000})"
        ),
        lambda match: _opaque(match["s"]),
    ),
    Shape(
        "password in a URL",  # greedy up to the last @: a password may contain one. A port is none.
        ("://",),
        r"://[A-Za-z0-9._~%!$&'()*+,;=\-]{0,200}:(?!\d{1,5}(?:[/?#\s]|$))(?P<s>[^\s]{1,1000})@",
        lambda match: not match["s"].startswith(("$", "{", "<", REDACTED)),
    ),
    Shape(
        "token in a URL",
        ("http://", "https://"),
        r"https?://(?P<s>[^/:@\s]{1,500})@",
        lambda match: not match["s"].startswith(("$", "{", "<", REDACTED)),
    ),
    Shape(
        "parameter of a URL",
        ("?", "&"),
        r"[?&](?P<name>[A-Za-z0-9_.\-]{1,60})=(?P<s>[^&\s\"'<>#\\]{1,4096})",
        _url_parameter,
    ),
    Shape(
        "account key",
        ("accountkey=", "sharedaccesskey=", "sharedaccesssignature="),
        r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<s>[^;\s\"']{8,1000})",
    ),
    Shape(
        "option with a password",  # --password x, --api-key=x, -u me:x
        ("--", "-u "),
        (
            r"(?i)(?<![\w\-])(?:--[a-z0-9\-_.]{0,40}?(?:password|passwd|passphrase|pwd|token|secret|api[\-_]?key"
            r"|access[\-_]?key|secret[\-_]?key|private[\-_]?key|credentials?)(?:=|\s{1,3})|(?:-u|--user|--proxy-user)[= ][^\s:]{1,100}:)"
            rf"(?!{_OPTION}(?:[\s=]|$)|[$<{{\[/]|\.\.\.)(?P<s>\"[^\"\n]{{1,1000}}\"|'[^'\n]{{1,1000}}'|[^\s\"']{{1,1000}})"
        ),
    ),
    Shape(
        "line of .pgpass",  # host:port:database:user:password, at the usual ports, in a diff too
        (":543", ":6432:", ":6543:", ":*:"),
        (
            r"(?m)^[+\- ]?[\w.*/\-]{1,200}:(?:543\d|6432|6543|\*):(?:[^:\s\\]|\\.){1,100}:(?:[^:\s\\]|\\.){1,100}:"
            r"(?P<s>(?:[^:\s\\]|\\.){1,1000})[ \t\r]{0,3}$"
        ),
        lambda match: not match["s"].startswith(REDACTED),
    ),
    Shape(
        "password of a program",  # .netrc, and programs whose option for it is one letter
        ("password", "docker", "podman", "sshpass", "mysql", "mariadb", "wandb"),
        (
            r"(?i)(?<![\w.\-])(?:login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}|sshpass\s{1,3}-p ?|wandb\s{1,3}login\s{1,3}"
            r"|(?:docker|podman)\s{1,3}login\s(?:[^\n]{0,200}?\s)?-p ?|(?:mysql|mariadb)(?:dump|admin)?\s(?:[^\n]{0,200}?\s)?-p)"
            r"(?![\-$<{\[/])(?P<s>[^\s\"']{4,1000})"
        ),
        lambda match: not match["s"].startswith(REDACTED),
    ),
    Shape(
        "quoted password",  # may have any characters: passphrase = "correct horse", <password>x</password>, password: >-
        ("pass", "pwd"),
        (
            r"(?<![A-Za-z0-9_.\-])(?=[A-Za-z0-9_.\-]{0,79}(?i:pass|pwd))(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{1,79})"
            r"(?:\\?[\"'])?\]?(?:[ \t]{0,4}(?:=>|:=|=(?!=)|:(?![:/]))[ \t]{0,4}"
            r"(?:[rbfu]{0,2}(?:\"{3}|'{3}|\\?[\"'])|[|>][+\-]?\n[ \t]{1,20})|>)"
            r"(?P<s>[^\"'\\\n<]{1,1000})(?=[\"'\\\n<]|$)"
        ),
        _named,
    ),
    Shape(
        "named value",  # API_KEY=x, "password": "x", token: x
        ("key", "token", "secret", "passw", "pass", "pwd", "credential", "auth", "dsn", "pat", "jwt", "cookie", "sig"),
        (
            r"(?<![A-Za-z0-9_.\-])"
            r"(?=[A-Za-z0-9_.\-]{0,79}(?i:key|token|secret|pass|pwd|credential|auth|dsn|pat|jwt|cookie|sig|bearer))"
            r"(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{1,79})[\"']?\]?[ \t]{0,4}(?:=>|:=|=(?!=)|:(?![:/]))[ \t]{0,4}"
            r"(?:[rbfu]{0,2}[\"'])?(?P<s>[^\s\"'`,;(){}\[\]<>\\]{4,4096})(?![A-Za-z0-9_.(\[])"
        ),
        _named,
    ),
)  # fmt: skip


def hide(text: str) -> str:
    """The text with every secret that is found in it replaced."""
    hints, shapes = _compiled()
    lowered = text.lower()
    if hints.search(lowered) is None:
        return text
    for shape, pattern in shapes:
        for hint in shape.hints:
            if hint in lowered:
                text = pattern.sub(lambda match, test=shape.test: _replaced(match, test), text)  # type: ignore[misc]
                break
    return text


@cache
def _compiled() -> tuple[re.Pattern[str], list[tuple[Shape, re.Pattern[str]]]]:
    """All hints as one pattern, and each shape with its own; made when first needed, since it takes 10 ms."""
    hints = dict.fromkeys(hint for shape in SHAPES for hint in shape.hints)
    return re.compile("|".join(map(re.escape, hints))), [(shape, re.compile(shape.pattern)) for shape in SHAPES]


def _replaced(match: re.Match[str], test: Callable[[re.Match[str]], bool] | None) -> str:
    if test is not None and not test(match):
        return match[0]
    if "s" not in match.re.groupindex:
        return REDACTED
    start, end = (position - match.start() for position in match.span("s"))
    return match[0][:start] + REDACTED + match[0][end:]


def hide_tree(value: Any) -> Any:
    """Nested tables and lists with their secrets replaced: by the name of a value, or by what it looks like."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {
            hide(name) if isinstance(name, str) else name: _hide_named(str(name), item) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return hide_argv(value) if all(isinstance(item, str) for item in value) else [hide_tree(item) for item in value]
    return value


def _hide_named(name: str, item: Any) -> Any:
    """A value with this name. A list or table of secrets is one too: `passwords = [...]`, `secret.value = ...`."""
    if isinstance(item, str):
        return REDACTED if _holds(name, item) else hide(item)
    if isinstance(item, int) and not isinstance(item, bool):
        words = [word.lower() for word in re.findall(_SPLIT, name)]
        return REDACTED if words and words[-1] in _PASSWORDS - {"pass"} else item
    if isinstance(item, list | tuple) and item and all(isinstance(part, str) for part in item):
        single = name.removesuffix("s")
        if any(_holds(single, part) for part in item):
            return [REDACTED if _holds(single, part) else hide(part) for part in item]
    if isinstance(item, Mapping) and isinstance(item.get("value"), str) and _holds(name, item["value"]):
        return {**hide_tree(item), "value": REDACTED}
    return hide_tree(item)


def hide_argv(argv: Sequence[str]) -> list[str]:
    """A command line without secrets: `--set params.api_key=...`, `--api-key ...` and the like lose their values."""
    shown: list[str] = []
    hidden = False
    for part in argv:
        name, equals, value = part.partition("=")
        secret = re.fullmatch(_SECRET_OPTION, name) is not None
        option = re.fullmatch(_OPTION, name) is not None
        if hidden and not option and not part.startswith("$"):
            shown.append(REDACTED)
        elif equals and secret and value and not value.startswith("$"):
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(hide(part))
        hidden = part.startswith("-") and secret and not equals
    return shown


def hide_json(text: str) -> str:
    """JSON text of a table with its secrets replaced; the same text when there are none."""
    table = json.loads(text)
    shown = hide_tree(table)
    return text if shown == table else json.dumps(shown)


def frozen_copy(file: Path) -> bytes:
    """An experiment file as it is kept with the results: as it is or, with a secret in it, without that and a note."""
    content = file.read_bytes()
    text = content.decode("utf-8", "surrogateescape")
    shown = hide(text)
    if shown == text:
        return content
    note = "" if file.suffix.lower() == ".json" else f"# Secrets in this copy were replaced by {REDACTED}.\n"
    return f"{note}{shown}".encode("utf-8", "surrogateescape")
