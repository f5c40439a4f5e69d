"""
Puts what the suites of reliability/ found into docs/reliability.md and its translation.

    python docs/make_reliability_tables.py

reads soak.json, faults.json, fuzz.json, planted.json, matrix.json and coverage.json in docs/results, and replaces what
stands in the guides between ``<!-- name -->`` and ``<!-- end -->``. The words of the faults table are those of
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
    'environment': '环境',
    'tests passed': '通过的测试',
    'failed': '失败',
    'suite': '套件',
    'promise': '承诺',
    'figures': '数字的含义',
    'last': '最近一次',
    'nothing grows': '没有任何东西增长',
    'cycles of environments / managers; most memory; counts': '环境 / 管理器的循环数；内存增长最多者；计数的增长',
    'each fault ends as promised': '每项故障的结果与承诺一致',
    'kept / tried; kills of the whole run': '兑现 / 尝试；杀死整个训练的次数',
    'odd input works or gets a sentence': '古怪的输入要么能用，要么得到一句说明',
    'inputs; failures': '输入数；失败数',
    'the tests find faults': '测试能发现故障',
    'found / planted': '被发现 / 埋下',
    'lowest and highest versions work': '最低和最高的版本都能用',
    'environments that work / tried': '能用的 / 试过的环境',
    'the tests run the package': '测试执行了这个包',
    'lines; branches': '行；分支',
}
RESULTS = ('soak', 'faults', 'fuzz', 'planted', 'matrix', 'coverage')
PACKAGES = ('ale-py', 'gymnasium', 'torch', 'opencv-python')
COUNTS = ('descriptors', 'threads', 'processes', 'shared_memory', 'windows', 'files')
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
        [f'`{name}`', f'{row["examples"]:,}', f'{row["accepted"]:,}', f'{row["refused"]:,}', f'{row["failures"]:,}']
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


def versions(found: Dict[str, Any], say: Translate) -> str:
    """
    Overview:
        What was installed in each environment of the matrix, and what came of its tests.
    """
    cells = [
        [
            row['name'],
            *(row['versions'][name] for name in PACKAGES),
            f'{row["tests"]["passed"]:,}',
            f'{row["tests"]["failed"]:,}',
        ]
        for row in found['rows']
    ]
    return markdown([say('environment'), *PACKAGES, say('tests passed'), say('failed')], cells, 2 + len(PACKAGES))


def overview(results: Dict[str, Dict[str, Any]], say: Translate) -> str:
    """
    Overview:
        A row for each suite: what it attacks, and what came out last.
    """
    rows = []
    if 'soak' in results:
        cycles = {section['name']: section['cycles'] for section in results['soak']['sections']}
        growth = max(s['resources']['resident_bytes']['growth'] for s in results['soak']['sections'])
        counts = sum(
            max(0, verdict['growth'])
            for section in results['soak']['sections']
            for name, verdict in section['resources'].items()
            if name in COUNTS
        )
        said = f'{cycles["environments"]:,} / {cycles["managers"]:,}; {growth / 1e6:+.1f} MB; {counts:+.0f}'
        rows.append(['soak', 'nothing grows', 'cycles of environments / managers; most memory; counts', said])
    if 'faults' in results:
        found = results['faults']
        said = f'{found["kept"]:,} / {found["faults"]:,}; {found["kills_of_the_whole_run"]:,}'
        rows.append(['faults', 'each fault ends as promised', 'kept / tried; kills of the whole run', said])
    if 'fuzz' in results:
        surfaces = results['fuzz']['surfaces'].values()
        said = f'{sum(row["examples"] for row in surfaces):,}; {sum(row["failures"] for row in surfaces):,}'
        rows.append(['fuzz', 'odd input works or gets a sentence', 'inputs; failures', said])
    if 'planted' in results:
        said = f'{results["planted"]["found"]:,} / {results["planted"]["planted"]:,}'
        rows.append(['planted', 'the tests find faults', 'found / planted', said])
    if 'matrix' in results:
        tried = results['matrix']['rows']
        said = f'{sum(row["works"] for row in tried):,} / {len(tried):,}'
        rows.append(['matrix', 'lowest and highest versions work', 'environments that work / tried', said])
    if 'coverage' in results:
        said = f'{results["coverage"]["lines_percent"]:.1f}%; {results["coverage"]["branches_percent"]:.1f}%'
        rows.append(['coverage', 'the tests run the package', 'lines; branches', said])
    cells = [[f'`make {name}`', say(promise), say(figures), said] for name, promise, figures, said in rows]
    return markdown([say(word) for word in ('suite', 'promise', 'figures', 'last')], cells, 1)


MAKERS = dict(
    promises=('faults', promises), input=('fuzz', odd_input), plants=('planted', plants), versions=('matrix', versions)
)


def tables(results: Dict[str, Dict[str, Any]], say: Translate) -> Dict[str, str]:
    """
    Overview:
        Those that there are results for, by the names of their places in the guide.
    """
    made = {name: make(results[suite], say) for name, (suite, make) in MAKERS.items() if suite in results}
    return dict(made, overview=overview(results, say))


def load() -> Dict[str, Dict[str, Any]]:
    """What the suites wrote, by name; a suite that has not been run to its end has written nothing."""
    paths = {name: DOCS / 'results' / f'{name}.json' for name in RESULTS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


@click.command(help=__doc__.strip().splitlines()[0])
def main() -> None:
    results = load()
    for guide, say in GUIDES.items():
        for name, text in tables(results, say).items():
            fill([DOCS / guide], name, text)


if __name__ == '__main__':
    main()
