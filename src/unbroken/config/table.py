"""The table of runs: one row a run, its cells typed as the schemas say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.config.location import Entry, dotted
from unbroken.config.messages import allowed, number_in, unknown, unusable_file
from unbroken.config.schema import Schemas, SettingKey
from unbroken.errors import Mistake

NAME_COLUMN = "run"
_SETTING = "settings."


@dataclass(frozen=True)
class TableRow:
    """A line of the table."""

    file: str
    line: int
    columns: tuple[str, ...]

    def at(self, *path: object) -> str:
        """Return the column that holds what stands at `path` in a run, or the line itself."""
        return f"{self.file} line {self.line}" + (f", column {dotted(*path)}" if path else "")

    def lacks(self, key: SettingKey, *parent: str) -> Mistake:
        """Return the mistake of a required key; it is the same for every row where the column itself is missing."""
        column = dotted(*parent, key.name)
        if column in self.columns:
            return Mistake("found nothing", allowed(key.schema, key.name), where=self.at(column))
        todo = f"add it, or type `{key.name}: {key.example}` under `{dotted('defaults', *parent)}`"
        return Mistake(f"no column `{column}`", todo=todo, where=self.file)


@dataclass(frozen=True)
class Table:
    """The rows of a table, and the mistakes of the table itself."""

    entries: tuple[Entry, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


def read_table(file: str, base: Path, schemas: Schemas, default_engine: object) -> Table:
    """Read the runs of a table that lies relative to `base`; cells that do not fit their type stay text."""
    if problem := unusable_file(file, base):
        return Table(mistakes=(problem.at("runs_table"),))
    rows, problem = _read_rows(file, base)
    if problem:
        return Table(mistakes=(problem,))
    (line, header), *rows = rows
    columns = tuple(header)
    mistakes = [mistake.at(f"{file} line {line}, {mistake.where}") for mistake in _wrong_columns(columns, schemas)]
    allowed = f"{len(columns)}, one for each column"
    too_long = [(line, len(cells)) for line, cells in rows if len(cells) > len(columns)]
    mistakes += [Mistake(f"found {length} cells", allowed, where=f"{file} line {line}") for line, length in too_long]
    if mistakes:
        return Table(mistakes=tuple(mistakes))
    entries = (_entry(TableRow(file, line, columns), cells, schemas, default_engine) for line, cells in rows)
    return Table(tuple(entries))


def _read_rows(file: str, base: Path) -> tuple[list[tuple[int, list[str]]], Mistake | None]:
    """Return the rows that hold something, each with its line; or the mistake that makes the file unreadable."""
    data = (base / file).read_bytes()
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter="\t", strict=True)
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return [], Mistake("found bytes that are not UTF-8", "text saved as UTF-8", where=f"{file} line {number}")
    rows, line = [], 1
    try:
        for cells in reader:
            if any(cells):
                rows.append((line, [cell.strip() for cell in cells]))
            line = reader.line_num + 1
    except csv.Error:
        allowed = "pairs of them around a whole cell"
        return [], Mistake("found a quotation mark that nothing closes", allowed, where=f"{file} line {line}")
    if not rows:
        allowed = f"a line of column names, `{NAME_COLUMN}` among them, then one row a run"
        return [], Mistake("found nothing", allowed, where=file)
    return rows, None


def _wrong_columns(header: tuple[str, ...], schemas: Schemas) -> Iterator[Mistake]:
    if len(header) == 1 and "," in header[0]:
        yield Mistake("found commas", "tabs between the columns", where="columns")
        return
    settings = {name for schema in schemas.engines.values() for name in schema.keys}
    known = [NAME_COLUMN, *(name for name in schemas.run.keys if name != "settings")]
    known += [f"{_SETTING}{name}" for name in sorted(settings)]
    elsewhere = {name: f"is a setting; type `{_SETTING}{name}`" for name in settings}
    elsewhere["settings"] = f"is no column; type one column for each setting, `{_SETTING}<key>`"
    for number, name in enumerate(header, 1):
        if not name:
            yield Mistake("found no name", ", ".join(known), where=f"column {number}")
        elif name not in known:
            yield unknown(name, known, elsewhere).at(f"column {name}")
        elif name in header[: number - 1]:
            yield Mistake("stands here twice", todo="remove one", where=f"column {name}")
    if NAME_COLUMN not in header:
        yield Mistake("is missing", todo="add it, it holds the names of the runs", where=f"column {NAME_COLUMN}")


def _entry(row: TableRow, cells: Sequence[str], schemas: Schemas, default_engine: object) -> Entry:
    filled = {column: cell for column, cell in zip(row.columns, cells, strict=False) if cell}
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
    """Return the value that a cell says for a key; its text where it says none, for the schema to refuse."""
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
