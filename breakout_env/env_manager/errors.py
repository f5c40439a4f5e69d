"""What goes wrong in workers, and in calls of an env manager."""


class WorkerLost(RuntimeError):
    """A worker ended or did not reply in time; the message says which."""


class WorkerEnded(WorkerLost):
    """A worker ended, or somebody else killed it."""


class EnvFailed(Exception):
    """An environment raised ``error``; a worker sends this in place of a result."""

    def __init__(self, env_id: int, error: Exception) -> None:
        super().__init__(env_id, error)
        self.env_id, self.error = env_id, error

    def __str__(self) -> str:
        return f'environment {self.env_id} raised {type(self.error).__name__}: {self.error}'


class ResetFailed(RuntimeError):
    """An environment could not be reset in all attempts."""


class EnvNotReady(RuntimeError):
    """The caller steps an environment that is done or needs a reset."""


class StepPending(RuntimeError):
    """The caller steps an environment whose last step is still under way."""


class NoStepPending(RuntimeError):
    """The caller waits for a step where none is under way."""
