"""References to methods that do not keep their object alive."""

import weakref
from typing import Any, Callable


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """
    Overview:
        A function that calls a bound method, for an object that hands it to a part of its own. The method itself \
        would close a reference cycle: DI-engine's collectors and evaluators close their env manager in ``__del__``, \
        and in a cycle that runs when Python has ended the workers already, with a BrokenPipeError on the screen.
    Examples:
        >>> class Part:
        ...     def name(self):
        ...         return 'part'
        >>> part = Part()
        >>> weakly(part.name)()
        'part'
    """
    reference = weakref.WeakMethod(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        found = reference()
        assert found is not None, 'called by a part of an object that no longer exists'
        return found(*args, **kwargs)

    return call
