"""Dockerfiles are built without a daemon, each step once."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.sandbox import images
from bakeoff.sandbox.base import BoxSpec, Image
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.sandbox.build import BuildError

USUAL = """# syntax=docker/dockerfile:1
ARG BASE=nothing
FROM ${BASE} AS first
ARG WHO=nobody
ENV GREETING="hello there" \\
    OTHER=x
WORKDIR /app
RUN echo "$GREETING $WHO" >greeting && \\
    # a comment between lines
    rm /etc/motd
COPY a.txt sub ./
COPY --chown=agent:crew sub/run.sh /home/agent/
COPY --chmod=600 a.txt /modes/
ADD sub /added
RUN ["sh", "-c", "echo exec >form"]
RUN <<EOF
echo here >doc
echo and there >>doc
EOF
EXPOSE 80
CMD ["never"]
"""


@pytest.fixture(autouse=True)
def base(tiny_root: Path) -> Iterator[None]:
    images.add("tiny:1", tiny_root)
    yield
    images.forget("tiny:1")
    images.clean()


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("A\n")
    (tmp_path / "sub/b.txt").write_text("B\n")
    (tmp_path / "sub/run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "sub/run.sh").chmod(0o755)
    return tmp_path


def build(sandbox: Bubblewrap, context: Path, text: str, **args: str) -> Image:
    (context / "Dockerfile").write_text(text)
    return sandbox.build(context, args=args)


def output(sandbox: Bubblewrap, image: Image, script: str) -> str:
    with sandbox.open(BoxSpec(image=image)) as box:
        result = box.run(["sh", "-c", script])
        assert result.ok, result
        return result.stdout.decode()


def test_the_usual_instructions_do_what_they_say(sandbox: Bubblewrap, context: Path) -> None:
    image = build(sandbox, context, USUAL, BASE="tiny:1", WHO="you")
    script = "pwd; cat greeting form doc a.txt b.txt; ./run.sh; cat /added/b.txt; echo $GREETING"
    assert output(sandbox, image, script) == (
        "/app\nhello there you\nexec\nhere\nand there\nA\nB\nran\nB\nhello there\n"
    )
    assert "motd" not in output(sandbox, image, "ls /etc")
    assert output(sandbox, image, "stat -c '%a' /modes/a.txt") == "600\n"
    assert output(sandbox, image, "stat -c %u:%g /home/agent/run.sh") in ("1000:2000\n", "0:0\n")


def test_a_file_goes_into_a_directory_that_is_there_and_a_text_into_a_file(sandbox: Bubblewrap, context: Path) -> None:
    text = (
        "FROM tiny:1\nENV WHO=you\nWORKDIR /app\nCOPY a.txt /app\nCOPY --chmod=755 <<EOF /app/say\n#!/bin/sh\necho $WHO\nEOF\n"
        "COPY <<'EOF' /app/\n$WHO\nEOF\nRUN echo $((1<<3)) >shifted\nCOPY --from=0 /app/a.txt /etc\n"
    )
    assert (
        output(sandbox, build(sandbox, context, text), "./say; cat a.txt EOF shifted /etc/a.txt")
        == "you\nA\n$WHO\n8\nA\n"
    )


def test_stages_and_users(sandbox: Bubblewrap, context: Path) -> None:
    image = build(
        sandbox,
        context,
        "FROM tiny:1 AS tools\nWORKDIR /out\nRUN echo made >thing\n"
        "FROM tiny:1\nCOPY --from=tools /out/thing /taken/\nCOPY --from=0 /out /whole\nUSER agent\nRUN id -u >/tmp/who\n",
    )
    assert output(sandbox, image, "cat /taken/thing /whole/thing /tmp/who; id -u") == "made\nmade\n1000\n1000\n"


def test_the_same_dockerfile_is_built_once_and_shares_its_beginning(sandbox: Bubblewrap, context: Path) -> None:
    text = "FROM tiny:1\nRUN cat /proc/uptime >/when\nCOPY a.txt /a\nRUN echo x >/last\n"
    first = build(sandbox, context, text)
    when = output(sandbox, first, "cat /when")
    assert build(sandbox, context, text) == first
    assert output(sandbox, first, "cat /when") == when
    changed = build(sandbox, context, text + "RUN echo more >/more\n")
    assert changed != first
    assert output(sandbox, changed, "cat /when") == when
    (context / "a.txt").write_text("changed\n")
    copied = build(sandbox, context, text)
    assert output(sandbox, copied, "cat /when /a") == when + "changed\n"


def test_what_dockerignore_names_is_not_copied(sandbox: Bubblewrap, context: Path) -> None:
    rules = "# comment\nsub/*.txt\n*.log\n!keep.log\nDockerfile\n.dockerignore\n**/cached\ngone\n!gone/but/this\n"
    (context / ".dockerignore").write_text(rules)
    for name in ("x.log", "keep.log", "sub/y.log", "sub/cached/z", "gone/x", "gone/but/this", "gone/but/that"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text("")
    image = build(sandbox, context, "FROM tiny:1\nCOPY . /all/\n")
    kept = {"a.txt", "keep.log", "sub/run.sh", "sub/y.log", "gone/but/this"}
    listed = output(sandbox, image, "cd /all; busybox find . -type f").split()
    assert {name.removeprefix("./") for name in listed} == kept
    (context / "Dockerfile.dockerignore").write_text("**\n!a.txt\n")
    assert output(sandbox, build(sandbox, context, "FROM tiny:1\nCOPY . /all/\n"), "ls -A /all") == "a.txt\n"


def test_from_this_machine_and_from_nothing(sandbox: Bubblewrap, context: Path) -> None:
    image = build(
        sandbox,
        context,
        "FROM host\nENV PATH=/own:$PATH\nWORKDIR /work\nRUN pwd >where\nCOPY a.txt .\nRUN python3 -c 'print(1)' >one\n",
    )
    assert output(sandbox, image, "cat a.txt one where") == "A\n1\n/work\n"
    scratch = build(sandbox, context, "FROM scratch\nCOPY a.txt /only\n")
    with sandbox.open(BoxSpec(image=scratch)) as box:
        assert box.read("/only") == b"A\n"
        assert box.run(["sh"]).code == 127


def test_a_step_that_fails_is_reported_with_its_line_and_output(sandbox: Bubblewrap, context: Path) -> None:
    with pytest.raises(BuildError, match=r"Dockerfile:2: RUN ended with code 3:\nwhat went wrong"):
        build(sandbox, context, "FROM tiny:1\nRUN echo what went wrong && exit 3\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM ubuntu:24.04\n", r"(?s)Dockerfile:1: FROM: image 'ubuntu:24.04' is not in .*image add ubuntu:24.04"),
        ("RUN true\n", "no FROM line"),
        ("RUN true\nFROM tiny:1\n", "RUN: comes before any FROM"),
        ("FROM tiny:1\nCOPY nothing /x\n", "Dockerfile:2: COPY: nothing: no such file in the context"),
        ("FROM tiny:1\nCOPY ../x /x\n", "outside of the context"),
        ("FROM tiny:1\nENV A=1 B\n", "Dockerfile:2: ENV: 'B': write NAME=value"),
        ("FROM tiny:1\nADD https://example.com/x /x\n", "nothing is downloaded"),
        ("FROM tiny:1\nONBUILD RUN x\n", "Dockerfile:2: ONBUILD: not supported here"),
        ("FROM tiny:1\nRUN --mount=type=secret,id=x true\n", "type=secret,id=x is not supported"),
        ("FROM tiny:1\nRUN <<EOF\ntrue\n", "no line 'EOF' ends the text"),
        ("FROM tiny:1\nCOPY --from=nobody /x /y\n", "image 'nobody' is not in the store"),
        ("FROM tiny:1\nCOPY --parents a.txt /x/\n", "COPY: --parents is not supported here"),
        ("FROM tiny:1\nCOPY --chmod=u+x a.txt /x\n", "give a mode in octal"),
    ],
)
def test_what_cannot_be_built_is_reported_with_its_line(
    sandbox: Bubblewrap, context: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build(sandbox, context, text)


ODD = """# syntax=docker/dockerfile:1
# escape=`
ARG BASE=tiny:1
FROM $BASE AS Made
ARG BASE
ARG TARGETARCH
ENV SAYS='$BASE' TWO="a  b"
ENV COPIED=$TWO
WORKDIR /out
WORKDIR deeper
RUN printf 'a	b' >tab && `

    # a comment
    echo "$SAYS $COPIED $TARGETARCH" >said
RUN cat >conf <<EOF
who=$COPIED
EOF
RUN <<-EOF
\techo from \\
\t  here >text
EOF
RUN <<EOF
#!/bin/busybox sh
echo "$0" >named
EOF
RUN ln -s /etc/motd away && echo 1 >x.one && echo 2 >y.one
SHELL ["/bin/sh", "-e", "-c"]

from made
RUN false; true || echo "not here" >/never
"""
MORE = """
FROM tiny:1
COPY --from=MADE --chmod=600 /out/deeper/*.one /taken/
COPY --link --from=made /out/deeper /whole
ADD rootfs.tar /
COPY ["a b", "/spaced/"]
"""


def test_odd_but_legal_dockerfiles_mean_what_docker_takes_them_to_mean(sandbox: Bubblewrap, context: Path) -> None:
    (context / "a b").write_text("spaced\n")
    with tarfile.open(context / "rootfs.tar", "w") as archive:
        link = tarfile.TarInfo("etc/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/motd"
        archive.addfile(link)
    text = ODD.partition("\nfrom made")[0] + MORE
    image = build(sandbox, context, text.replace("\n", "\r\n"))
    script = "cd /whole; cat tab said conf text named away; cd /taken; stat -c '%n %a' *; cat '/spaced/a b' /etc/link"
    architecture = dockerfile_architecture()
    assert output(sandbox, image, script) == (
        f"a\tb$BASE a  b {architecture}\nwho=a  b\nfrom here\n/.run\nfrom the image\n"
        "x.one 600\ny.one 600\nspaced\nfrom the image\n"
    )
    with pytest.raises(BuildError, match="RUN ended with code 1"):  # the stage's shell is the next stage's
        build(sandbox, context, ODD)


def dockerfile_architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
