"""Dockerfiles are read as docker reads them; nothing is built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.sandbox.dockerfile import Context, Flag, Instruction, parse, unquoted, words


def test_variables_are_filled_in_as_docker_does() -> None:
    values = {"A": "1", "EMPTY": "", "TWO": "two words"}

    def filled(text: str) -> str:
        return unquoted(text, values)

    assert filled("$A ${A} ${B:-two} ${EMPTY:-three} ${A:+four} ${B:+five} \\$A $B.") == "1 1 two three four  $A ."
    assert filled("${EMPTY-set} ${B-not} ${EMPTY+set} ${B:-${A}${C:-c}} '$A' \"it's $A\"") == " not set 1c $A it's 1"
    with pytest.raises(UsageError, match="is not set: say what"):
        filled("${B:?say what}")
    assert words("a\\ b $TWO 'c  d'\"e\" ''", values) == ["a b", "two words", "c  de", ""]

    def pairs(text: str) -> dict[str, str]:
        return Instruction("ENV", text, (), 1, values=values).pairs()

    assert pairs('A=1 B="two words" C= D=$TWO') == {"A": "1", "B": "two words", "C": "", "D": "two words"}
    assert pairs("OLD the whole rest") == {"OLD": "the whole rest"}
    with pytest.raises(ValueError, match="'B': write NAME=value"):
        pairs("A=1 B")


def test_flags_here_documents_and_continued_lines_are_parts_of_one_instruction(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(
        "FROM x\nRUN a \\\n# between\n\n  b\nCOPY --chown=me --chmod=600 <<-'END' /there/\n\t$one\n\ttwo\nEND\nrun c\n"
    )
    first, run, copy, last = parse(file)
    assert (first.word, first.rest, first.line) == ("FROM", "x", 1)
    assert (run.word, run.rest, run.line) == ("RUN", "a   b", 2)
    assert copy.flags == (Flag("chown", "me"), Flag("chmod", "600"))
    assert (copy.rest, copy.heredoc, copy.heredoc_name, copy.line) == ("/there/", "$one\ntwo\n", "END", 6)
    assert copy.expanded({"one": "1"}).heredoc == "$one\ntwo\n", "the word was quoted"
    assert (last.word, last.rest, last.line) == ("RUN", "c", 10)


def test_a_context_gives_nothing_from_outside(tmp_path: Path) -> None:
    (tmp_path / "context/deep").mkdir(parents=True)
    (tmp_path / "context/deep/file").write_text("x")
    (tmp_path / "secret").write_text("the key")
    (tmp_path / "context/way").symlink_to("../secret")
    (tmp_path / "context/inner").symlink_to("deep")
    context = Context(tmp_path / "context", tmp_path / "context/Dockerfile")
    assert context.find("inner") == [tmp_path / "context/deep"]
    for source in ("../secret", "deep/../../secret", "way", "nothing", "*.txt"):
        with pytest.raises(UsageError, match="context"):
            context.find(source)
