"""One process trains in a folder."""

import errno
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from breakout_env.run.lock import hold as hold_folder

FORK = multiprocessing.get_context('fork')


def hold(folder: Path, connection: Connection) -> None:
    lock = hold_folder(folder)
    connection.send('held')
    connection.recv()
    del lock


def test_folder_in_which_another_process_trains_is_refused_until_that_ends(tmp_path):
    ours, theirs = FORK.Pipe()
    other = FORK.Process(target=hold, args=(tmp_path, theirs))
    other.start()
    assert ours.recv() == 'held'
    with pytest.raises(ValueError, match=f'process {other.pid} trains in .* already') as caught:
        hold_folder(tmp_path)
    # the error keeps no file open
    assert caught.value is not None and str(tmp_path / 'log' / 'lock') not in open_files()
    other.kill()  # the operating system releases the lock, however the process ends
    other.join()
    hold_folder(tmp_path).release()


def test_forked_worker_does_not_hold_the_folder(tmp_path):
    lock = hold_folder(tmp_path)
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=theirs.recv)
    worker.start()
    lock.release()
    trainer = FORK.Process(target=lambda: hold_folder(tmp_path).release())
    trainer.start()
    trainer.join()
    assert trainer.exitcode == 0
    ours.send('end')
    worker.join()


def test_folder_is_released_with_the_last_reference(tmp_path):
    failed = hold_folder(tmp_path)
    again = hold_folder(tmp_path)
    del failed
    assert str(tmp_path / 'log' / 'lock') in open_files()
    del again
    assert str(tmp_path / 'log' / 'lock') not in open_files()


@pytest.mark.parametrize('answer', [errno.ENOTSUP, errno.ENOLCK])
def test_file_system_without_locks_is_trained_on_without_one_and_named(answer, tmp_path, monkeypatch, caplog):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr('fcntl.flock', refuse)  # no such file system can be mounted here
    (tmp_path / 'log').mkdir()
    (tmp_path / 'log' / 'lock').write_text('4711')  # of an earlier run
    hold_folder(tmp_path).release()
    assert f'the file system of {tmp_path} has no locks ({os.strerror(answer)})' in caplog.text


def open_files() -> list:
    links = [f'/proc/self/fd/{number}' for number in os.listdir('/proc/self/fd')]
    return [os.readlink(link) for link in links if os.path.lexists(link)]
