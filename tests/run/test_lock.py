"""One process trains in a folder."""

import errno
import multiprocessing
import time
from pathlib import Path

import psutil
import pytest

from breakout_env.run.folder import lock_run_folder, unlock_run_folder

FORK = multiprocessing.get_context('fork')


def test_forked_worker_does_not_hold_the_folder(tmp_path):
    lock_run_folder(tmp_path)
    lock_run_folder(tmp_path)  # the next run of this process
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=theirs.recv)
    worker.start()
    assert refused(tmp_path)  # it does not take the parent's lock for its own
    unlock_run_folder(tmp_path)
    assert not refused(tmp_path)
    ours.send('end')
    worker.join()


def refused(folder: Path) -> bool:
    """Whether another process is not let in."""
    other = FORK.Process(target=lock_run_folder, args=(folder,))
    other.start()
    other.join()
    return other.exitcode == 1


def test_a_folder_is_free_when_its_trainer_is_killed(tmp_path):
    ours, theirs = FORK.Pipe()

    def train() -> None:
        lock_run_folder(tmp_path)
        worker = FORK.Process(target=time.sleep, args=(300,))
        worker.start()
        theirs.send(worker.pid)
        time.sleep(300)

    trainer = FORK.Process(target=train)
    trainer.start()
    worker = psutil.Process(ours.recv())
    with pytest.raises(ValueError, match=f'process {trainer.pid} on .* trains in .* already'):
        lock_run_folder(tmp_path)
    trainer.kill()
    trainer.join()
    assert worker.is_running() and not refused(tmp_path)
    worker.kill()


def test_file_system_without_locks_is_trained_on_without_one_and_named(tmp_path, monkeypatch, caplog):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr('fcntl.flock', refuse)  # no such file system can be mounted here
    lock_run_folder(tmp_path)
    assert not refused(tmp_path)
    unlock_run_folder(tmp_path)
    assert f'{tmp_path} has no locks (No locks available)' in caplog.text
