"""Generated blocks of the guides: everything between ``<!-- name -->`` and ``<!-- end -->``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]


def markdown(headers: Sequence[str], rows: list[list[Any]], numbers: int) -> str:
    """A Markdown table.

    Arguments:
        headers, rows: Of the table.
        numbers: How many of the last columns are numbers, which are aligned at the right.
    """
    align = ['left'] * (len(headers) - numbers) + ['right'] * numbers
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def filled(guide: Path, name: str, text: str) -> str:
    """The content of a guide with a text in the block of this name.

    Raises:
        ValueError: If the guide has no such block.
    """
    marked = re.compile(rf'(<!-- {name} -->\n)(?:(?!<!--).)*(<!-- end -->)', re.S)
    content, count = marked.subn(lambda found: f'{found[1]}{text}\n{found[2]}', guide.read_text())
    if not count:
        raise ValueError(f'{guide.name} has no block {name}; expected a line <!-- {name} --> and a line <!-- end -->')
    return content


def fill(guide: Path, name: str, text: str) -> None:
    """Put a text into the block of this name; raises as ``filled``."""
    guide.write_text(filled(guide, name, text))
