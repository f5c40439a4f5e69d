"""
Saves of version 1, which 0.1.0 wrote, as arrays of today.

Transitions of a save may have had several structures, each with a table of its own. Two such differences occur;
version 2 stores them elsewhere: the hidden states that only some steps of R2D2 keep, and the meta information that task
pipelines store with a transition. Others cannot be loaded. Names in these files: ``tickets`` and ``next_ticket`` for
insertion ids (the low half of each), ``uses`` for sample counts.
"""

import json
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from ..structure import OPTIONAL, Leaf, Leaves, expect_same, leaves_from, set_at, split

_META = '__meta__'


def converted(meta: Dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
    """
    Overview:
        Description and arrays of the present version.
    Raises:
        - ValueError: If transitions have several structures in another way than those above.
    """
    of_schema, low_ids = arrays['schema'], arrays['tickets']
    count, next_id = len(of_schema), int(meta['next_ticket'])
    out = {name: arrays[name] for name in arrays if name.startswith(('dictionary', 'frames'))}
    out['ids'] = next_id - ((next_id - low_ids.astype(np.int64)) & 0xFFFFFFFF)
    if meta['priorities']:
        out['priorities'] = arrays['priorities']
    numbers = {int(number): i for i, number in enumerate(meta['strings'])}  # of strings
    strings = [str(text) for text in meta['strings'].values()]
    schemas = [leaves_from(json.loads(text)) for text in meta['schemas']]
    if count and int(of_schema.max()) >= len(schemas):
        raise ValueError('a transition of a kind that is not described')
    leaves: Leaves = ()
    metas: List[Dict[str, Any]] = [{} for _ in range(count)]
    states = np.zeros(count, np.uint32)
    state_leaves: Leaves = ()
    for i, schema in enumerate(schemas):
        where = np.flatnonzero(of_schema == i)
        plain, of_meta = split(schema, _META)
        required, with_state = split(plain, OPTIONAL)
        if not i:
            leaves = required
            out['frames'] = np.zeros((count, sum(leaf.shape[0] for leaf in required if leaf.is_stack)), np.uint32)
        expect_same(required, leaves)
        out['frames'][where] = arrays[f'schema{i}.frames']
        columns: Dict[Leaf, np.ndarray] = {}
        for k, leaf in enumerate(leaf for leaf in schema if not leaf.is_stack):
            column = arrays[f'schema{i}.column{k}']
            if len(column) != len(where) or column.shape[1:] != leaf.shape:
                raise ValueError('a column of another shape than described')
            if leaf.kind == 'str':
                column = np.array([numbers[number] for number in column.tolist()], np.uint32)
            columns[leaf] = column
        for k, leaf in enumerate(leaf for leaf in leaves if not leaf.is_stack):
            _put(out, f'column{k}', columns[leaf], where, count)
        for leaf in (leaf for leaf in of_meta if len(leaf.path) > 1):  # else it is empty
            for row, value in zip(where.tolist(), leaf.values(columns[leaf], strings)):
                set_at(metas[row], leaf.path[1:], value)
        if with_state:
            state_leaves = with_state
            states[where] = where + 1
            for k, leaf in enumerate(with_state):
                _put(out, f'state{k}', columns[leaf], where + 1, count + 1)
    out['states'] = states
    more = dict(meta['more'], **(dict(metas=metas) if any(metas) else {}))
    slots = [max(1, count), 'saved in the order of pushing', next_id - count]
    of_now = dict(leaves=[*leaves, *state_leaves] if schemas else None, strings=strings, next_id=next_id, slots=slots)
    return dict(meta, more=more, **of_now), out


def _put(out: Dict[str, np.ndarray], name: str, column: np.ndarray, where: np.ndarray, rows: int) -> None:
    if name not in out:
        out[name] = np.zeros((rows, *column.shape[1:]), column.dtype)
    out[name][where] = column
