"""Ray for one run: a local one that starts and ends with the run, or a cluster that is there already."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal

from ..compat.ray_import_path import job_on_this_path
from ..compat.ray_local_address import ray_on_loopback

EVALUATOR_CPUS = 1  # beside one for each collector; the learner is the driver, which Ray does not count
CollectorCount = int | Literal['auto']


class ClusterError(RuntimeError):
    """The run cannot continue with this cluster; the message says what to change."""


@contextlib.contextmanager
def ray_session(address: str | None, collectors: CollectorCount) -> Iterator[ModuleType]:
    """Connect to Ray, and disconnect at the end of the context, which ends all actors of the run. Raises
    ClusterError if the cluster is not there, or refuses the token.

    Arguments:
        address: ``'auto'`` or ``'HOST:PORT'`` of a cluster; None starts a local Ray that listens on 127.0.0.1, has room
            for the collectors and ends with the context.
    """
    import ray

    # Ray's own handler ends the driver without a save, so the handler of the run replaces it
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    options: dict[str, Any] = dict(address=address or 'local', log_to_driver=False, logging_level=logging.ERROR)
    options.update(job_config=job_on_this_path())
    with contextlib.ExitStack() as at_the_end:
        if address is None:
            at_the_end.enter_context(ray_on_loopback())
            cpus = max(len(os.sched_getaffinity(0)), EVALUATOR_CPUS + (1 if collectors == 'auto' else collectors))
            folder = os.environ.get('RAY_TMPDIR', '/tmp/ray')  # TMPDIR may be too long for the path of a socket
            options.update(num_cpus=cpus, include_dashboard=False, _temp_dir=folder)
        try:
            ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            where = 'a local Ray' if address is None else f'--ray {address}'
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ClusterError(
                f'{where} did not start or let this run in ({reason}); expected a running cluster, and its token in '
                'RAY_AUTH_TOKEN or ~/.ray/auth_token'
            ) from None
        at_the_end.callback(ray.shutdown)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        yield ray
