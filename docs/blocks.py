"""Where scripts put their tables: between ``<!-- name -->`` and ``<!-- end -->`` in a guide and its translation."""

import re
from pathlib import Path
from typing import Iterable, List


def fill(guides: Iterable[Path], name: str, text: str) -> List[Path]:
    """
    Overview:
        Put a text into the block of this name in each guide.
    Arguments:
        - guides (:obj:`Iterable[Path]`): The guides.
        - name (:obj:`str`): Of the block.
        - text (:obj:`str`): What stands in it from now on.
    Returns:
        - guides (:obj:`List[Path]`): The guides.
    Raises:
        - ValueError: If one has no such block.
    """
    marked = re.compile(rf'(<!-- {name} -->\n)(?:(?!<!--).)*(<!-- end -->)', re.S)
    guides = list(guides)
    for guide in guides:
        filled, count = marked.subn(lambda found: f'{found[1]}{text}\n{found[2]}', guide.read_text())
        if not count:
            raise ValueError(
                f'{guide.name} has no place for {name}; expected a line <!-- {name} --> and a line <!-- end -->'
            )
        guide.write_text(filled)
    return guides
