"""How long a run may take, in the units that people have: env steps, updates, episodes or hours."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Budget:
    """
    Overview:
        Ends a run at whichever comes first; None is no limit. All of them count from the beginning of the run, before \
        stops as well; time between a stop and the start after it is left out.
    Interfaces:
        ``reached``.
    """

    # Env steps, 4 emulator frames each.
    env_steps: Optional[int] = None
    updates: Optional[int] = None
    # Whole games of the collector; a training episode in DI-engine's sense is one life.
    episodes: Optional[int] = None
    # Wall clock.
    hours: Optional[float] = None

    def reached(self, env_steps: int, updates: int, episodes: int, hours: float) -> Optional[str]:
        """
        Overview:
            Whether the run is to end.
        Arguments:
            - env_steps, updates, episodes, hours: Used so far.
        Returns:
            - what (:obj:`Optional[str]`): Which limit it was, for people; None to go on.
        """
        used = dict(env_steps=env_steps, updates=updates, episodes=episodes, hours=hours)
        for name, value in used.items():
            limit = getattr(self, name)
            if limit is not None and value >= limit:
                return f'{limit:,} {name.replace("_", " ")}'
        return None
