"""Tables as files have them: CSV as spreadsheets write it, TSV, Parquet, JSONL, and JSON that is a list of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
_PLAIN = r"[-+]?\d*\.?\d+([eE][-+]?\d+)?|(?i:nan)"
_DECIMAL_COMMA = r"[-+]?\d*,\d+"
_THOUSANDS = r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"
_SEPARATOR = r"[ '_\u2019\u00a0\u202f]"
_SEPARATED = rf"[-+]?[1-9]\d{{0,2}}({_SEPARATOR}\d{{3}})+([.,]\d+)?"
_DOTS_AND_COMMA = r"[-+]?[1-9]\d{0,2}(\.\d{3})+,\d+"


def read_file(path: Path) -> pl.DataFrame:
    """The table in a file, by its suffix. Raises UsageError, PolarsError or OSError."""
    import polars as pl

    match path.suffix.lower():
        case ".json":
            return pl.DataFrame(json_rows(path), infer_schema_length=None)
        case ".parquet":
            return pl.read_parquet(path)
        case ".jsonl" | ".ndjson":
            return pl.read_ndjson(path, infer_schema_length=None)
        case ".tsv":
            return pl.read_csv(path, separator="\t", infer_schema_length=None)
    with path.open("rb") as file:
        header, rest = file.readline(), file.read(1 << 16)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path}: is UTF-16; save it as UTF-8")
    if header.count(b";") <= header.count(b","):
        return pl.read_csv(path, infer_schema_length=None)
    # Spreadsheets write semicolons where a comma is the decimal point.
    decimal_comma = re.search(rb"(^|;)-?\d+,\d+(;|\r?$)", rest, re.MULTILINE) is not None
    return pl.read_csv(path, separator=";", decimal_comma=decimal_comma, infer_schema_length=None)


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
        case {"columns": [_, *_] as names, "data": [_, *_] as data} if all(
            isinstance(row, list) and len(row) == len(names) for row in data
        ):
            return [dict(zip(map(str, names), row, strict=True)) for row in data]
        case dict() if len(content) > 1:
            columns = list(content.values())
            flat = all(isinstance(each, list) and not any(isinstance(v, dict | list) for v in each) for each in columns)
            return content if flat and columns[0] and len({len(each) for each in columns}) == 1 else None
    return None


def with_numbers(frame: pl.DataFrame, label: str, taken: Collection[str], notes: list[str]) -> pl.DataFrame:
    """Read text columns that hold numbers as spreadsheets write them: `0,85`, `1,234.5`, `1.234,5`, `1 234` and `85 %`.

    Columns in `taken` hold names and stay as they are. Raises UsageError where a column could be read in two ways, and where some of its cells are numbers and others text.
    """
    import polars as pl

    for name, kind in frame.schema.items():
        if name in taken or kind != pl.String:
            continue
        column = frame[name].str.strip_chars()
        percent, separated = column.str.contains(r"\d\s*%$"), column.str.contains(f"^({_SEPARATED})$")
        column = column.str.replace(r"(\d)\s*%$", "$1")
        dotted = column.str.contains(f"^({_DOTS_AND_COMMA})$")
        if separated.any():
            column = pl.select(
                pl.when(separated).then(column.str.replace_all(_SEPARATOR, "")).otherwise(column)
            ).to_series()
        if dotted.any():
            column = pl.select(
                pl.when(dotted).then(column.str.replace_all(".", "", literal=True)).otherwise(column)
            ).to_series()
        texts = column.drop_nulls()
        texts = texts.filter(texts != "")
        shapes = {
            shape: texts.str.contains(f"^({pattern})$")
            for shape, pattern in (("plain", _PLAIN), ("comma", _DECIMAL_COMMA), ("thousands", _THOUSANDS))
        }
        as_comma, as_thousands = shapes["plain"] | shapes["comma"], shapes["plain"] | shapes["thousands"]
        is_number = as_comma | as_thousands
        if texts.len() == 0 or is_number.sum() * 2 < texts.len():
            continue
        if not is_number.all():
            others = texts.filter(~is_number)
            raise UsageError(
                f"{label}: column {name!r} has text among its numbers: {others[0]!r} ({others.len()} cells); leave the "
                "cell empty where a run is missing, or write NaN where it failed"
            )
        if percent.any() and int(percent.sum()) < texts.len():
            raise UsageError(
                f"{label}: column {name!r} has per cent signs in some cells only; write them in all or in none"
            )
        if dotted.any() and (texts.filter(shapes["plain"]).str.contains(r"\.")).any():
            raise UsageError(f"{label}: column {name!r} mixes decimal points and decimal commas")
        comma = bool(shapes["comma"].any()) and bool(as_comma.all())
        thousands = bool(shapes["thousands"].any()) and bool(as_thousands.all())
        if comma and thousands:
            example = texts.filter(shapes["comma"])[0]
            raise UsageError(
                f"{label}: {example!r} in column {name!r} may be a thousand or a decimal comma; write it without the comma"
            )
        how = ["per cent signs"] if percent.any() else []
        if separated.any() or dotted.any():
            how.append("separators between thousands")
        if comma:
            how.append("decimal commas")
            column = column.str.replace(",", ".", literal=True)
        elif thousands:
            how.append("commas between thousands")
            column = column.str.replace_all(",", "", literal=True)
        elif not shapes["plain"].all():
            raise UsageError(f"{label}: column {name!r} mixes decimal commas and thousands separators")
        if how:
            notes.append(f"column {name!r} was read with {' and '.join(how)}")
        frame = frame.with_columns(column.replace("", None).cast(pl.Float64).alias(name))
    return frame
