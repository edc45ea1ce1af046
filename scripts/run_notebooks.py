"""Run the notebooks of the documentation and keep what they print: `python scripts/run_notebooks.py`."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path


def main() -> None:
    for path in sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb")):
        notebook, scope = json.loads(path.read_text()), dict[str, object]()
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(cells, start=1):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), scope)
            text = printed.getvalue().splitlines(keepends=True)
            cell["execution_count"] = number
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
