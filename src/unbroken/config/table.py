"""The table of runs: one row a run, its cells typed as the schemas say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.config.location import Entry, dotted
from unbroken.config.messages import allowed, number_in, unknown, unusable_file
from unbroken.config.removed_keys import removed_column
from unbroken.config.schema import Schemas, SettingKey

NAME_COLUMN = "run"
_SETTING = "settings."


@dataclass(frozen=True)
class TableRow:
    """A line of the table."""

    file: str
    line: int
    columns: tuple[str, ...]

    def at(self, *path: object) -> str:
        """The column that holds what stands at `path` in a run, or the line itself."""
        return f"{self.file} line {self.line}" + (f", column {dotted(*path)}" if path else "")

    def lacks(self, key: SettingKey, *parent: str) -> str:
        """The whole line for a required key; the same for every row where the column itself is missing."""
        column = dotted(*parent, key.name)
        if column in self.columns:
            return f"{self.at(column)}: found nothing, allowed: {allowed(key.schema, key.name)}"
        place = dotted("defaults", *parent)
        return f"{self.file}: no column `{column}`; add it, or type `{key.name}: {key.example}` under `{place}`"


@dataclass(frozen=True)
class Table:
    """The rows of a table, and what is wrong with the table itself."""

    entries: tuple[Entry, ...] = ()
    mistakes: tuple[str, ...] = ()


def read_table(file: str, base: Path, schemas: Schemas, default_engine: object) -> Table:
    """Reads the runs of a table that lies relative to `base`; cells that do not fit their type stay text."""
    if problem := unusable_file(file, base):
        return Table(mistakes=(f"runs_table: {problem}",))
    lines, problem = _read_cells(base / file)
    if problem:
        return Table(mistakes=(f"{file}{problem}",))
    header = tuple(lines[0][1])
    if mistakes := [f"{file} line {lines[0][0]}, {text}" for text in _wrong_columns(header, schemas)]:
        return Table(mistakes=tuple(mistakes))
    rows = (_entry(TableRow(file, line, header), cells, schemas, default_engine) for line, cells in lines[1:])
    return Table(tuple(rows))


def _read_cells(path: Path) -> tuple[list[tuple[int, list[str]]], str]:
    """The lines that hold something, each with its number; or the text of what makes the file unreadable."""
    # Takes as long to import as all else here, and only a table needs it.
    import pandas

    try:
        frame = pandas.read_csv(path, sep="\t", header=None, dtype=str, na_filter=False, skip_blank_lines=False)
    except pandas.errors.EmptyDataError:
        return [], f": found nothing, allowed: a line of column names, `{NAME_COLUMN}` among them, then one row a run"
    except pandas.errors.ParserError as error:
        return [], _unreadable(str(error))
    except UnicodeDecodeError:
        return [], f" line {_undecodable_line(path)}: found bytes that are not UTF-8, allowed: text saved as UTF-8"
    rows: list[list[str]] = frame.to_numpy().tolist()
    return list(_numbered(rows)), ""


def _unreadable(message: str) -> str:
    """pandas' words turned into a line number and ours."""
    if many := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
        expected, line, saw = many.groups()
        return f" line {line}: found {saw} cells, allowed: {expected}, one for each column"
    if torn := re.search(r"EOF inside string starting at row (\d+)", message):
        return f" line {int(torn[1]) + 1}: found a quotation mark that nothing closes, allowed: pairs of them"
    return f": {message}"


def _undecodable_line(path: Path) -> int:
    lines = path.read_bytes().split(b"\n")
    return next(number for number, line in enumerate(lines, 1) if "\ufffd" in line.decode(errors="replace"))


def _numbered(rows: Sequence[Sequence[str]]) -> Iterator[tuple[int, list[str]]]:
    line = 1
    for cells in rows:
        if any(cells):
            yield line, [cell.strip() for cell in cells]
        line += 1 + sum(cell.count("\n") for cell in cells)


def _wrong_columns(header: tuple[str, ...], schemas: Schemas) -> Iterator[str]:
    if len(header) == 1 and "," in header[0]:
        yield "columns: found commas, allowed: tabs between the columns"
        return
    settings = {name for schema in schemas.engines.values() for name in schema.keys}
    known = [NAME_COLUMN, *(name for name in schemas.run.keys if name != "settings")]
    known += [f"{_SETTING}{name}" for name in sorted(settings)]
    elsewhere = {name: f"is a setting; type `{_SETTING}{name}`" for name in settings}
    elsewhere["settings"] = f"is no column; type one column for each setting, `{_SETTING}<key>`"
    for number, name in enumerate(header, 1):
        if not name:
            yield f"column {number}: found no name, allowed: {', '.join(known)}"
        elif name not in known:
            yield f"column {name}: {removed_column(name) or unknown(name, known, elsewhere)}"
        elif name in header[: number - 1]:
            yield f"column {name}: stands here twice; remove one"
    if NAME_COLUMN not in header:
        yield f"column {NAME_COLUMN}: is missing; add it, it holds the names of the runs"


def _entry(row: TableRow, cells: Sequence[str], schemas: Schemas, default_engine: object) -> Entry:
    filled = {column: cell for column, cell in zip(row.columns, cells, strict=True) if cell}
    engine = schemas.engines.get(str(filled.get("engine", default_engine)))
    values: dict[str, object] = {}
    settings: dict[str, object] = {}
    for column, cell in filled.items():
        if column.startswith(_SETTING):
            name = column.removeprefix(_SETTING)
            settings[name] = _typed(cell, engine.keys.get(name) if engine else None)
            values["settings"] = settings
        elif column != NAME_COLUMN:
            values[column] = _typed(cell, schemas.run.keys[column])
    return Entry(filled.get(NAME_COLUMN), values, row)


def _typed(cell: str, key: SettingKey | None) -> object:
    """The value that a cell says for a key; its text where it says none, for the schema to refuse."""
    if key is None or "string" in key.types:
        return cell
    if "null" in key.types and cell == "null":
        return None
    if "boolean" in key.types and cell in ("true", "false"):
        return cell == "true"
    number = number_in(cell) if key.types & {"integer", "number"} else None
    if number is None and key.types & {"array", "object"}:
        return _from_json(cell)
    return cell if number is None else number


def _from_json(cell: str) -> object:
    try:
        value: object = json.loads(cell)
    except ValueError:
        return cell
    return value if isinstance(value, list | dict) else cell
