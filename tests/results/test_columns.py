"""Plain tables: which kind a column is, how rows group, and CSV as Polars reads it."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bakeoff.errors import UsageError
from bakeoff.results.columns import Column, Sheet
from bakeoff.results.importers.table_files import read_file


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ([1, None, 2], "whole", [1, None, 2]),
        ([1, 2.5, True], "number", [1.0, 2.5, 1.0]),
        ([True, False, None], "truth", [True, False, None]),
        (["a", 1, 2.5, True, None], "text", ["a", "1", "2.5", "true", None]),
        (["a", math.nan], "text", ["a", None]),
        ([10**30, 1], "whole", [10**30, 1]),
        ([10**400, 1], "text", [str(10**400), "1"]),
        ([-(10**400), 0.5], "number", [-math.inf, 0.5]),
        ([Decimal("0.5"), 1], "number", [0.5, 1.0]),
        ([np.float64(0.5), np.int64(2)], "number", [0.5, 2.0]),
        ([pd.NA, 1], "whole", [None, 1]),
        ([{"a": 1}, [2]], "other", ['{"a": 1}', "[2]"]),
        ([date(2026, 1, 31)], "other", ["2026-01-31"]),
        ([None, None], "text", [None, None]),
    ],
)
def test_a_column_is_of_the_narrowest_kind_that_holds_its_cells(cells: Any, kind: str, values: Any) -> None:
    column = Column.of(cells)
    assert (column.kind, column.to_list()) == (kind, values)


def test_nan_is_one_value_and_differs_from_an_empty_cell() -> None:
    column = Column.of([math.nan, None, float("nan"), 1.0])
    assert column.sizes.tolist() == [2, 1, 1]
    assert column.filled.tolist() == [True, False, True, True]


def test_values_that_become_equal_are_one() -> None:
    column = Column.of(["b ", "a", "b", None]).mapped(str.strip)
    assert (column.levels, column.codes.tolist()) == (["b", "a", None], [0, 1, 0, 2])


def test_some_rows_have_their_values_in_order_of_appearance() -> None:
    column = Column.of(["a", "b", "c", "b", "a"]).at(np.array([3, 0, 4]))
    assert (column.levels, column.to_list()) == (["b", "a"], ["b", "a", "a"])


def test_rows_group_by_equal_cells_and_empty_cells_are_equal() -> None:
    sheet = Sheet.of({"arm": ["a", "a", "b", "b", "b"], "task": [1, 1, 1, None, None]})
    groups = sheet.groups("arm", "task")
    assert (groups.count, groups.sizes[groups.codes].tolist()) == (3, [2, 2, 1, 2, 2])
    assert sheet.groups("arm").distinct(sheet.groups("task")).tolist() == [1, 2]
    assert sheet.groups("arm").firsts.tolist() == [0, 2]


def test_many_values_group_like_few() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 3000, 5000).tolist(), rng.integers(0, 3000, 5000).tolist()
    assert Sheet.of({"a": first, "b": second}).distinct("a", "b") == len(set(zip(first, second, strict=True)))


@pytest.mark.parametrize(
    "make", [pl.DataFrame, pd.DataFrame, pa.table, dict], ids=["polars", "pandas", "pyarrow", "dict"]
)
def test_frames_of_any_library_give_the_same_sheet(make: Any) -> None:
    sheet = Sheet.of(make({"arm": ["a", "b"], "n": [1, 2], "score": [0.5, math.inf], "ok": [True, False]}))
    assert {name: (column.kind, column.to_list()) for name, column in sheet.items()} == {
        "arm": ("text", ["a", "b"]), "n": ("whole", [1, 2]), "score": ("number", [0.5, math.inf]), "ok": ("truth", [True, False]),
    }  # fmt: skip


def test_a_named_index_of_pandas_holds_columns() -> None:
    frame = pd.DataFrame({"arm": ["a", "b"], "task": [1, 2], "score": [0.5, 1.0]})
    for index in (["task"], ["arm", "task"]):
        assert sorted(Sheet.of(frame.set_index(index)).names) == ["arm", "score", "task"]
    with pytest.raises(UsageError, match="two columns are called 'task'"):
        Sheet.of(frame.set_index("task", drop=False))
    assert Sheet.of(frame.set_index(pd.Index([5, 6]))).names == ["arm", "task", "score"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "a table is a frame, a list of dicts or a dict of columns, not int"),
        ("arm,score", "a table is a frame, a list of dicts or a dict of columns, not str"),
        ({"a": [1], "b": [1, 2]}, "'a' has 1, 'b' has 2"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are called 'a'"),
    ],
)
def test_anything_else_is_refused(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sheet.of(data)


CELLS = (
    "007 1", "+5 6", "1. 2", ".5 1", "1e5 2", "1E5", "inf 1", "-inf 1", "Infinity", "NaN 1", "nan 1", "true false", "True FALSE",
    "true 1", "t f", "9223372036854775808", "1_000 2", "0x10", "1e400 1", "- 1", "--1", "1-2", '"5" 6', '"5.5" 6', "NA 1", "null 1",
    "1 2.5", "1 x", "2024-01-01", '"1,5"', "-0 0", "1e 2", "1e+5", "e5", "+1.5", "-.5", "-5. 1", "1.5.2", "true NaN", "x y x",
)  # fmt: skip


@pytest.mark.parametrize("cells", CELLS)
def test_csv_has_the_types_that_polars_finds(tmp_path: Path, cells: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{cell},1\n" for cell in cells.split()) + ",1\n")
    kinds = {pl.String: "text", pl.Int64: "whole", pl.Int128: "whole", pl.Float64: "number", pl.Boolean: "truth"}
    theirs, ours = pl.read_csv(path, infer_schema_length=None)["a"], read_file(path)["a"]
    assert ours.kind == kinds[type(theirs.dtype)]
    np.testing.assert_equal(ours.to_list(), theirs.to_list())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", [{"a": 1, "b": 2}]),
        ("\ufeffa,b\r\n1,2\r\n", [{"a": 1, "b": 2}]),
        ("\n\na,b\n1,2", [{"a": 1, "b": 2}]),
        ("a,b\n1\n2,3\n", [{"a": 1, "b": None}, {"a": 2, "b": 3}]),
        ("a,b\n1,2\n\n3,4\n\n", [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        ("a\n1\n\n3\n", [{"a": 1}, {"a": None}, {"a": 3}]),
        ('a,b\n"x\ny ""z""",\n', [{"a": 'x\ny "z"', "b": None}]),
        ("a;b\n1,5;x\n2;y\n", [{"a": 1.5, "b": "x"}, {"a": 2.0, "b": "y"}]),
        ("a;b\n1,5;2\n2.5;3\n", [{"a": "1,5", "b": 2}, {"a": "2.5", "b": 3}]),
        ("a,b\n" + "x" * 200_000 + ",1\n", [{"a": "x" * 200_000, "b": 1}]),
    ],
    ids=["plain", "bom", "blank lines first", "short row", "blank line", "blank cell", "quotes", "semicolons", "points and commas", "long"],
)  # fmt: skip
def test_csv_as_spreadsheets_write_it(tmp_path: Path, text: str, expected: list[dict[str, Any]]) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    sheet = read_file(tmp_path / "t.csv")
    assert [sheet.row(number) for number in range(sheet.height)] == expected


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ("1 01", [1]),
        ("1.1 1.10 1.2", [1.1, 1.2]),
        ("true True", [True]),
        ("0.50 NaN", [0.5, math.nan]),
        ("2 10", [2, 10]),
    ],
)
def test_numbers_of_a_csv_file_keep_their_text(tmp_path: Path, cells: str, values: list[Any]) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{cell},1\n" for cell in cells.split()))
    column = read_file(tmp_path / "t.csv")["a"]
    np.testing.assert_equal(list(column.levels), values)
    assert column.names.to_list() == cells.split()
    assert column.at(np.array([1])).names.to_list() == cells.split()[1:2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"a,b\n1,2,3\n", "cannot be read: a row up to line 2 has more cells than the first one has names"),
        ("t.csv", b"", "cannot be read: it is empty"),
        ("t.csv", b"a,a\n1,2\n", "two columns are called 'a'; rename one of them"),
        ("t.csv", b"a,b\n\xff,2\n", "cannot be read: .*utf-8"),
        ("t.csv", b'a,b\n"x,2\n3,4\n', "cannot be read: unexpected end of data"),
        ("t.jsonl", b'{"a": 1}\nnot\n', "cannot be read: line 2 is not JSON"),
        ("t.jsonl", b"[1]\n", "cannot be read: line 1 holds .*, not an object"),
        ("t.jsonl", b"", "cannot be read: it is empty"),
        ("t.json", b'{"columns": ["a", "a"], "data": [[1, 2]]}', "is a JSON object with 'columns', 'data'"),
    ],
)
def test_files_that_are_no_tables_are_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=rf"{name}: {message}"):
        read_file(tmp_path / name)


def test_a_table_survives_its_csv(tmp_path: Path) -> None:
    sheet = Sheet.of(
        {"a": ["x", "=1+1", None], "n": [1, None, 3], "v": [0.1, math.nan, -math.inf], "ok": [True, None, False]}
    )
    (tmp_path / "t.csv").write_text(sheet.to_csv())
    again = read_file(tmp_path / "t.csv")
    assert {name: column.kind for name, column in again.items()} == {
        "a": "text",
        "n": "whole",
        "v": "number",
        "ok": "truth",
    }
    assert again["a"].to_list() == ["x", "'=1+1", None]
    for name in ("n", "v", "ok"):
        np.testing.assert_equal(again[name].to_list(), sheet[name].to_list())
