"""The arithmetic exists once: renderers only lay out."""

import ast

import pytest
from bakeoff_work import read

RENDERERS = ("render_text", "render_markdown", "render_csv")
ARITHMETIC = (ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def functions(name):
    tree = ast.parse(read(f"billing/{name}.py"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", RENDERERS)
def test_renderers_do_no_arithmetic(name):
    body = functions("invoice")[name]
    done = [type(node.op).__name__ for node in ast.walk(body) if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ARITHMETIC)]  # fmt: skip
    assert done == []
    assert "quantize" not in ast.dump(body)


def test_discount_and_tax_are_worked_out_in_one_function():
    names = ("discount_percent", "tax_percent")
    using = [
        name
        for module in ("invoice", "totals")
        for name, node in functions(module).items()
        if any(isinstance(part, ast.Attribute) and part.attr in names for part in ast.walk(node))
    ]
    assert using == ["totals"]
