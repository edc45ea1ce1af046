"""The one table type, and its forms: terminal, Markdown, LaTeX, CSV and JSON.

The other modules of this package know what the numbers mean. They build a `Table` of printed texts for readers, and for
machines a `Table` of plain numbers (`data_table`) and the unrounded data behind it (`plain_data`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ctta.base.text import csv_cell, one_line
from ctta.report.metrics import Value

ABSENT = "–"


@dataclass(frozen=True)
class TableColumn:
    """The head of a column and how its cells are set: names and words to the left, of which words may wrap."""

    head: str
    kind: Literal["name", "number", "words"] = "number"
    apart: bool = False  # whether another kind of number begins here
    link: str = ""  # used only in pages
    full: str = ""  # the head unabridged, if it is short; used only in pages


@dataclass(frozen=True)
class TableCell:
    """One printed text with its marks."""

    text: str
    best: bool = False
    note: int = 0  # the number of its footnote; 0: none
    link: str = ""  # used only in pages

    def __str__(self) -> str:
        return f"{self.text} [{self.note}]" if self.note else self.text


@dataclass(frozen=True)
class Table:
    """A table as it is printed."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    title: str = ""
    caption: tuple[str, ...] = ()  # lines below the table
    footnotes: tuple[str, ...] = ()  # numbered from 1
    apart: tuple[int, ...] = ()  # rows at which another kind of number begins

    def cleaned(self) -> Table:
        """The same without control characters, which names from elsewhere may hold. Every form below starts from it."""
        columns = tuple(replace(column, head=one_line(column.head)) for column in self.columns)
        rows = tuple(tuple(replace(cell, text=one_line(cell.text)) for cell in row) for row in self.rows)
        caption, footnotes = (tuple(map(one_line, words)) for words in (self.caption, self.footnotes))
        return Table(columns, rows, one_line(self.title), caption, footnotes, self.apart)

    def below(self) -> list[str]:
        """Caption and footnotes."""
        return [*self.caption, *(f"[{number}] {words}." for number, words in enumerate(self.footnotes, start=1))]


# Building


def printed(value: Value | None, *, spread: bool = True) -> str:
    """A mean with its standard deviation; `spread=False` leaves the latter out."""
    return ABSENT if value is None else str(value if spread else replace(value, sd=None))


def formatted(value: float | None, style: str, absent: str = ABSENT) -> str:
    """A number, or the mark of one that is not known."""
    return absent if value is None else format(value, style)


def signed(value: float | None) -> str:
    """A difference: +0.3, −1.2, 0.0."""
    if value is None:
        return ABSENT
    return "0.0" if round(value, 1) == 0 else f"{value:+.1f}".replace("-", "−")


def numbered(remarks: Iterable[str]) -> dict[str, int]:
    """The number of each remark's footnote; equal remarks share one, and an empty remark has none."""
    return {remark: number for number, remark in enumerate(dict.fromkeys(filter(None, remarks)), start=1)}


def transposed(table: Table) -> Table:
    """Rows become columns."""
    first, *rest = table.columns
    heads = (TableColumn(first.head, "name"), *(TableColumn(str(row[0])) for row in table.rows))
    across = zip(*(row[1:] for row in table.rows), strict=True)
    rows = tuple((TableCell(column.head), *cells) for column, cells in zip(rest, across, strict=True))
    apart = tuple(number for number, column in enumerate(rest) if column.apart)
    return replace(table, columns=heads, rows=rows, apart=apart)


def lacking(table: Table, left_out: Sequence[str], file: str) -> Table:
    """The table with one more line below: what it leaves out, and the file in the run's folder that has it."""
    said = f"Not shown here: {', '.join(left_out)}. See {file} in the run's folder."
    return replace(table, caption=(*table.caption, said)) if left_out else table


def best_in(table: Table, better: Mapping[str, Callable[..., float]], rows: Collection[int]) -> Table:
    """The table with the best cell of some columns marked; `better` is min or max, `rows` are those that count.

    Equal ones share the mark, and a single one is not best.
    """
    marked = [list(row) for row in table.rows]
    for index, column in enumerate(table.columns):
        if column.head in better:
            found = {row: _number(table.rows[row][index].text) for row in rows}
            known = {row: number for row, number in found.items() if number is not None}
            for row, number in known.items():
                best = len(known) > 1 and number == better[column.head](known.values())
                marked[row][index] = replace(marked[row][index], best=best)
    return replace(table, rows=tuple(map(tuple, marked)))


def _number(text: str) -> float | None:
    try:
        return float(text.partition(" ")[0].replace("−", "-"))
    except ValueError:
        return None


def cells(rows: Iterable[Iterable[str]]) -> tuple[tuple[TableCell, ...], ...]:
    """Rows of texts without marks."""
    return tuple(tuple(map(TableCell, row)) for row in rows)


def data_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """A table for machines, from rows that name their values; what is not known is empty."""
    texts = (("" if value is None else str(value) for value in row.values()) for row in rows)
    return Table(tuple(map(TableColumn, rows[0] if rows else ())), cells(texts))


# Rendering


def to_rich(layouts: Iterable[Table], width: int) -> RichTable:
    """For the terminal: the first layout that fits its width, else the last one."""
    console = Console(width=10_000)
    for table in layouts:
        rich = _rich(table)
        if Measurement.get(console, console.options, rich).maximum <= width:
            break
    return rich


def _rich(table: Table) -> RichTable:
    table = table.cleaned()
    caption = Text("\n".join(table.below()))
    title = Text(table.title) if table.title else None
    rich = RichTable(title=title, caption=caption, caption_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for column in table.columns:
        justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
        rich.add_column(Text(column.head), justify=justify, no_wrap=column.kind != "words")
    for number, row in enumerate(table.rows):
        if number in table.apart:
            rich.add_section()
        rich.add_row(*(Text(str(cell), "bold" if cell.best else "") for cell in row))
    return rich


MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*[]<|"})


def to_markdown(table: Table) -> str:
    """A table as GitHub shows it, the best in bold, with caption and footnotes below."""

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    def text(cell: TableCell) -> str:
        escaped = str(replace(cell, text=cell.text.translate(MARKDOWN)))
        return f"**{escaped}**" if cell.best else escaped

    table = table.cleaned()
    caption, footnotes = (tuple(one.translate(MARKDOWN) for one in words) for words in (table.caption, table.footnotes))
    table = replace(table, caption=caption, footnotes=footnotes)
    head = line(column.head.translate(MARKDOWN) for column in table.columns)
    rule = "|" + "|".join("---:" if column.kind == "number" else "---" for column in table.columns) + "|"
    return "\n".join([head, rule, *(line(map(text, row)) for row in table.rows), "", "  \n".join(table.below()), ""])


LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": "$<$", ">": "$>$", "±": r"$\pm$", "−": "$-$", "→": r"$\rightarrow$"}
    | {"[": "{[}", "]": "{]}", "*": "{*}"}  # behind a line end they would be its options
    | {"†": r"\textdagger{}", "–": "--", "·": r"$\cdot$"}
)


def to_latex(table: Table) -> str:
    """A floating table in the style of booktabs, the best in bold, with caption and footnotes below."""

    def note(number: int) -> str:
        return rf"\textsuperscript{{{number}}}" if number else ""

    def text(cell: TableCell) -> str:
        escaped = cell.text.translate(LATEX)
        return (rf"\textbf{{{escaped}}}" if cell.best else escaped) + note(cell.note)

    table = table.cleaned()
    layout = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    footnotes = [f"{note(number)} {words.translate(LATEX)}." for number, words in enumerate(table.footnotes, start=1)]
    body = []
    for number, row in enumerate(table.rows):
        body += [r"\midrule"] if number in table.apart else []
        body.append(" & ".join(map(text, row)) + r" \\")
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{table.title.translate(LATEX)}}}"] if table.title else []),
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            " & ".join(column.head.translate(LATEX) for column in table.columns) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize",
            "\\\\\n".join([*(words.translate(LATEX) for words in table.caption), *footnotes]),
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """Heads and texts, separated by commas; none is calculated by a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(column.head) for column in table.columns])
    writer.writerows([csv_cell(cell.text) for cell in row] for row in table.rows)
    return out.getvalue()


def plain_data(result: Any, **more: Any) -> dict[str, Any]:
    """A result as JSON takes it, unrounded."""
    plain = json.loads(json.dumps(asdict(result), default=sorted))  # only sets have no form of their own
    return {**plain, **more}
