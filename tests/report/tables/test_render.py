"""Every form of one table, written out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from ctta.report.metrics import Value
from ctta.report.tables import render
from ctta.report.tables.render import Table, TableCell, TableColumn

TABLE = Table(
    (TableColumn("", "name"), TableColumn("fog"), TableColumn("mean", apart=True), TableColumn("verdict", "words")),
    (
        (TableCell("Source"), TableCell("20.0 ± 1.5"), TableCell("–"), TableCell("1 → 2")),
        (TableCell("a_b|c", note=1), TableCell("9.5", best=True), TableCell("−0.5"), TableCell("50 % & more")),
    ),
    "mine",
    ("Error in %.", "Second line."),
    ("invalid: cost is $5",),
)


def shown(*layouts: Table, width: int = 60) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(render.to_rich(layouts, width))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_terminal() -> None:
    assert [line for line in shown(TABLE).splitlines() if line] == [
        "                   mine",
        "                   fog  mean  verdict",
        " ─────────────────────────────────────────",
        " Source     20.0 ± 1.5     –  1 → 2",
        " a_b|c [1]         9.5  −0.5  50 % & more",
        "Error in %.",
        "Second line.",
        "[1] invalid: cost is $5.",
    ]


def test_the_first_layout_that_fits_is_shown() -> None:
    small = replace(TABLE, columns=TABLE.columns[:2], rows=tuple(row[:2] for row in TABLE.rows))
    assert "verdict" in shown(TABLE, small)
    assert "verdict" not in shown(TABLE, small, width=30)
    assert "20.0 ± 1.5" in shown(TABLE, small, width=30)
    assert len(shown(TABLE, small, width=8).splitlines()[4].split()) == 2, "the last one, cut short, if none fits"


def test_markdown() -> None:
    assert render.to_markdown(TABLE).splitlines() == [
        "|  | fog | mean | verdict |",
        "|---|---:|---:|---|",
        "| Source | 20.0 ± 1.5 | – | 1 → 2 |",
        "| a_b\\|c [1] | **9.5** | −0.5 | 50 % & more |",
        "",
        "Error in %.  ",
        "Second line.  ",
        "[1] invalid: cost is $5.",
    ]


def test_latex() -> None:
    assert render.to_latex(TABLE).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\caption{mine}",
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r" & fog & mean & verdict \\",
        r"\midrule",
        r"Source & 20.0 $\pm$ 1.5 & -- & 1 $\rightarrow$ 2 \\",
        r"a\_b\textbar{}c\textsuperscript{1} & \textbf{9.5} & $-$0.5 & 50 \% \& more \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\footnotesize",
        r"Error in \%.\\",
        r"Second line.\\",
        r"\textsuperscript{1} invalid: cost is \$5.",
        r"\end{table}",
    ]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50% & #1", r"50\% \& \#1"),
        ("a_b {c} $5", r"a\_b \{c\} \$5"),
        (r"C:\x~y^2", r"C:\textbackslash{}x\textasciitilde{}y\textasciicircum{}2"),
        ("fog>snow <1", "fog$>$snow $<$1"),
        ("DSS† · −1 ± 2", r"DSS\textdagger{} $\cdot$ $-$1 $\pm$ 2"),
    ],
)
def test_what_latex_would_read_as_a_command_is_escaped(text: str, escaped: str) -> None:
    assert rf"\caption{{{escaped}}}" in render.to_latex(replace(TABLE, title=text))
    head = replace(TABLE, columns=(TableColumn(text), *TABLE.columns[1:]))
    assert rf"{escaped} & fog" in render.to_latex(head)


def test_a_latex_table_without_a_title_has_no_caption() -> None:
    assert "caption" not in render.to_latex(replace(TABLE, title=""))


def test_csv() -> None:
    table = render.data_table([{"name": 'a, "b"', "error": "1.50"}, {"name": "c", "error": None}])
    assert render.to_csv(table) == 'name,error\n"a, ""b""",1.50\nc,\n'
    assert list(csv.reader(io.StringIO(render.to_csv(TABLE))))[1] == ["Source", "20.0 ± 1.5", "–", "1 → 2"]


def test_json() -> None:
    @dataclass(frozen=True)
    class Result:
        value: Value
        best: tuple[frozenset[str], ...]

    data = render.plain_data(Result(Value(1 / 3, None, 1), (frozenset({"b", "a"}), frozenset())), unit="percent")
    assert json.loads(json.dumps(data)) == {
        "value": {"mean": 1 / 3, "sd": None, "seeds": 1, "each": []},
        "best": [["a", "b"], []],
        "unit": "percent",
    }


def test_transposed() -> None:
    turned = render.transposed(TABLE)
    assert [(column.head, column.kind) for column in turned.columns] == [
        ("", "name"),
        ("Source", "number"),
        ("a_b|c [1]", "number"),
    ]
    assert [[cell.text for cell in row] for row in turned.rows] == [
        ["fog", "20.0 ± 1.5", "9.5"],
        ["mean", "–", "−0.5"],
        ["verdict", "1 → 2", "50 % & more"],
    ]
    assert turned.rows[0][2].best
    assert turned.apart == (1,), "means are set apart"
    assert render.to_latex(turned).count(r"\midrule") == 2


def test_numbers() -> None:
    assert [render.signed(value) for value in (0.31, -1.25, 0.04, -0.04, None)] == ["+0.3", "−1.2", "0.0", "0.0", "–"]
    value = Value(1.26, 0.04, 2)
    assert (render.printed(value), render.printed(value, spread=False), render.printed(None)) == (
        "1.3 ± 0.0",
        "1.3",
        "–",
    )
    assert (render.formatted(0.012345, ".3g"), render.formatted(None, ".3g", "")) == ("0.0123", "")
    assert render.numbered(["", "b", "a", "b"]) == {"b": 1, "a": 2}
