"""What someone may write in place of a value, by mistake or with intent, as strategies of hypothesis."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, List, Mapping, Sequence

import numpy as np
import torch
from easydict import EasyDict
from hypothesis import strategies as st


class Unprintable(object):
    """What fails when it is shown."""

    def __repr__(self) -> str:
        raise RuntimeError('not to be shown')


def a_function() -> None:
    """Stands for any of a config's functions that forgot its brackets."""


HUGE = [10**9, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, 10**400, 10**5000]
NUMBERS = [0, 1, -1, 2, 3, 4, 7, 32, 64, 84, 100, 1000, *HUGE, *(-n for n in HUGE)]
FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 1e-320, 1e-9, 1e9, 1e300, -1e300, math.nan, math.inf, -math.inf]
OBJECTS = [
    None,
    True,
    False,
    b'',
    b'bytes',
    1j,
    Decimal('1.5'),
    Decimal('NaN'),
    Fraction(1, 3),
    a_function,
    object(),
    Unprintable(),
    int,
    ...,
    np.int64(4),
    np.float32(0.5),
    np.bool_(True),
    np.float64('nan'),
    np.array([1, 2, 3]),
    np.array(['frame', 'ring']),
    np.array(4),
    torch.tensor(3),
    torch.ones(2),
    np.uint8,
    torch.float32,
    {1, 2},
    range(3),
    (),
    [],
    {},
    EasyDict(a=1),
    [1, 2, 3],
    (4, 84, 84),
    [[]],
    {'a': {'b': {'c': {}}}},
    {None: 1},
    {'items': 3, 'get': 4},
    {1: 2, (3, 4): 5},
]
# Paths leave the folder of an example by one step at most, which is still a folder of ours.
TEXTS = [
    '',
    ' ',
    '.',
    '..',
    '../x',
    'a/../../x',
    'a/b',
    'x' * 300,
    'x' * 100_000,
    'a/' * 2_000,
    'nan',
    'inf',
    '1e400',
    '-1',
    '0',
    '1',
    'None',
    'True',
    '[1, 2]',
    '{}',
    'a b',
    'a\nb',
    'a\x00b',
    '\x1b[2J',
    '\ud800',
    '\udcff\udcfe',
    'ünï/cödé',
    '随机',
    '👾' * 40,
    '\u202egnp.exe',
    'con',
    '%s%n{0}{',
    '$(touch x)',
    '; touch x',
    '--help',
    '~',
    '/dev/null/x',
    '/proc/x/y',
]
DEVICES = [
    'cpu',
    'cuda',
    'cuda:0',
    'cuda:99',
    'cuda:99999999999',
    'cpu:3',
    'meta',
    'mps',
    'xla',
    'hpu',
    'cuda:-1',
    'gpu',
]


def one_of(items: Sequence[Any]) -> st.SearchStrategy:
    """One of some things that hypothesis need not be able to print, as ``sampled_from`` wants to."""
    return st.integers(0, len(items) - 1).map(lambda index: items[index])


def texts() -> st.SearchStrategy:
    """Text of any kind, none of which is a path to where it could do harm."""
    made_up = st.text(max_size=20).map(lambda text: text.replace('/', '_').replace('..', '_'))
    return st.one_of(one_of(TEXTS), one_of(DEVICES), made_up)


def values(near: Sequence[Any] = ()) -> st.SearchStrategy:
    """
    Overview:
        Anything.
    Arguments:
        - near (:obj:`Sequence[Any]`): Values that may be right, such as defaults; some are like them.
    """
    scalars = st.one_of(
        one_of(NUMBERS),
        st.integers(-100, 1000),
        st.sampled_from(FLOATS),
        st.floats(),
        texts(),
        one_of(OBJECTS),
    )
    nested = st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(texts().map(lambda t: t[:40]), inner, max_size=2)
        ),
        max_leaves=4,
    )
    likely = [variant for value in near for variant in _variants(value)]
    right = [one_of(list(near)), one_of(list(near)), one_of(list(near)), one_of(likely)] if likely else []
    return st.one_of(*right, scalars, scalars, nested)


def _variants(value: Any) -> List[Any]:
    """A value, and what it is mistaken for."""
    found = [value, str(value), [value], {'value': value}]
    if isinstance(value, bool):
        return found + [not value, int(value), np.bool_(value), 'yes']
    if isinstance(value, (int, float)):
        return found + [value + 1, value - 1, -value, value * 2, value / 2, float(value), np.float64(value)]
    if isinstance(value, str):
        return found + [value.upper(), f'{value} ', value[:-1], value.encode()]
    return found


def names(known: Sequence[str]) -> st.SearchStrategy:
    """Mostly names that there are; else one like them, or anything that a dict takes for a key."""
    right = st.sampled_from(list(known))
    typo = st.tuples(right, st.integers(0, 20), st.sampled_from(['', '_', 's', 'X', 'é'])).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
    )
    other = st.one_of(texts(), st.sampled_from([None, 0, 1.5, True, (1, 2), b'key', math.nan, 'items', 'get', 'type']))
    return st.one_of(*[right] * 12, typo, other)


def sections(known: Mapping[str, Any], extra: Sequence[Any] = (), largest: int = 3) -> st.SearchStrategy:
    """
    Overview:
        A dict of options, or something in its place.
    Arguments:
        - known (:obj:`Mapping[str, Any]`): The options that there are, and their defaults.
        - extra (:obj:`Sequence[Any]`): More values that may be right for some of them.
        - largest (:obj:`int`): Options at most.
    """

    def with_value(name: Any) -> st.SearchStrategy:
        near = [known[name]] if isinstance(name, str) and name in known else []
        return st.tuples(st.just(name), values([*near, *extra]))

    pairs = st.lists(names(list(known)).flatmap(with_value), min_size=0, max_size=largest)
    return st.one_of(*[pairs.map(dict)] * 15, values())
