"""Imports the modules that a config names, and says why one of them cannot be imported."""

import importlib
import traceback
from typing import Any

from .options import describe


def import_parts(option: str, names: Any) -> None:
    """Import the modules of an option ``import_names``, which register parts; a ValueError says what is wrong."""
    if not isinstance(names, (list, tuple, type(None))) or not all(isinstance(name, str) for name in names or ()):
        raise ValueError(f'{option} is {describe(names)}; expected a list of modules')
    for name in names or ():
        try:
            importlib.import_module(name)
        except Exception as error:  # the module is a program
            missing = getattr(error, 'name', None) if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f'{name}.'.startswith(f'{missing}.'):
                raise ValueError(
                    f'{option} is {describe(names)}: {error}; expected modules that are installed, on PYTHONPATH (such '
                    'as PYTHONPATH=.) or beside the config'
                ) from None
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise ValueError(
                f'{option} is {describe(names)}, and the import of {name!r} fails in line {last.lineno} of '
                f'{last.filename}: {type(error).__name__}: {error}'
            ) from error
