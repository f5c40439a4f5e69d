"""One process trains in a folder."""

import errno
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from breakout_env.run.folder import hold, release

FORK = multiprocessing.get_context('fork')


def hold_until_told(folder: Path, connection: Connection) -> None:
    hold(folder)
    connection.send('held')
    connection.recv()


def test_folder_in_which_another_process_trains_is_refused_until_that_ends(tmp_path, same_footprint):
    ours, theirs = FORK.Pipe()
    other = FORK.Process(target=hold_until_told, args=(tmp_path, theirs))
    other.start()
    assert ours.recv() == 'held'
    with pytest.raises(ValueError, match=f'process {other.pid} on .* trains in .* already'):
        hold(tmp_path)
    other.kill()  # the operating system releases the lock, however the process ends
    other.join()
    hold(tmp_path)
    hold(tmp_path)  # the next run of this process
    release(tmp_path)


def test_forked_worker_does_not_hold_the_folder(tmp_path):
    hold(tmp_path)
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=theirs.recv)
    worker.start()
    refused = FORK.Process(target=hold, args=(tmp_path,))
    refused.start()
    refused.join()
    assert refused.exitcode == 1  # it knows of the parent's lock, and does not take it for its own
    release(tmp_path)
    trainer = FORK.Process(target=hold, args=(tmp_path,))
    trainer.start()
    trainer.join()
    assert trainer.exitcode == 0
    ours.send('end')
    worker.join()


@pytest.mark.parametrize('answer', [errno.ENOTSUP, errno.ENOLCK])
def test_file_system_without_locks_is_trained_on_without_one_and_named(answer, tmp_path, monkeypatch, caplog):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr('fcntl.lockf', refuse)  # no such file system can be mounted here
    (tmp_path / 'log').mkdir()
    (tmp_path / 'log' / 'lock').write_text('4711')  # of an earlier run
    hold(tmp_path)
    release(tmp_path)
    assert f'the file system of {tmp_path} has no locks ({os.strerror(answer)})' in caplog.text
