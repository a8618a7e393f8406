"""Secrets are found in text and tables by shape and by name, and what only looks like one stays.

Examples are put together when the test runs, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from bakeoff.records.secrets import REDACTED, frozen_copy, hide, hide_argv, hide_tree

RANDOM = random.Random(7)
LETTERS, HEX = string.ascii_letters + string.digits, "0123456789abcdef"


def draw(length: int, alphabet: str = LETTERS) -> str:
    """Characters at random, with a digit and a letter among them, as every real token has."""
    return "a1" + "".join(RANDOM.choice(alphabet) for _ in range(length - 2))


def joined(*parts: str) -> str:
    return "".join(parts)


PEM = "\n".join(["MII" + draw(61), draw(64), draw(64)])
JWT = ".".join(joined("ey", "J", draw(30)) for _ in range(2)) + "." + draw(43)
SECRETS: dict[str, tuple[str, str]] = {
    # name: (what must not be in the text afterwards, the text)
    "openai": (key := joined("sk", "-", draw(48)), f"using {key} now"),
    "openai project": (key := joined("sk", "-proj-", draw(60), "_", draw(20)), f'client = OpenAI("{key}")'),
    "anthropic": (key := joined("sk", "-ant-", "api03-", draw(80), "-", draw(10)), f"x-api-key: {key}"),
    "openrouter": (key := joined("sk", "-or-v1-", draw(64, HEX)), key),
    "groq": (key := joined("gs", "k_", draw(52)), f"key {key}"),
    "xai": (key := joined("xa", "i-", draw(80)), key),
    "perplexity": (key := joined("ppl", "x-", draw(48)), key),
    "nvidia": (key := joined("nv", "api-", draw(64)), key),
    "replicate": (key := joined("r", "8_", draw(37)), key),
    "hugging face": (key := joined("h", "f_", draw(34)), f"login(token='{key}')"),
    "w&b by name": (key := draw(40, HEX), joined("WANDB_", "API_KEY=", key)),
    "google": (key := joined("AI", "za", draw(35)), f"?k={key}"),
    "google oauth": (key := joined("ya", "29.", draw(60)), key),
    "google client": (key := joined("GOC", "SPX-", draw(28)), key),
    "aws key id": (key := joined("AK", "IA", "Q7ZK2MVXW3JH5RTN"), f"aws_access_key_id = {key}"),
    "aws temporary": (key := joined("AS", "IA", "Q7ZK2MVXW3JH5RTN"), f"id {key}"),
    "aws secret": (key := draw(40, LETTERS + "/+"), joined("aws_secret_", "access_key = ", key)),
    "github": (key := joined("gh", "p_", draw(36)), f"+    url = https://{key}:x@github.com"),
    "github app": (key := joined("gh", "s_", draw(36)), key),
    "github fine": (key := joined("github", "_pat_", draw(22), "_", draw(59)), key),
    "gitlab": (key := joined("gl", "pat-", draw(20)), key),
    "slack bot": (key := joined("xo", "xb-", "123456789012-123456789012-", draw(24)), key),
    "slack app": (key := joined("xa", "pp-1-", "A0123456789-123456789012-", draw(64, HEX)), key),
    "slack webhook": (key := joined("T0123456", "/B0123456/", draw(24)), f"https://hooks.slack.com/services/{key}"),
    "discord webhook": (key := joined("123456789012345678/", draw(68)), f"https://discord.com/api/webhooks/{key}"),
    "telegram": (key := joined("123456789", ":AA", draw(33)), f"bot{' '}{key}"),
    "stripe": (key := joined("sk", "_live_", draw(24)), key),
    "npm": (key := joined("np", "m_", draw(36)), key),
    "pypi": (key := joined("py", "pi-AgEI", "cHlwaS5vcmc", draw(100)), key),
    "databricks": (key := joined("da", "pi", draw(32, HEX)), key),
    "digitalocean": (key := joined("do", "p_v1_", draw(64, HEX)), key),
    "sendgrid": (key := joined("S", "G.", draw(22), ".", draw(43)), key),
    "twilio": (key := joined("S", "K", draw(32, HEX)), f"sid {key}"),
    "vault": (key := joined("hv", "s.", draw(90)), key),
    "langsmith": (key := joined("lsv2", "_pt_", draw(32, HEX), "_", draw(10, HEX)), key),
    "docker": (key := joined("dckr", "_pat_", draw(27)), key),
    "modal": (key := joined("a", "s-", draw(22)), key),
    "shopify": (key := joined("shp", "at_", draw(32, HEX)), key),
    "age": (key := joined("AGE-SECRET", "-KEY-1", draw(58).upper()), key),
    "jwt": (JWT, f'"cookie: session={JWT}"'),
    "bearer": (key := draw(40), f"Authorization: Bearer {key}"),
    "basic": (key := base64.b64encode(b"me:hunter2hunter2").decode(), f"-H 'Authorization: Basic {key}'"),
    "pem": (PEM, joined("-----BEGIN RSA ", f"PRIVATE KEY-----\n{PEM}\n", "-----END RSA ", "PRIVATE KEY-----")),
    "pem in a diff": (PEM.split("\n")[1], "\n".join("-" + line for line in joined("-----BEGIN ", f"PRIVATE KEY-----\n{PEM}").split("\n"))),
    "pem in json": (PEM.replace("\n", "\\n"), joined('"-----BEGIN ', "PRIVATE KEY-----\\n", PEM.replace("\n", "\\n"), '"')),
    "dsn": ("hunter2", "postgresql://me:hunter2@db.example.org:5432/results"),
    "dsn with signs": ("p@ss/w:rd", "mysql+pymysql://root:p@ss/w:rd@localhost/x"),
    "redis": ("hunter2", "REDIS=redis://:hunter2@cache:6379/0"),
    "git url": ((key := draw(20)), f"git clone https://{key}@git.example.org/x.git"),
    "s3 signed": ((key := draw(64, HEX)), f"https://b.s3.amazonaws.com/x?X-Amz-Date=20260101&X-Amz-Signature={key}&a=1"),
    "gcs signed": ((key := draw(64, HEX)), f"https://storage.googleapis.com/b/x?X-Goog-Signature={key}"),
    "azure sas": ((key := draw(43)), f"https://x.blob.core.windows.net/c?sv=2024-01-01&sig={key}%3D&se=2027"),
    "azure account": ((key := draw(86)), joined("DefaultEndpointsProtocol=https;AccountName=x;Account", f"Key={key}==")),
    "url parameter": ((key := draw(16)), f"curl https://api.example.org/v1?api_key={key}&q=1"),
    "option": ("hunter2", "mysql --password hunter2 -h db"),
    "option with a dash": ("-hunter2!", "mysql --password -hunter2! -h db"),
    "option with equals": ("hunter2", "train.py --wandb-api-key=hunter2 --lr 3"),
    "curl user": ("hunter2", "curl -u me:hunter2 https://example.org"),
    "variable": ((key := draw(32)), f"OPENAI_API_KEY={key} python x.py"),
    "quoted variable": ("hunter2", "export DB_PASSWORD='hunter2'"),
    "yaml": ("hunter2x", "db:\n  password: hunter2x\n"),
    "python": ("tr0ub4dor", '+    password = "tr0ub4dor"'),
    "toml": ((key := draw(24)), f'auth_token = "{key}"'),
    "json": ((key := draw(24)), f'{{"client_secret": "{key}"}}'),
    "cerebras": (key := joined("cs", "k-", draw(48)), key),
    "supabase": (key := joined("sb", "p_", draw(40, HEX)), key),
    "supabase secret": (key := joined("sb", "_secret_", draw(31)), key),
    "netlify": (key := joined("nf", "p_", draw(40)), key),
    "heroku": (key := joined("HR", "KU-", draw(60)), key),
    "sentry": (key := joined("sntr", "ys_", draw(60)), key),
    "new relic": (key := joined("NR", "AK-", draw(27).upper()), key),
    "grafana": (key := joined("gl", "sa_", draw(32), "_", draw(8, HEX)), key),
    "terraform": (key := joined(draw(14), ".atlas", "v1.", draw(60)), key),
    "figma": (key := joined("fi", "gd_", draw(40)), key),
    "airtable": (key := joined("pa", "t", draw(14), ".", draw(64, HEX)), key),
    "postman": (key := joined("PM", "AK-", draw(24, HEX), "-", draw(34, HEX)), key),
    "atlassian": (key := joined("AT", "ATT3xFf", draw(150)), key),
    "square": (key := joined("EA", "AA", draw(60)), key),
    "mailgun": (key := joined("ke", "y-", draw(32, HEX)), key),
    "mailchimp": (key := joined(draw(32, HEX), "-us", "12"), key),
    "planetscale": (key := joined("pscale", "_tkn_", draw(43)), key),
    "pinecone": (key := joined("pc", "sk_", draw(60)), key),
    "e2b": (key := joined("e2", "b_", draw(40, HEX)), key),
    "daytona": (key := joined("dt", "n_", draw(64, HEX)), key),
    "firecrawl": (key := joined("f", "c-", draw(32, HEX)), key),
    "voyage": (key := joined("p", "a-", draw(43)), key),
    "alibaba": (key := joined("LT", "AI5t", draw(16)), key),
    "tencent": (key := joined("AK", "ID", draw(32)), key),
    "api-key header": (key := draw(40), f"Authorization: Api-Key {key}"),
    "short basic": (key := base64.b64encode(b"me:pw").decode(), f"Authorization: Basic {key}"),
    "bearer with a colon": (key := draw(30), f"bearer:{key}"),
    "w&b login": (key := draw(40, HEX), f"wandb login {key}"),
    "netrc": ("hunter22", "machine github.com login me password hunter22"),
    "pgpass": ("hun\\:ter2", "db.example.org:5432:bench:me:hun\\:ter2"),
    "pgpass in a diff": ("hunter2", "@@ -0,0 +1 @@\n+*:*:*:me:hunter2\n"),
    "docker login": ("hunter22", "docker login -u me -p hunter22 registry"),
    "sshpass": ("hunter22", "sshpass -phunter22 ssh host"),
    "mysql": ("hunter22", "mysql -u root -phunter22 db"),
    "libpq": ("hunter22", "host=db user=me password=hunter22 dbname=x"),
    "odbc": ("hunter22", "Driver=x;UID=me;PWD=hunter22;"),
    "words": ("horse", 'passphrase = "correct horse battery"'),
    "triple quotes": ("hunter22", 'password = """hunter22"""'),
    "yaml block": ("hunter22", "password: >-\n  hunter22\n"),
    "xml": ("hunter22", "<password>hunter22</password>"),
    "escaped json": ("hunter22", r'{\"password\": \"hunter22\"}'),
    "camel case": ((key := draw(24)), f'{{"clientSecret": "{key}", "apiKey": "{key}"}}'),
}  # fmt: skip

INNOCENT = [
    hashlib.sha1(b"x").hexdigest(),
    hashlib.sha256(b"x").hexdigest(),
    f"commit {hashlib.sha1(b'y').hexdigest()} on main",
    f"sha256:{hashlib.sha256(b'z').hexdigest()}",
    str(uuid.UUID(int=2**100 + 12345)),
    "small__sort__s1__7c4961092959",
    "bakeoff-runs/sorting/20260101-120000/runs/size=1__s3__0a1b2c3d4e5f",
    base64.b64encode(bytes(range(256)) * 8).decode(),
    "data:image/png;base64," + base64.b64encode(bytes(range(200))).decode(),
    "12345678901234567890123456789012345678901234567890",
    "3.14159265358979323846264338327950288",
    "python train.py --max-tokens 512 --tokenizer bert-base-uncased --num-tokens=3",
    'eos_token = "<|endoftext|>"',
    "pad_token: <pad>",
    "max_tokens = 4096",
    "sort(key=lambda row: row.score)",
    'sort_key = "created_at"',
    'primary_key = "run_id"',
    "for key, value in table.items():",
    'KEYS = ("name", "seed", "rollout")',
    "password = getpass.getpass()",
    'api_key = os.environ["OPENAI_API_KEY"]',
    "OPENAI_API_KEY=${OPENAI_API_KEY}",
    "headers = { authorization = '${TOKEN}' }",
    "https://example.org:8443/path?page=2&sort=asc#token",
    "http://localhost:8080/@user/x",
    "git@github.com:me/x.git",
    "ssh://git@example.org:22/x.git",
    "docker pull ghcr.io/me/image@sha256:" + hashlib.sha256(b"i").hexdigest(),
    "task-scheduling-with-a-very-long-name-and-dashes",
    "risk-averse-agent-number-12345678901234567890",
    "scikit-learn==1.5.0 --hash=sha256:" + hashlib.sha256(b"s").hexdigest(),
    "author: Ada Lovelace <ada@example.org>",
    "Authorization is required for this page, says the basic manual of authentication",
    "diff --git a/keyboard.py b/tokens.py",
    "@@ -1,7 +1,9 @@ def token(self) -> str:",
    "train.py --read-token -v --api-key --lr 3 --password -- -j2",
    "server.example.org:5432:ready",
    "2026-01-01 12:5432:a:b:c d",
    "the secret of success: practice",
    "a login with a password is needed for docker login on this host",
    "mysql -u root -p db",
    'bypass = "never mind the rest"',
    'compass: "north by north-west"',
    "<pass>12</pass>",
    "fc-layer-1 key-value pa-rameters of us-east-1",
    "passed: 12, failed: 3, pass rate: 0.8",
    "CUDA_VISIBLE_DEVICES=0,1,2,3",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx me@host",
    "s3://bucket/checkpoints/step-0001000/model.safetensors",
    "/usr/lib/python3.11/site-packages/sklearn/metrics/_ranking.py",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_real_shape_is_replaced(name: str) -> None:
    secret, text = SECRETS[name]
    shown = hide(text)
    assert secret not in shown and REDACTED in shown, shown
    assert hide(shown) == shown  # what was hidden once does not change again
    assert secret not in repr(hide_tree({"a": [{"b": text}]}))


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert hide(text) == text
    assert hide_tree({"value": text, "list": [text]}) == {"value": text, "list": [text]}


def test_the_rest_of_a_text_stays() -> None:
    assert hide("psql postgres://me:hunter2@db/x -c 'SELECT 1'") == f"psql postgres://me:{REDACTED}@db/x -c 'SELECT 1'"
    assert hide("a --token abc123 b") == f"a --token {REDACTED} b"
    assert hide('{"password": "hunter2", "n": 3}') == f'{{"password": "{REDACTED}", "n": 3}}'


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ({"api_key": "abcd1234"}, {"api_key": REDACTED}),
        ({"db": {"password": "x"}}, {"db": {"password": REDACTED}}),
        ({"api_key": "${OPENAI_API_KEY}"}, {"api_key": "${OPENAI_API_KEY}"}),
        ({"max_tokens": 512, "token": 3, "key": True}, {"max_tokens": 512, "token": 3, "key": True}),
        ({"stop_token": "endoftext", "tokenizer": "gpt2", "key": "C#m7"}, None),
        ({"command": ["curl", "--token", "hush", "x"]}, {"command": ["curl", "--token", REDACTED, "x"]}),
        ({"command": ["train", "--max-tokens", "512"]}, None),
        ({"password": 12345678, "password_length": 12}, {"password": REDACTED, "password_length": 12}),
        ({"passwords": ["hunter2", "x"]}, {"passwords": [REDACTED, REDACTED]}),
        ({"secret": {"value": "hunter22aa1", "n": 1}}, {"secret": {"value": REDACTED, "n": 1}}),
        ({"tokens": ["the", "cat", "sat"], "passes": ["a", "b"]}, None),
    ],
)
def test_tables_are_searched_by_name_too(table: dict[str, Any], shown: dict[str, Any] | None) -> None:
    assert hide_tree(table) == (table if shown is None else shown)


def test_secrets_on_the_command_line_are_taken_out() -> None:
    argv = ["bakeoff", "run", "--set", "params.api_key=hush", "--api-key", "hush", "--token=hush", "--key", "-v", "x=1"]
    assert hide_argv(argv) == [
        "bakeoff", "run", "--set", f"params.api_key={REDACTED}", "--api-key", REDACTED, f"--token={REDACTED}", "--key", "-v",
        "x=1",
    ]  # fmt: skip


def test_a_password_may_begin_with_a_dash() -> None:
    argv = ["tool", "--password", "-hunter2!", "--token", "--verbose", "--secret", "-j2", "--passwd", "--", "x"]
    shown = ["tool", "--password", REDACTED, *argv[3:]]
    assert hide_argv(argv) == shown


def test_an_experiment_file_with_a_secret_is_copied_without_it(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"name = 'x' # caf\xe9\n")
    assert frozen_copy(file) == file.read_bytes()
    file.write_text('name = "x"\n[params]\napi_key = "abcd1234efgh"\n')
    assert frozen_copy(file).decode().splitlines() == [
        f"# Secrets in this copy were replaced by {REDACTED}.", 'name = "x"', "[params]", f'api_key = "{REDACTED}"',
    ]  # fmt: skip


HOSTILE = [
    "sk-", "eyJaaaaaaaaaa.", "eyJaaaaaaaaaa-", "://a:", "://", "-----BEGIN PRIVATE KEY-----", "key=", "key: ", "--token ",
    "a.b-", "?key=", "&", "Bearer ", "a" * 1000, "_", "password ", "\n", "ghp_", "key\t\t\t\t", "docker login ", "mysql a ", "login x password ", "pass: >-\n", "password='", '"key"', "https://a",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_more_than_linear_time(piece: str, untraced: None) -> None:
    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        began = time.process_time()
        hide(text)
        return time.process_time() - began

    short, long = seconds(20_000), seconds(320_000)
    assert long < 64 * short + 0.2, (short, long)  # linear is 16 times, quadratic is 256 times
