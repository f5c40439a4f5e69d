"""
Puts what the suites of reliability/ found into docs/reliability.md and its translation.

    python docs/make_reliability_tables.py

reads docs/results/faults.json, fuzz.json, planted.json, matrix.json and coverage.json, and replaces what stands in the
guides between ``<!-- name -->`` and ``<!-- end -->``. The words of the faults' table come, by way of faults.json, from
reliability/fault_table.py; fault_table.zh-CN.json beside it has them in Chinese.
"""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import click
from blocks import fill
from tabulate import tabulate

DOCS = Path(__file__).resolve().parent
CHINESE = {
    **json.loads((DOCS.parent / 'reliability' / 'fault_table.zh-CN.json').read_text()),
    'tried': '尝试',
    'kept': '兑现',
    'surface': '入口',
    'examples': '输入数',
    'accepted': '接受',
    'refused': '拒绝',
    'failures': '失败',
    'planted': '埋下的故障',
    'faults': '个数',
    'found': '被发现',
    'release': '漏掉一次释放',
    'fsync': '漏掉一次 fsync',
    'reference': '引用计数出错',
}
RESULTS = ('faults', 'fuzz', 'planted', 'matrix', 'coverage')
Translate = Callable[[str], str]


def in_english(text: str) -> str:
    return text


def in_chinese(text: str) -> str:
    """
    Overview:
        The translation of a text.
    Raises:
        - ValueError: If there is none.
    """
    if text not in CHINESE:
        raise ValueError(
            f'{text!r} has no translation; expected one beside reliability/fault_table.py, or in {__file__}'
        )
    return CHINESE[text]


GUIDES: Dict[str, Translate] = {'reliability.md': in_english, 'reliability.zh-CN.md': in_chinese}


def markdown(headers: Sequence[str], rows: List[list], numbers: int) -> str:
    """A table, its last columns at the right."""
    align = ['left'] * (len(headers) - numbers) + ['right'] * numbers
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def promises(found: Dict[str, Any], say: Translate) -> str:
    """
    Overview:
        What is promised for each fault: those of one role that have one outcome share a row.
    """
    rows: Dict[tuple, List[Dict[str, Any]]] = {}
    for row in found['rows']:
        rows.setdefault((row['role'], row['outcome'], row['promise']), []).append(row)
    cells = [
        [
            say(role),
            ', '.join(say(row['fault']) for row in same),
            f'**{say(outcome)}.** {say(promise)}',
            f'{sum(row["tried"] for row in same):,}',
            f'{sum(row["kept"] for row in same):,}',
        ]
        for (role, outcome, promise), same in rows.items()
    ]
    return markdown([say(word) for word in ('on', 'fault', 'what becomes of it', 'tried', 'kept')], cells, 2)


def odd_input(found: Dict[str, Any], say: Translate) -> str:
    """
    Overview:
        How much odd input was tried on what.
    """
    cells = [
        [say(name), f'{row["examples"]:,}', f'{row["accepted"]:,}', f'{row["refused"]:,}', f'{row["failures"]:,}']
        for name, row in found['surfaces'].items()
    ]
    return markdown([say(word) for word in ('surface', 'examples', 'accepted', 'refused', 'failures')], cells, 4)


def plants(found: Dict[str, Any], say: Translate) -> str:
    """
    Overview:
        How many planted faults the tests found, by kind.
    """
    cells = [[say(kind), f'{row["planted"]:,}', f'{row["found"]:,}'] for kind, row in found['by_kind'].items()]
    return markdown([say(word) for word in ('planted', 'faults', 'found')], cells, 2)


def tables(results: Dict[str, Dict[str, Any]], say: Translate) -> Dict[str, str]:
    """
    Overview:
        All of them, by the names of their places in the guide.
    """
    return dict(
        promises=promises(results['faults'], say),
        input=odd_input(results['fuzz'], say),
        plants=plants(results['planted'], say),
    )


def load() -> Dict[str, Dict[str, Any]]:
    """What the suites wrote, by name."""
    return {name: json.loads((DOCS / 'results' / f'{name}.json').read_text()) for name in RESULTS}


@click.command(help=__doc__.strip().splitlines()[0])
def main() -> None:
    results = load()
    for guide, say in GUIDES.items():
        for name, text in tables(results, say).items():
            fill([DOCS / guide], name, text)


if __name__ == '__main__':
    main()
