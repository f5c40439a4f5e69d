"""
Tables of docs/reliability.md, from what the release tests recorded in docs/results/reliability.json.

    RELIABILITY_TRIES=10 RELIABILITY_RECORD=1 make test-release
"""

import json
from typing import Any, Callable, Dict, List

from blocks import ROOT, markdown

RESULTS = ROOT / 'docs' / 'results' / 'reliability.json'
Rows = List[Dict[str, Any]]


def promises(rows: Rows) -> str:
    """The faults; those on one subject with the same promise share a row."""
    groups: Dict[tuple, Rows] = {}
    for row in rows:
        groups.setdefault((row['on'], row['promise']), []).append(row)
    cells = []
    for (on, promise), same in groups.items():
        tries, passed = (sum(row[count] for row in same) for count in ('tries', 'passed'))
        cells.append([on, ', '.join(row['fault'] for row in same), promise, tries, passed])
    return markdown(['on', 'fault', 'what becomes of it', 'tries', 'passed'], cells, 2)


def soak(rows: Rows) -> str:
    """How much more there was of each resource at the end of each section than after its warm-up."""
    names = ['descriptors', 'threads', 'processes', 'shared_memory', 'files', 'windows']
    cells = []
    for row in rows:
        growth = row['figures']['growth']
        counts = [f'{growth[name]:+,}' if name in growth else '' for name in names]
        memory = f'{growth["memory_bytes"] / 1e6:+.1f} MB'
        cells.append([row['on'], row['fault'], f'{row["figures"]["cycles"]:,}', memory, *counts])
    headers = ['section', 'a cycle', 'cycles', 'memory', *(name.replace('_', ' ') for name in names)]
    return markdown(headers, cells, len(headers) - 2)


def odd_input(rows: Rows) -> str:
    """How many inputs were accepted, and how many were refused with an error message."""
    cells = [[row['on'], *(f'{row["figures"].get(kind, 0):,}' for kind in ('accepted', 'refused'))] for row in rows]
    return markdown(['input', 'accepted and used', 'refused with a message'], cells, 2)


def block(suite: str, table: Callable[[Rows], str]) -> str:
    """The table of a suite, and when and by which code it was recorded."""
    rows = [row for row in json.loads(RESULTS.read_text())['rows'] if row['suite'] == suite]
    tried = sorted({f'{row["date"]} (commit {row["commit"]})' for row in rows})
    return f'{table(rows)}\n\nLast tried: {", ".join(tried)}.'
