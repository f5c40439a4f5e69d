"""
Runs tests again and again, each time in a fork of a process that has imported what takes seconds: PyTorch, DI-engine,
pytest; not the package under test. Takes requests on standard input and answers on standard output, in lines of JSON.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time

import psutil

SLOW_IMPORTS = (
    *('torch', 'torch.utils.tensorboard', 'torch._dynamo', 'numpy', 'cv2', 'gym', 'gymnasium', 'ale_py', 'pytest'),
    *('hypothesis', 'tensorboardX', 'treetensor', 'tensorboard.backend.event_processing.event_accumulator'),
    *('ding', 'ding.config', 'ding.data', 'ding.envs', 'ding.entry', 'ding.framework', 'ding.policy', 'ding.worker'),
    *('ding.data.buffer.middleware', 'ding.framework.middleware', 'torchrl', 'torchrl.data', 'imageio_ffmpeg', 'av'),
    *('safetensors', 'zstandard', 'xxhash', 'click'),
)


def run(request: dict) -> int:
    """
    Overview:
        Run pytest in a fork.
    Arguments:
        - request (:obj:`dict`): ``arguments`` of pytest, ``timeout_s``, and ``output``, the file for what it prints.
    Returns:
        - code (:obj:`int`): Its exit code; less than 0 for the signal that ended it, None if it was out of time.
    """
    pid = os.fork()
    if pid == 0:
        os.setsid()
        output = os.open(request['output'], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(output)
        os.close(nothing)
        code = 70
        try:
            import pytest

            code = int(pytest.main(request['arguments']))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    deadline_s = time.monotonic() + request['timeout_s']
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline_s:
            _end(pid)
            return None
        time.sleep(0.02)


def _end(pid: int) -> None:
    """End a fork and all that it has started."""
    for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    os.waitpid(pid, 0)


def main() -> None:
    answers = os.fdopen(os.dup(1), 'w')
    os.set_inheritable(answers.fileno(), False)
    os.dup2(2, 1)  # what imports print is no answer
    # whoever runs us in the background may have Ctrl-C ignored; tests press it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in SLOW_IMPORTS:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == '__main__':
    main()
