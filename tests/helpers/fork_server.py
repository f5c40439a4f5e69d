"""
Starts Python programs as forks of a process that has imported what takes seconds (PyTorch, DI-engine), so that tests
run whole programs in fractions of a second. The package under test is imported by each program itself.

``helpers.processes`` starts one server for each test process and talks to it. One connection is one program: the client
sends a request with the program's stdin, stdout and stderr, and gets its process id and, when it has ended, its exit
code.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import types
from typing import Any, Dict, NoReturn, Tuple

SLOW_IMPORTS = (
    *('torch', 'torch.utils.tensorboard', 'torch._dynamo', 'numpy', 'cv2', 'gym', 'gymnasium', 'ale_py', 'av'),
    *('tensorboardX', 'treetensor', 'tensorboard.backend.event_processing.event_accumulator', 'matplotlib.pyplot'),
    *('ding', 'ding.config', 'ding.data', 'ding.envs', 'ding.entry', 'ding.framework', 'ding.policy', 'ding.worker'),
    *('ding.data.buffer.middleware', 'ding.framework.middleware', 'torchrl', 'torchrl.data', 'imageio_ffmpeg'),
    *('safetensors', 'zstandard', 'xxhash', 'click', 'pydantic', 'rich.console', 'scipy.stats', 'tqdm', 'yapf'),
)
LARGEST_REQUEST_BYTES = 1 << 18
_LIBC = ctypes.CDLL(None)
_END_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of <sys/prctl.h>


def serve(path: str) -> Tuple[Dict[str, Any], socket.socket]:
    """
    Overview:
        Answer requests. In each fork this returns what to run.
    Arguments:
        - path (:obj:`str`): The socket to listen at.
    Returns:
        - request, connection: See ``run_program``.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wake_up, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    listener.bind(f'{path}.new')
    listener.listen(64)
    os.rename(f'{path}.new', path)  # clients wait for this name: it takes connections from now on
    running: Dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(wake_up, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is wake_up:
                    wake_up.recv(4096)
                    _report_ended(running)
                    continue
                connection = listener.accept()[0]
                message, descriptors, _, _ = socket.recv_fds(connection, LARGEST_REQUEST_BYTES, 3)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for standard, descriptor in enumerate(descriptors):
                        os.dup2(descriptor, standard)
                        os.close(descriptor)
                    for ours in (listener, wake_up, wakes, *running.values()):
                        ours.close()
                    return json.loads(message), connection
                for descriptor in descriptors:
                    os.close(descriptor)
                running[pid] = connection


def _report_ended(running: Dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):  # there are no more
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if pid in running:  # else it is an orphan
                with running.pop(pid) as connection, contextlib.suppress(BrokenPipeError):  # the test asks no more
                    connection.send(json.dumps(dict(code=os.waitstatus_to_exitcode(status))).encode())


def run_program(request: Dict[str, Any], connection: socket.socket) -> NoReturn:
    """
    Overview:
        Be the program that a request asks for: run it as a new interpreter would, and end as one ends.
    Arguments:
        - request (:obj:`Dict[str, Any]`): ``argv`` (what follows the interpreter), ``cwd``, ``environ``, and \
            ``terminal``: whether stdin is to be its controlling terminal.
        - connection (:obj:`socket.socket`): Gets the process id as soon as signals do what they do to a new program.
    """
    code = 1
    try:
        _begin(request)
        with connection:
            connection.send(json.dumps(dict(pid=os.getpid())).encode())
        try:
            _execute(request['argv'])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if not isinstance(end.code, (int, type(None))):
                print(end.code, file=sys.stderr)
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            if isinstance(error, KeyboardInterrupt):
                code = -signal.SIGINT
        # as the interpreter ends: threads that are no daemons are waited for, then what is registered is done
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or the program has closed it
                stream.flush()
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code)


def _begin(request: Dict[str, Any]) -> None:
    """Make of a fork of the server what a new process has."""
    os.setsid()
    _LIBC.prctl(_END_WITH_PARENT, signal.SIGKILL)
    if request['terminal']:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request['cwd'])
    environ = request['environ']
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None  # TMPDIR may be another one
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(1))
    # libgomp has read this in the server
    import numpy as np
    import torch

    torch.set_num_threads(int(environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0))))
    random.seed()
    np.random.seed()


def _execute(argv: list) -> None:
    """Run ``-c code``, ``-m module`` or a file, with arguments, as ``__main__``."""
    main = types.ModuleType('__main__')
    main.__dict__.update(__builtins__=__builtins__, __spec__=None)
    sys.modules['__main__'] = main
    if argv[0] == '-m':
        sys.path[0] = os.getcwd()
        sys.argv = argv[1:]
        runpy._run_module_as_main(argv[1])
        return
    if argv[0] == '-c':
        sys.path[0], sys.argv = '', ['-c', *argv[2:]]
        code = compile(argv[1], '<string>', 'exec')
    else:
        sys.path[0], sys.argv = os.path.dirname(os.path.abspath(argv[0])), list(argv)
        main.__file__ = argv[0]
        with open(argv[0], 'rb') as file:
            code = compile(file.read(), argv[0], 'exec')
    exec(code, main.__dict__)


if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIBC.prctl(_END_WITH_PARENT, signal.SIGKILL)
    _LIBC.prctl(_ADOPT_ORPHANS, 1)  # what a program leaves behind stays visible below this process
    for module in SLOW_IMPORTS:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(module)
    gc.freeze()  # collections in the forks do not touch, and so copy, what all share
    run_program(*serve(sys.argv[1]))
