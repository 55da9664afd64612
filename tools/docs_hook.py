"""Hook of mkdocs: adds the pages of tools/reference.py, and typesets formulas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import formula  # noqa: E402
import reference  # noqa: E402


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those of the folder."""
    from mkdocs.structure.files import File

    for path, write in reference.PAGES.items():
        files.append(File.generated(config, path, content=write()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Typeset the formulas of a page."""
    return formula.typeset(markdown)
