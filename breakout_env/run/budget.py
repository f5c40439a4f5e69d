"""How long a run may take, in the units that people have: env steps, updates, episodes or hours."""

from dataclasses import dataclass

# What `breakout train` spends where its user gives no limit.
DEFAULT_ENV_STEPS = 10_000_000


@dataclass(frozen=True)
class Budget:
    """Ends a run at whichever limit it reaches first; None: no limit. All count from the beginning of the run, stops
    and resumes included; the time between a stop and the next start does not count.

    Examples:
        >>> Budget(updates=50, hours=48).reached(env_steps=1000, updates=50, episodes=3, hours=0.1)
        '50 updates'
    """

    env_steps: int | None = None
    updates: int | None = None
    # Full games of the collector; an episode of a training in DI-engine's sense is one life.
    episodes: int | None = None
    hours: float | None = None

    def reached(self, env_steps: float, updates: float, episodes: float, hours: float) -> str | None:
        """The limit that a run has reached with these, in words; None if it may continue."""
        used = dict(env_steps=env_steps, updates=updates, episodes=episodes, hours=hours)
        for name, value in used.items():
            limit = getattr(self, name)
            if limit is not None and value >= limit:
                return f'{limit:,} {name.replace("_", " ")}'
        return None
