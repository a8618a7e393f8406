"""A secret that a user writes somewhere is nowhere in the edition that is kept, and the run still gets it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.secrets import REDACTED

# Put together here, so that no scanner takes them for a leak.
IN_PARAMS = "par" + "1a2b3c4d5e6f7g8h"
IN_COMMAND = "sk" + "-ant-api03-" + "c0mm4nd" * 6
IN_ENV = "gh" + "p_" + "3nv1r0nm3n7" * 4
IN_SET = "s3t" + "9z8y7x6w5v4u3t2s"
IN_ERROR = "hun" + "ter2error"
IN_CODE = "AK" + "IA" + "Q7ZK2MVXW3JH5RTN"
IN_SHELL = "c0mpany" + "1nternal"
FILE = f"""\
name = "quiet"
seeds = [1]
[env]
GIT_AUTH = "{IN_ENV}"
[params]
command = ["python3", "work.py", "--api-key", "{IN_COMMAND}", "--token={{api_token}}"]
api_token = "{IN_PARAMS}"
client_secret = "x"
"""
WORK = f"""\
import os, sys
assert sys.argv[2] == "{IN_COMMAND[:9]}" + "{IN_COMMAND[9:]}", sys.argv
assert sys.argv[3] == "--token=" + "{IN_PARAMS[:9]}" + "{IN_PARAMS[9:]}", sys.argv
assert os.environ["GIT_AUTH"] == "{IN_ENV[:9]}" + "{IN_ENV[9:]}"
print("cannot reach postgres://me:" + "{IN_ERROR[:6]}" + "{IN_ERROR[6:]}@db/x", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.slow
def test_no_secret_is_kept_with_the_results(
    bakeoff: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet.toml").write_text(FILE)
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "settings.py").write_text("KEY = None\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "settings.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "settings.py").write_text(f'KEY = "{IN_CODE}"\n')
    monkeypatch.setenv("COMPANY_THING", IN_SHELL)
    result = bakeoff("run", "quiet.toml", "--set", f"params.client_secret={IN_SET}")
    assert result.exit_code == 1, result.output  # the run fails, since the database cannot be reached
    edition = (tmp_path / "bakeoff-runs" / "quiet" / "latest").resolve()
    kept = {path: path.read_bytes() for path in edition.rglob("*") if path.is_file()}
    own_output = {path for path in kept if path.name in ("stderr.txt", "stdout.txt")}  # the run's own words
    for secret in (IN_PARAMS, IN_COMMAND, IN_ENV, IN_SET, IN_CODE, IN_SHELL, IN_ERROR):
        leaks = [path.name for path, content in kept.items() if secret.encode() in content and path not in own_output]
        assert not leaks, (secret, leaks)
    shown = bakeoff("show", "quiet/latest", "--json").stdout
    assert REDACTED in shown
    assert "fill it in" in bakeoff("reproduce", "quiet/latest").output
    assert bakeoff("reproduce", "quiet/latest", "--exec").exit_code == 2


@pytest.mark.slow
def test_a_run_with_a_secret_is_resumed_like_any_other(bakeoff: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "quiet.toml").write_text(FILE.replace("seeds = [1]", "seeds = [1]\n").replace("work.py", "fine.py"))
    (tmp_path / "fine.py").write_text("print('{\"score\": 1}')\n")
    assert bakeoff("run", "quiet.toml").exit_code == 0
    (tmp_path / "quiet.toml").write_text(FILE.replace("seeds = [1]", "seeds = [1, 2]").replace("work.py", "fine.py"))
    result = bakeoff("run", "quiet.toml", "--json")
    assert result.exit_code == 0, result.output
    status = bakeoff("status", "quiet", "--json").stdout
    assert '"planned": 2' in status and '"succeeded": 2' in status
