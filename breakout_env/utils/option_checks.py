"""
What an option may be: checks that are shared by all places that have options, and how a value is shown in an error.

A check takes a value and gives it back as it is to be used, or raises ``ValueError`` with what is expected; ``checked``
makes a sentence of that. Values come from configs that anyone may have written, so a check may get anything at all.
"""

import difflib
import math
import numbers
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Mapping, Optional

import numpy as np

Check = Callable[[Any], Any]
# Of a value in an error: enough to find it again.
_SHOWN_CHARACTERS = 120
# Of a name on any usual file system, with room for what is added to it: a time, a process, .previous.
LONGEST_NAME_BYTES = 180
LONGEST_PATH_BYTES = 3000


def shown(value: Any) -> str:
    """
    Overview:
        A value for an error message, with its type; cut off where it is long, and without what a terminal would obey.
    Arguments:
        - value (:obj:`Any`): Anything.
    """
    return f'{shortened(value)} ({type(value).__name__})'


def shortened(value: Any) -> str:
    """The same without the type."""
    try:
        text = repr(value)
    except Exception:  # Python refuses to print whole numbers of thousands of digits; others fail as they like
        return 'a value that can not be printed'
    if len(text) > _SHOWN_CHARACTERS:
        text = f'{text[:_SHOWN_CHARACTERS]} ... ({len(text):,} characters)'
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def checked(owner: str, name: Any, value: Any, check: Check) -> Any:
    """
    Overview:
        A value as its check gives it back.
    Arguments:
        - owner (:obj:`str`): Whose option it is, as the sentence begins: ``'env option'``.
        - name (:obj:`Any`): The option's name.
        - value (:obj:`Any`): What was found.
        - check (:obj:`Check`): What it may be.
    Raises:
        - ValueError: A sentence with all of these, if it is not allowed.
    """
    try:
        return check(value)
    except ValueError as expected:
        raise ValueError(f'{owner} `{name}` is {shown(value)}; expected {expected}') from None


def unknown(owner: str, name: Any, known: Collection[str], hint: Optional[str] = None) -> ValueError:
    """
    Overview:
        The error about a name that is none, with the nearest that is.
    Arguments:
        - owner (:obj:`str`): Whose options they are.
        - name (:obj:`Any`): What was found.
        - known (:obj:`Collection[str]`): The names there are.
        - hint (:obj:`Optional[str]`): What to say in place of the nearest name.
    """
    name = name if isinstance(name, str) and len(name) <= _SHOWN_CHARACTERS and name.isprintable() else shortened(name)
    if hint is None:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f'did you mean `{near[0]}`?' if near else f'expected one of {", ".join(sorted(known))}'
    return ValueError(f'{owner} `{name}` is unknown; {hint}')


def section(owner: str, value: Any) -> Dict[Any, Any]:
    """
    Overview:
        A dict of options.
    Arguments:
        - owner (:obj:`str`): What it is called.
        - value (:obj:`Any`): What was found; None stands for an empty one.
    Raises:
        - ValueError: If it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f'{owner} is {shown(value)}; expected a dict of options')
    # not as it is: in an EasyDict, an option that is called `items` hides the method of this name
    return {name: value[name] for name in value}


def read(owner: str, values: Any, checks: Mapping[str, Check], passed_over: Collection[str] = ()) -> Dict[str, Any]:
    """
    Overview:
        A dict of options, all of them checked.
    Arguments:
        - owner (:obj:`str`): Whose options they are.
        - values (:obj:`Any`): What was found.
        - checks (:obj:`Mapping[str, Check]`): What each may be.
        - passed_over (:obj:`Collection[str]`): Names that may be there and are not ours.
    Raises:
        - ValueError: If it is no dict, a name is unknown, or a value is not allowed.
    """
    given = {}
    for name, value in section(f'the section of the {owner}s', values).items():
        if name in checks:
            given[name] = checked(owner, name, value, checks[name])
        elif name not in passed_over:
            raise unknown(owner, name, checks)
    return given


# ---------------------------------------------------------------- what a value may be


def whole_number(low: int, high: int, or_none: bool = False) -> Check:
    """A whole number of Python's or numpy's."""

    def check(value: Any) -> Optional[int]:
        if or_none and value is None:
            return None
        is_one = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
        if not is_one or not low <= value <= high:
            raise ValueError(f'{_none(or_none)}a whole number from {low} to {high:,}')
        return int(value)

    return check


def number(low: float, high: float, or_none: bool = False, above: bool = False) -> Check:
    """A number of Python's or numpy's; NaN is none. ``above``: the lower bound itself is not allowed."""

    def check(value: Any) -> Optional[float]:
        if or_none and value is None:
            return None
        is_one = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
        if not is_one or not low <= value <= high or (above and value == low):
            bounds = f'above {low:g}, up to {high:g}' if above else f'from {low:g} to {high:g}'
            raise ValueError(f'{_none(or_none)}a number {bounds}')
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits, where there is no upper bound
            return math.inf

    return check


def _none(is_allowed: bool) -> str:
    return 'None or ' if is_allowed else ''


def true_or_false(value: Any) -> bool:
    """A bool of Python's or numpy's."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError('True or False')
    return bool(value)


def one_of(*allowed: Any) -> Check:
    """One of some strings, True, False or None."""

    def check(value: Any) -> Any:
        if not any(value is a or (isinstance(a, str) and isinstance(value, str) and value == a) for a in allowed):
            raise ValueError('one of ' + ', '.join(map(repr, allowed)))
        return value

    return check


def text(value: Any) -> str:
    """A string that can be printed, and sent."""
    if not isinstance(value, str) or not value.isprintable() or len(value.encode()) > LONGEST_PATH_BYTES:
        raise ValueError(f'printable text of up to {LONGEST_PATH_BYTES:,} bytes')
    return value


def path(value: Any) -> str:
    """A path that a file system takes, or an empty string."""
    expected = f'a path in printable characters, with names of up to {LONGEST_NAME_BYTES} bytes'
    try:
        if not (isinstance(value, str) and value.isprintable() and len(value.encode()) <= LONGEST_PATH_BYTES):
            raise ValueError(expected)
        is_short = all(len(part.encode()) <= LONGEST_NAME_BYTES for part in Path(value).parts)
    except UnicodeEncodeError:  # half a character of UTF-16
        raise ValueError(expected) from None
    if not is_short:
        raise ValueError(expected)
    return value


def finite(value: float) -> bool:
    """Whether something is a number other than NaN and the infinities."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) and math.isfinite(value)
