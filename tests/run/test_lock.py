"""One process trains in a folder."""

import errno
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from breakout_env.run.folder import lock_run_folder, unlock_run_folder

FORK = multiprocessing.get_context('fork')


def hold_until_told(folder: Path, connection: Connection) -> None:
    lock_run_folder(folder)
    connection.send('held')
    connection.recv()


def test_folder_in_which_another_process_trains_is_refused(tmp_path, same_footprint):
    ours, theirs = FORK.Pipe()
    other = FORK.Process(target=hold_until_told, args=(tmp_path, theirs))
    other.start()
    assert ours.recv() == 'held'
    with pytest.raises(ValueError, match=f'process {other.pid} on .* trains in .* already'):
        lock_run_folder(tmp_path)
    other.kill()  # the operating system releases the lock, however the process ends
    other.join()
    lock_run_folder(tmp_path)
    lock_run_folder(tmp_path)  # the next run of this process
    unlock_run_folder(tmp_path)


def test_forked_worker_does_not_hold_the_folder(tmp_path):
    lock_run_folder(tmp_path)
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
    assert refused(tmp_path)
    trainer.kill()
    trainer.join()
    assert worker.is_running() and not refused(tmp_path)
    worker.kill()


@pytest.mark.parametrize('answer', [errno.ENOTSUP, errno.ENOLCK])
def test_file_system_without_locks_is_trained_on_without_one_and_named(answer, tmp_path, monkeypatch, caplog):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr('fcntl.flock', refuse)  # no such file system can be mounted here
    (tmp_path / 'log').mkdir()
    (tmp_path / 'log' / 'lock').write_text('4711')  # of an earlier run
    lock_run_folder(tmp_path)
    assert not refused(tmp_path)
    unlock_run_folder(tmp_path)
    assert f'the file system of {tmp_path} has no locks ({os.strerror(answer)})' in caplog.text
