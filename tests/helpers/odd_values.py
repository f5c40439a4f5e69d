"""What someone may write in place of a value, by mistake or with intent, as strategies of hypothesis."""

from decimal import Decimal
from typing import Any, List, Literal, Sequence, get_args, get_origin

import numpy as np
import torch
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from breakout_env.utils.options import Between


class Unprintable(object):
    def __repr__(self) -> str:
        raise RuntimeError('not to be shown')


NUMBERS = [0, 1, -1, 2, 4, 84, 1000, 2**31, 2**63, 10**30, 10**400, 10**5000, -(10**30)]
FLOATS = [-0.0, 0.5, 1.5, 1e-320, 1e300, float('nan'), float('inf'), float('-inf')]
OBJECTS = [
    *(None, True, False, b'', 1j, Decimal('NaN'), len, object(), Unprintable(), int, ..., {1, 2}, range(3), (), [], {}),
    *(np.int64(4), np.float64('nan'), np.bool_(True), np.array([1, 2]), np.array(4), torch.tensor(3), torch.ones(2)),
    *([1, 2, 3], (4, 84, 84), [[]], {'a': {'b': {}}}, {None: 1}, {'items': 3, 'get': 4}, {(3, 4): 5}),
]
# A path leaves the folder of an example by one step at most, which still is a folder of ours.
TEXTS = [
    *('', ' ', '.', '..', '../x', 'a/b', 'x' * 300, 'x' * 5000, 'a/' * 2000, 'nan', 'inf', '-1', '0', 'None'),
    *('True', 'a b', 'a\nb', 'a\x00b', '\x1b[2J', '\ud800', '\udcff', 'ünï/cödé', '随机', '\u202egnp.exe', '--help'),
    *('$(touch x)', '%s%n{0}{', '~', '/dev/null/x', '/proc/x/y', 'cpu', 'cuda', 'cuda:99', 'cuda:-1', 'meta', 'xla'),
]


def one_of(items: Sequence[Any]) -> st.SearchStrategy:
    """As ``sampled_from``, of things that hypothesis need not be able to print."""
    return st.integers(0, len(items) - 1).map(lambda index: items[index])


def texts() -> st.SearchStrategy:
    generated = st.text(max_size=20).map(lambda text: text.replace('/', '_').replace('..', '_'))
    return st.one_of(one_of(TEXTS), one_of(TEXTS), generated)


def values(near: Sequence[Any] = ()) -> st.SearchStrategy:
    """Anything; half of it values that may be right, and what they are mistaken for."""
    scalars = st.one_of(one_of(NUMBERS), st.integers(-100, 1000), one_of(FLOATS), texts(), one_of(OBJECTS))
    nested = st.one_of(
        st.lists(scalars, max_size=3), st.dictionaries(texts().map(lambda t: t[:40]), scalars, max_size=2)
    )
    likely = [variant for value in near for variant in (value, value, str(value), [value], {'value': value})]
    return st.one_of(*[one_of(likely)] * (3 if likely else 0), scalars, scalars, nested)


def near(field: FieldInfo) -> List[Any]:
    """The default of an option, what its type lists, and the numbers beside its bounds."""
    found = [] if field.is_required() else [field.default]
    pending = [field.annotation, *field.metadata]
    while pending:
        part = pending.pop()
        if isinstance(part, Between):
            found += [edge + by for edge in (part.low, part.high) for by in (-1, 0, 0.5, 1)]
        elif get_origin(part) is Literal:
            found += get_args(part)
        elif part is type(None):
            found.append(None)
        pending += get_args(part) if get_origin(part) is not Literal else ()
    return found


class Shown(object):
    """An input that hypothesis can print, whatever it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        try:
            return repr(self.value)[:2000]
        except Exception:
            return f'a {type(self.value).__name__} that cannot be printed'
