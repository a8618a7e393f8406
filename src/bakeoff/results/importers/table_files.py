"""Tables as files have them: CSV as spreadsheets write it, TSV, Parquet, JSONL, and JSON that is a list of rows."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.columns import Column, Sheet, as_float, refuse_same_names, require_polars

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
ROWS_AT_ONCE = 10_000
"""Rows of a CSV file that are turned into columns together."""
_WHOLE = re.compile(r"-?[0-9]{1,308}")
_NUMBER = re.compile(r"-?[0-9]{1,308}|[-+]?([0-9]*\.[0-9]+([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|[0-9]+\.|inf|NaN)")
_SWAPPED = str.maketrans(",.", ".,")
_TRUTH = {"true": True, "false": False}
_PER_CENT = re.compile(r"(?<=\d)\s*%$")
_PLAIN = re.compile(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?|(?i:nan)")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_SEPARATOR = r"[ '_\u2019\u00a0\u202f]"
_SEPARATED = re.compile(rf"[-+]?[1-9]\d{{0,2}}({_SEPARATOR}\d{{3}})+([.,]\d+)?")
_DOTS_AND_COMMA = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+,\d+")


def read_file(path: Path) -> Sheet:
    """Read the table in a file, by its suffix. Raises UsageError."""
    try:
        match path.suffix.lower():
            case ".json":
                return Sheet.of(json_rows(path))
            case ".parquet":
                return _read_parquet(path)
            case ".jsonl" | ".ndjson":
                return Sheet.of(_json_lines(path))
        return _read_csv(path)
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def _read_parquet(path: Path) -> Sheet:
    require_polars(f"{path}: Parquet")
    import polars as pl

    try:
        return Sheet.of(pl.read_parquet(path))
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from error


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one object in each line that is not blank. Raises ValueError."""
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"line {number} holds {str(row)[:40]!r}, not an object")
            rows.append(row)
    if not rows:
        raise ValueError("it is empty")
    return rows


def _read_csv(path: Path) -> Sheet:
    """Read CSV or TSV. Rows may end early, and their last cells are empty then; a row with more cells than names is an error.

    A blank line is no row, except in a table of one column, where it may be an empty cell.
    """
    with path.open("rb") as file:
        header, rest = file.readline(), file.read(1 << 16)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path}: is UTF-16; save it as UTF-8")
    separator = "," if header.count(b";") <= header.count(b",") else ";"
    if path.suffix.lower() == ".tsv":
        separator = "\t"
    # Spreadsheets write semicolons where a comma is the decimal point.
    comma = separator == ";" and re.search(rb"(^|;)-?\d+,\d+(;|\r?$)", rest, re.MULTILINE) is not None
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text, delimiter=separator, strict=True)
        names = next((row for row in rows if row), None)
        if names is None:
            raise ValueError("it is empty")
        refuse_same_names(names, f"{path}: ")
        columns: list[list[str]] = [[] for _ in names]
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            if len(names) > 1:
                chunk = [row for row in chunk if row]
            if any(len(row) > len(names) for row in chunk):
                raise ValueError(f"a row up to line {rows.line_num} has more cells than the first one has names")
            for column, cells in zip(columns, zip_longest(names, *chunk, fillvalue=""), strict=True):
                column += cells[1:]
    return Sheet({name: _parsed(columns.pop(0), comma) for name in names})


def _parsed(cells: Iterable[str], comma: bool) -> Column:
    """Return whole numbers, numbers, truth values or text, whichever all cells of a CSV file are."""
    column = Column.of([cell or None for cell in cells])
    if not column.known:
        return column
    if all(map(_WHOLE.fullmatch, column.known)):
        return _with_text(column.mapped(int, "whole"), column)
    swapped = column.mapped(lambda text: text.translate(_SWAPPED)) if comma else column
    if all(map(_NUMBER.fullmatch, swapped.known)):
        return _with_text(swapped.mapped(as_float, "number"), column)
    if all(text.lower() in _TRUTH for text in column.known):
        return _with_text(column.mapped(lambda text: _TRUTH[text.lower()], "truth"), column)
    return column


def _with_text(parsed: Column, column: Column) -> Column:
    """Return parsed cells together with their text, where that cannot be told from the values."""
    texts = [None if level is None else str(level) for level in parsed.levels]
    return parsed if texts == column.levels else replace(parsed, written=column)


def is_table(path: Path) -> bool:
    """Whether a file is a table by its suffix, or JSON that holds rows."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return not path.is_dir()
    return suffix == ".json" and path.is_file() and _rows_of(_json(path)) is not None


def json_rows(path: Path) -> Any:
    """Rows of a JSON file, or its columns: whatever Polars makes a frame of. Raises UsageError for other JSON."""
    rows = _rows_of(_json(path))
    if rows is None:
        raise UsageError(f"{path}: {describe_json(path)}")
    return rows


def describe_json(path: Path) -> str:
    """What a JSON file without rows holds instead, and what can be read."""
    formats = "a table is a list of objects with one value for each column, or .csv, .tsv, .parquet or .jsonl"
    content = _json(path)
    match content:
        case ValueError() if path.stat().st_size == 0:
            return f"is empty; {formats}"
        case ValueError() | OSError():
            return f"is not JSON: {content}; {formats}"
        case dict():
            inside = [f"{key!r} ({len(value)})" for key, value in content.items() if _rows_of(value) is not None]
            if inside:
                return f"holds lists of objects under {', '.join(inside)}; write the one that is the table as a file of its own"
            return f"is a JSON object with {', '.join(map(repr, list(content)[:8])) or 'nothing in it'}; {formats}"
        case list():
            return f"is a JSON list of {len(content)} entries that are not objects; {formats}"
    return f"holds {str(content)[:40]!r}; {formats}"


def _json(path: Path) -> Any:
    """The content of a JSON file, or the error that it cannot be read with."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        return error if isinstance(error, OSError) else ValueError(str(error))


def _rows_of(content: Any) -> Any:
    """Rows, or columns by name, that the content of a JSON file holds; None where it is no table.

    Besides a list of objects: columns as lists, and pandas' `orient="split"`.
    """
    match content:
        case [_, *_] if all(isinstance(row, dict) and row for row in content):
            return content
        case {"columns": [_, *_] as names, "data": [_, *_] as data} if len({*map(str, names)}) == len(names) and all(
            isinstance(row, list) and len(row) == len(names) for row in data
        ):
            return [dict(zip(map(str, names), row, strict=True)) for row in data]
        case dict() if len(content) > 1:
            columns = list(content.values())
            flat = all(isinstance(each, list) and not any(isinstance(v, dict | list) for v in each) for each in columns)
            return content if flat and columns[0] and len({len(each) for each in columns}) == 1 else None
    return None


def with_numbers(sheet: Sheet, label: str, taken: Collection[str], notes: list[str]) -> Sheet:
    """Read text columns that hold numbers as spreadsheets write them: `0,85`, `1,234.5`, `1.234,5`, `1 234` and `85 %`.

    Columns in `taken` hold names and stay as they are. Raises UsageError where a column could be read in two ways, and
    where some of its cells are numbers and others text.
    """
    texts = {name: column for name, column in sheet.items() if name not in taken and column.kind == "text"}
    read = {name: _spreadsheet_numbers(column, label, name, notes) for name, column in texts.items()}
    return sheet.having({name: column for name, column in read.items() if column is not None})


def _spreadsheet_numbers(column: Column, label: str, name: str, notes: list[str]) -> Column | None:
    """Return the numbers of a text column; None where most of its cells are no numbers."""
    where = f"{label}: column {name!r}"
    column = column.mapped(lambda text: text.strip() or None)
    per_cent = [text for text in column.known if _PER_CENT.search(text)]
    separated = [text for text in column.known if _SEPARATED.fullmatch(text)]
    bare = {text: _PER_CENT.sub("", text) for text in column.known}
    dotted = [text for text in column.known if _DOTS_AND_COMMA.fullmatch(bare[text])]
    bare |= {text: bare[text].replace(".", "") for text in dotted}
    bare |= {text: re.sub(_SEPARATOR, "", text) for text in separated}
    plain, commas, thousands = (
        {text for text in column.known if shape.fullmatch(bare[text])} for shape in (_PLAIN, _DECIMAL_COMMA, _THOUSANDS)
    )
    others = [text for text in column.known if text not in plain | commas | thousands]
    rows = dict(zip(column.levels, column.sizes.tolist(), strict=True))
    misfits, total = sum(rows[text] for text in others), sum(rows[text] for text in column.known)
    if total == 0 or misfits * 2 > total:
        return None
    if others:
        raise UsageError(
            f"{where} has text among its numbers: {bare[others[0]]!r} ({misfits} cells); leave the cell empty where a run "
            "is missing, or write NaN where it failed"
        )
    if 0 < len(per_cent) < len(column.known):
        raise UsageError(f"{where} has per cent signs in some cells only; write them in all or in none")
    if dotted and any("." in bare[text] for text in plain):
        raise UsageError(f"{where} mixes decimal points and decimal commas")
    every = set(column.known)
    comma, thousand = bool(commas) and plain | commas == every, bool(thousands) and plain | thousands == every
    if comma and thousand:
        example = next(bare[text] for text in column.known if text in commas)
        raise UsageError(
            f"{label}: {example!r} in column {name!r} may be a thousand or a decimal comma; write it without the comma"
        )
    if not comma and not thousand and plain != every:
        raise UsageError(f"{where} mixes decimal commas and thousands separators")
    how = ["per cent signs"] * bool(per_cent) + ["separators between thousands"] * bool(separated or dotted)
    how += ["decimal commas"] if comma else ["commas between thousands"] * thousand
    if how:
        notes.append(f"column {name!r} was read with {' and '.join(how)}")
    return column.mapped(lambda text: as_float(bare[text].replace(",", "." if comma else "")), "number")
