"""A file is complete or not there."""

import contextlib
import errno
import os
import stat

import pytest

from breakout_env.utils import atomic_file


def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after_that(tmp_path, monkeypatch):
    """A power cut leaves the old file or the new one."""
    order = []

    def record(name):
        real = getattr(os, name)

        def call(first, *args, **kwargs):
            path = os.readlink(f'/proc/self/fd/{first}') if isinstance(first, int) else os.fspath(first)
            order.append((name, os.path.relpath(path, tmp_path).split('.')[-1]))
            return real(first, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    record('fsync')
    record('replace')
    atomic_file.write_bytes(tmp_path / 'file', b'content')
    assert order == [('fsync', 'unfinished'), ('replace', 'unfinished'), ('fsync', '')]


@pytest.mark.parametrize('number', [errno.EINVAL, errno.EIO])
def test_a_file_counts_where_the_file_system_cannot_flush_a_folder(number, tmp_path, monkeypatch):
    """As shared folders of VirtualBox, old CIFS and some FUSE ones answer; EIO is an error of the disk."""
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
    with pytest.raises(OSError) if number == errno.EIO else contextlib.nullcontext():
        atomic_file.write_bytes(tmp_path / 'file', b'content')
    assert (tmp_path / 'file').read_bytes() == b'content'
