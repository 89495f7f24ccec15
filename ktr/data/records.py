"""Raw records of a data file, one dict each with its place: JSON arrays, objects by id, JSON lines, CSV and parquet.

Numbers of JSON files stay the text they were written as (`5.0` is not `5`), because ids and answers are text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktr.data.rows import RowError

_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `line` (from 1) is where it begins, None where the format has no lines; `index` counts from 0."""

    index: int
    line: int | None
    data: dict[str, Any]


def read_records(path: Path, rejects: list[RowError] | None = None) -> Iterator[Record]:
    """The file's records in order, by suffix: `.csv`, `.parquet`, anything else is JSON (array or lines).

    Args:
        rejects: where errors of single rows go, of those that are no objects and lines that are not JSON; without it
            the first one is raised.

    Raises:
        RowError: the file is missing, not readable as what it is, or holds something else than records.
    """
    if not path.is_file():
        raise RowError("no such file", file=path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        yield from _read_csv(path)
    elif suffix == ".parquet":
        yield from _read_parquet(path)
    elif _first_character(path) == "[" and not _is_lines(path):
        yield from _read_array(path, rejects)
    elif suffix == ".json" and (by_id := _objects_by_id(path)) is not None:
        yield from (Record(index, None, {"id": key, **data}) for index, (key, data) in enumerate(by_id.items()))
    else:
        yield from _read_lines(path, rejects)


def _objects_by_id(path: Path) -> dict[str, dict[str, Any]] | None:
    """A file that is one JSON object whose values are records; None for any other, such as lines of them."""
    try:
        content = _DECODER.decode(path.read_text(encoding="utf-8-sig").strip())
    except ValueError:
        return None
    if not isinstance(content, dict) or not content or not all(isinstance(data, dict) for data in content.values()):
        return None
    return content


def _first_character(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise RowError("the file holds no rows", file=path)
    return chr(start[0])


def _is_lines(path: Path) -> bool:
    """Whether a file that begins with `[` has JSON lines, the first of which is a list by mistake."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
        if not first.rstrip().endswith(b"]") or not any(line.strip() for line in file):
            return False
    try:
        json.loads(first.decode("utf-8-sig"))
    except ValueError:
        return False
    return True


def _read_lines(path: Path, rejects: list[RowError] | None) -> Iterator[Record]:
    index = 0
    with path.open("rb") as file:
        for line, raw in enumerate(file, 1):
            if line == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            if not raw.strip():
                continue
            try:
                record = _record(path, index, line, _decoded(raw, path, line))
            except RowError as error:
                if rejects is None:
                    raise
                rejects.append(error)
            else:
                yield record
            index += 1


def _decoded(raw: bytes, path: Path, line: int) -> Any:
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 ({error.reason} at byte {error.start})", file=path, line=line) from error
    except json.JSONDecodeError as error:
        raise RowError(f"not valid JSON: {error.msg} (column {error.colno})", file=path, line=line) from error


def _read_array(path: Path, rejects: list[RowError] | None) -> Iterator[Record]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 ({error.reason} at byte {error.start})", file=path) from error
    position = _skip(text, _skip(text, 0) + 1)
    line, counted, index = 1, 0, 0
    while text[position : position + 1] != "]":
        line += text.count("\n", counted, position)
        counted = position
        try:
            data, position = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            problem = f"not valid JSON: {error.msg} (column {error.colno})"
            raise RowError(problem, file=path, line=error.lineno, index=index) from error
        try:
            record = _record(path, index, line, data)
        except RowError as error:
            if rejects is None:
                raise
            rejects.append(error)
        else:
            yield record
        index += 1
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != "]":
            line += text.count("\n", counted, position)
            raise RowError("not valid JSON: the list of rows breaks off", file=path, line=line, index=index)
    if text[position + 1 :].strip():
        raise RowError("not valid JSON: text follows the list of rows", file=path)
    if index == 0:
        raise RowError("the file holds no rows", file=path)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _read_csv(path: Path) -> Iterator[Record]:
    """Rows of a CSV file with a header; empty cells are absent, `options` is a JSON list of texts."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for index, row in enumerate(reader):
                line = reader.line_num
                if None in row or None in row.values():
                    raise RowError("the row has another number of cells than the header", file=path, line=line)
                data: dict[str, Any] = {key: value for key, value in row.items() if value != ""}
                if "options" in data:
                    try:
                        data["options"] = _DECODER.decode(data["options"])
                    except json.JSONDecodeError as error:
                        problem = 'options must be a JSON list, such as ["A. red", "B. blue"]'
                        raise RowError(problem, file=path, line=line, field="options") from error
                yield Record(index, line, data)
        except UnicodeDecodeError as error:
            raise RowError(f"not UTF-8 ({error.reason} at byte {error.start})", file=path) from error
        except csv.Error as error:
            raise RowError(f"not valid CSV: {error}", file=path, line=reader.line_num) from error


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    index = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for data in batch.to_pylist():
                    yield Record(index, None, {key: value for key, value in data.items() if value is not None})
                    index += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise RowError(f"not readable as parquet: {error}", file=path) from error


def _record(path: Path, index: int, line: int, data: Any) -> Record:
    if not isinstance(data, dict):
        kinds = {list: "a list", bool: "true or false", type(None): "null"}
        kind = kinds.get(type(data), f"the text or number {str(data)[:40]}")
        raise RowError(f"a row is an object, not {kind}", file=path, line=line, index=index)
    return Record(index, line, data)
