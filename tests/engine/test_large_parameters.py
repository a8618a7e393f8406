"""Parameters of any size reach a run, or are refused before anything starts."""

from __future__ import annotations

import pytest

from support.processes import Lab

LENGTHS = "def run(ctx, text): return {'length': len(text), 'end': text[-3:]}"


@pytest.mark.slow
def test_a_function_gets_large_parameters_whole(lab: Lab) -> None:
    size = 2_500_000  # more than two of the engine's buffers
    text = "x" * (size - 3) + "end"
    lab.experiment(
        f'workload = "python"\nseeds = 5\njobs = 2\n[params]\nfunction = "long:run"\ntext = "{text}"',
        long=LENGTHS,
    )
    lab.cli("run", "trial.toml")
    assert {(row["length"], row["end"], row["attempts"]) for row in lab.rows()} == {(size, "end", 1)}


@pytest.mark.slow
@pytest.mark.parametrize("size", [130_000, 2_500_000])  # more than Linux allows in one argument, and in all together
def test_a_command_finds_large_parameters_in_a_file(lab: Lab, size: int) -> None:
    lab.write(
        "read.py",
        "import json, os\n"
        "given = json.load(open(os.environ['BAKEOFF_PARAMS_FILE']))\n"
        "assert 'BAKEOFF_PARAM_TEXT' not in os.environ and os.environ.get('BAKEOFF_PARAM_SMALL', '7') == '7'\n"
        "print(json.dumps({'length': len(given['text']), 'small': given['small']}))\n",
    )
    lab.experiment(f'seeds = 2\n[params]\ncommand = ["python3", "read.py"]\nsmall = 7\ntext = "{"x" * size}"')
    lab.cli("run", "trial.toml")
    assert [(row["status"], row["length"]) for row in lab.rows()] == [("succeeded", size)] * 2


@pytest.mark.parametrize("command", ["['echo', '{text}']", "['echo', '{flags}']", "'echo {text}'"])
def test_a_parameter_that_is_too_long_for_an_argument_is_refused_by_name(lab: Lab, command: str) -> None:
    lab.experiment(f'seeds = 2\n[params]\ncommand = {command}\ntext = "{"x" * 130_000}"')
    for verb in ("validate", "run"):
        refused = lab.look(verb, "trial.toml", code=2).stderr
        assert "text: its 130,000 bytes are too many for an argument" in refused
        assert "BAKEOFF_PARAMS_FILE" in refused
    assert not lab.root.exists()


def test_arguments_that_are_too_long_together_are_refused(lab: Lab) -> None:
    texts = "\n".join(f'text{number} = "{"x" * 100_000}"' for number in range(9))
    lab.experiment(f"[params]\ncommand = ['echo', '{{flags}}']\n{texts}")
    assert "command: with its parameters" in lab.look("validate", "trial.toml", code=2).stderr


@pytest.mark.slow
def test_many_middling_parameters_reach_a_command(lab: Lab) -> None:
    texts = "\n".join(f'text{number} = "{"x" * 100_000}"' for number in range(30))
    lab.experiment(f"[params]\ncommand = 'wc -c < $BAKEOFF_PARAMS_FILE'\n{texts}")
    lab.cli("run", "trial.toml")
    assert [row["status"] for row in lab.rows()] == ["succeeded"]


def test_a_variable_that_is_too_long_is_refused(lab: Lab) -> None:
    lab.experiment(f'env = {{ LONG = "{"x" * 140_000}" }}\nparams = {{ command = "true" }}')
    assert "env.LONG: its 140,000 bytes are too many" in lab.cli("run", "trial.toml", code=2).stderr
