"""Options are declared once, in a pydantic model a section: checks, messages, hints and docs/options.md follow from it.

An error message names the option, the value found and what is allowed::

    env option `frame_skip` is 0 (int); expected a whole number from 1 to 60
    env option `frame_skp` is unknown; did you mean `frame_skip`?
"""

import difflib
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge, GroupedMetadata, Gt, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import Self

# Longest part of a value that an error message quotes.
_SHOWN_CHARACTERS = 120
DAY_S = 86_400.0


class ConfigError(ValueError):
    """A wrong option of a config or of the command line; a command ends with exit code 2."""


class Expected(str):
    """What an option may be, in words, for the types that their bounds do not describe."""


def _as_python(value: object) -> object:
    """numpy's numbers count as Python's; an array or a tensor fails the check."""
    return value.item() if isinstance(value, np.generic) else value


def _whole(value: object) -> object:
    """1e6 is what people write for a million."""
    value = _as_python(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Between(GroupedMetadata):
    """The bounds of an option that is a number, Python's or numpy's. Bools and NaN are rejected."""

    low: float
    high: float = math.inf
    above: bool = False  # whether ``low`` itself is not allowed
    from_float: bool = False  # whether an integer may be written as ``1e6``

    def __iter__(self) -> Iterator[object]:
        yield BeforeValidator(_whole if self.from_float else _as_python)
        yield Gt(self.low) if self.above else Ge(self.low)
        if self.high < math.inf:
            yield Le(self.high)

    def describe(self, type_: object) -> str:
        """The bounds in words."""
        if type_ is int:
            return f'a whole number from {self.low:,}' + (f' to {self.high:,}' if self.high < math.inf else '')
        if self.above:
            return f'a number above {self.low:g}' + (f', up to {self.high:g}' if self.high < math.inf else '')
        return f'a number from {self.low:g} to {self.high:g}'


Flag = Annotated[bool, BeforeValidator(_as_python)]


def _check_path(value: str) -> str:
    if not value.isprintable():
        raise ValueError('not printable')
    return os.path.expanduser(value)  # which a shell does not do in `--exp-name=~/run`, nor anybody in a config


PathText = Annotated[str, AfterValidator(_check_path), Expected('a path in printable characters')]


class Options(BaseModel):
    """The options of one section of a config. A subclass declares each option with its type, its default and, in the
    docstring below it, its meaning.

    Examples:
        >>> class Speed(Options):
        ...     _owner = 'speed option'
        ...     fps: Annotated[int, Between(1, 60)] = 30
        ...     '''Frames a second.'''
        >>> Speed.read({'fps': 20}).fps
        20
        >>> Speed.read({'fps': 0})
        Traceback (most recent call last):
        ...
        ValueError: speed option `fps` is 0 (int); expected a whole number from 1 to 60
    """

    model_config = ConfigDict(strict=True, frozen=True, extra='forbid', use_attribute_docstrings=True)

    # How its error messages begin.
    _owner: ClassVar[str] = 'option'
    # Keys that DI-engine or other configs put into the same section; they are passed over.
    _passed_over: ClassVar[Collection[str]] = frozenset()

    @classmethod
    def read(cls, cfg: object) -> Self:
        """Check a section of a config, a dict or EasyDict, None for an empty one. Raises ValueError if it is not a
        dict, an option is unknown, or a value is not allowed.
        """
        values = as_dict(f'the section of the {cls._owner}s', cfg)
        for name in values:
            if name not in cls.known_names():
                raise cls.unknown(name)
        return cls.of_section(cls._owner, '', values)

    @classmethod
    def of_section(cls, owner: str, section_name: str, values: Mapping) -> Self:
        """As ``read``, for a section that other options share, as DI-engine's do in ``policy.learn``. ``owner`` and
        ``section_name`` begin the error messages.
        """
        given = {name: values[name] for name in cls.model_fields if name in values}
        try:
            return cls(**given)
        except ValidationError as error:
            name = str(error.errors()[0]['loc'][0])
            where = f'{section_name}.{name}' if section_name else name
            raise _refusal(owner, where, given[name], cls.model_fields[name].rebuild_annotation()) from None

    @classmethod
    def known_names(cls) -> Collection[str]:
        return {*cls.model_fields, *cls._passed_over}

    @classmethod
    def unknown(cls, name: object, prefix: str = '') -> ValueError:
        """The error for a name that is not an option, with the nearest one that is; ``prefix`` says where it was."""
        hint = nearest(name, cls.known_names())
        shown_name = name if isinstance(name, str) and name.isprintable() else shortened(name)
        return ValueError(f'{cls._owner} `{prefix}{shown_name[:_SHOWN_CHARACTERS]}` is unknown; {hint}')


def describe_type(type_: object, metadata: Collection[object] = ()) -> str:
    """What an option of a type may be, in words: ``'None or a whole number from 1 to 60'``."""
    for words in metadata:
        if isinstance(words, Expected):
            return str(words)
    if get_origin(type_) is Annotated:
        inner, *metadata = get_args(type_)
        return describe_type(inner, metadata)
    if get_origin(type_) is Union:
        some = [describe_type(part, metadata) for part in get_args(type_) if part is not type(None)]
        return ' or '.join(['None'] * (type(None) in get_args(type_)) + some)
    if get_origin(type_) is Literal:
        return 'one of ' + ', '.join(map(repr, get_args(type_)))
    if type_ is bool:
        return 'True or False'
    for bounds in metadata:
        if isinstance(bounds, Between):
            return bounds.describe(type_)
    raise TypeError(f'options of type {type_} have no description; give the type an Expected(...)')


@cache
def _adapter(type_: Any) -> TypeAdapter:
    return TypeAdapter(type_, config=ConfigDict(strict=True))


def validate(owner: str, name: str, value: object, type_: object) -> Any:
    """Check a single value; returns it, numpy's numbers as Python's. Raises ValueError if it is not allowed.

    Arguments:
        owner: How the error message begins, such as ``'env option'``.
        type_: What it may be, such as ``Annotated[int, Between(1, 8)]``.
    """
    try:
        return _adapter(type_).validate_python(value)
    except ValidationError:
        raise _refusal(owner, name, value, type_) from None


def _refusal(owner: str, name: str, value: object, type_: object) -> ValueError:
    return ValueError(f'{owner} `{name}` is {describe(value)}; expected {describe_type(type_)}')


def checked_seed(seed: object) -> int:
    """A seed as Python's number, from numpy's, too. Raises ValueError if it is not whole, or negative."""
    return validate('argument', 'seed', seed, Annotated[int, Between(0)])


def as_dict(owner: str, value: object) -> dict[Any, Any]:
    """A section of a config as a plain dict, empty for None. Raises ValueError, which names the owner, otherwise."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f'{owner} is {describe(value)}; expected a dict of options')
    # in an EasyDict, an option called `items` hides the method
    return {name: value[name] for name in value}


def nearest(name: object, known: Collection[str]) -> str:
    """The hint for a name that is unknown: the nearest known one, or all of them."""
    near = difflib.get_close_matches(str(name)[:_SHOWN_CHARACTERS], sorted(known), n=1)
    return f'did you mean `{near[0]}`?' if near else f'expected one of {", ".join(sorted(known))}'


def describe(value: object) -> str:
    """A value for an error message, with its type."""
    return f'{shortened(value)} ({type(value).__name__})'


def shortened(value: object) -> str:
    """A value for an error message: cut off where it is long, control characters escaped for the terminal's sake."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f'{text[:_SHOWN_CHARACTERS]} ... ({len(text):,} characters)'
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
