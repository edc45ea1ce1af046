"""Names that want to be more than names: markup, escapes, formulas, tables, pages."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ctta.base.text import csv_cell, harmless, message, one_line, quoted
from ctta.cli.app import app
from ctta.cli.terminal import progress_bar, say
from ctta.report.tables import render
from ctta.report.tables.render import Table, TableCell, TableColumn
from fake_run import write_fake_run

NAMES = [
    "[red]x[/red]",
    "[/]",
    "[/nothing]",
    "[link=http://evil]x[/link]",
    "[bold",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://evil\x07x",
    "\x9b31m",
    "\u202eevil",
    "\u2066x\u2069",
    "a\nb",
    "a\r\nb",
    "a\rb",
    "a\tb",
    "a\u2028b",
    "\x00",
    "\x7f",
    "\ud800",
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "=cmd|'/C calc'!A0",
    "a|b",
    "|",
    "`code`",
    "<script>alert(1)</script>",
    "![x](http://evil)",
    "[x](http://evil)",
    "**bold**",
    "a\\|b",
    "\\input{/etc/passwd}",
    "$x$",
    "a & b \\\\",
    "[1cm]",
    "*",
    "%",
    "é語🙂",
    "'\"",
    "{{ 7 * 7 }}",
    "{% for %}",
    "&lt;",
    "--",
    "-",
    "=",
    "x" * 5000,
]
NUMBERS = ["-1.5", "+3", "-inf", "nan", "1e-5", "-1e300", "0"]


def table(name):
    columns = (TableColumn(name, "name"), TableColumn("error"))
    return Table(columns, ((TableCell(name, best=True, note=1), TableCell("-1.5")),), name, (name,), (name,))


def must_be_plain(text):
    assert not [letter for letter in text if letter != "\n" and not letter.isprintable() and letter not in "\xa0\u202f"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_every_form_of_a_table_shows_the_name_and_nothing_else(name, attempt, capsys):
    made, shown = table(name), one_line(name)
    rows = list(csv.reader(io.StringIO(render.to_csv(made))))
    assert len(rows) == 2
    assert all(len(row) == 2 for row in rows)
    assert rows[1][0] in (shown, f"'{shown}")
    assert not rows[1][0].lstrip().startswith(("=", "+", "-", "@"))
    assert rows[1][1] == "-1.5", "a number stays one"
    markdown = render.to_markdown(made).split("\n")
    for line in (markdown[0], markdown[2]):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3, line
    assert not re.search(r"(?<!\\)(?:\\\\)*[`<]", "\n".join(markdown))
    assert not re.search(r"(?<!\\)(?:\\\\)*\]\(", "\n".join(markdown)), "no link"
    latex = render.to_latex(made)
    body = latex.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    assert len(re.findall(r"(?<!\\)&", body)) == 2, "one between two columns"
    assert not re.search(r"\\\\\s*[\[*]", latex), "no option of a line end"
    assert "\\input" not in latex
    console = Console(width=200, file=io.StringIO())
    console.print(render.to_rich([made], 200))
    for text in (console.file.getvalue(), render.to_markdown(made), latex, render.to_csv(made)):
        must_be_plain(text)
    say(name, (name, "bold"))
    must_be_plain(capsys.readouterr().out)
    attempt("names in exports", 5)


@pytest.mark.parametrize("name", NAMES[:-1], ids=range(len(NAMES) - 1))
def test_the_progress_bar_shows_names(name, attempt, capsys):
    with progress_bar(False) as bar:
        bar.add_task(one_line(name), total=1)
    assert "MarkupError" not in capsys.readouterr().err
    attempt("names in exports")


def test_a_run_folder_whose_names_are_hostile_is_shown(tmp_path, attempt):
    write_fake_run(tmp_path)
    text = (tmp_path / "run.json").read_text()
    bad = r"[/red]\u001b[31m=1+1|<script>alert(1)</script>\u202e"
    label = re.search(r'"label": "([^"]+)"', text)[1]
    text = text.replace(f'"label": "{label}"', f'"label": "{bad}"')
    text = re.sub(r'"notes": \[[^]]*\]', rf'"notes": ["{bad}"]'.replace("\\", "\\\\"), text)
    (tmp_path / "run.json").write_text(text)
    made = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert made.exit_code == 0, made.output
    assert made.output.count("[/red][31m=1+1|") >= 2, "the row and the note, as they are"
    must_be_plain(made.output)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert(1)</script>" not in page
    for file in ("table.csv", "table.md", "table.tex", "metrics.csv", "metrics.tex", "report.html"):
        content = (tmp_path / file).read_text()
        assert not set(content) & {"\x1b", "\u202e"}, file
    attempt("hostile run folders")


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_stay_numbers(number, attempt):
    assert csv_cell(number) == number
    attempt("names in exports")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_made_harmless(text):
    must_be_plain(one_line(text).replace("\u200c", "").replace("\u200d", ""))
    assert "\n" not in one_line(text)
    assert harmless(text).count("\n") == text.count("\n")
    assert len(quoted(text)) <= 80
    assert max(map(len, message(text * 20).split("\n"))) <= 300
    assert one_line(one_line(text)) == one_line(text)


def test_huge_values_are_spelt_in_part_of_a_line(attempt):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    loop = {}
    loop["x"] = loop
    for value in (
        deep,
        loop,
        10**100_000,
        "x" * 10**7,
        list(range(10**6)),
        {number: number for number in range(10**5)},
    ):
        assert len(quoted(value)) <= 80
        attempt("huge values in messages")
    while deep:  # freed level by level
        deep = deep[0]
