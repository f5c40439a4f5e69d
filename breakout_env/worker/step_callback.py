"""An env manager with someone who looks at what its environments answer."""

from typing import Any, Callable, Dict


class WatchedManager(object):
    """
    Overview:
        Stands before any of DI-engine's env managers. DI-engine's collectors and evaluators have no door for what is \
        not a transition, but all of them step through their manager.
    Interfaces:
        As the manager's.
    """

    def __init__(self, manager: 'BaseEnvManager', look_at: Callable[[Dict[int, Any]], None]) -> None:  # noqa: F821
        """
        Arguments:
            - manager (:obj:`BaseEnvManager`): The manager.
            - look_at (:obj:`Callable`): Called with the timesteps of each step; it must not change them.
        """
        self._manager = manager
        self._look_at = look_at

    def step(self, actions: Dict[int, Any]) -> Dict[int, Any]:
        """
        Overview:
            Step, and show the answers.
        Arguments:
            - actions (:obj:`Dict[int, Any]`): An action for each environment that is to step.
        Returns:
            - timesteps (:obj:`Dict[int, BaseEnvTimestep]`): The manager's answer, as it was.
        """
        timesteps = self._manager.step(actions)
        self._look_at(timesteps)
        return timesteps

    def __getattr__(self, name: str) -> Any:
        # not for a manager that is only half built, or copied: that would ask for ever
        if name == '_manager':
            raise AttributeError(name)
        return getattr(self._manager, name)
