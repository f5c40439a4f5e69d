"""A file is complete or not there."""

import contextlib
import errno
import os
import resource
import stat

import pytest

from breakout_env.utils import atomic_file


def test_a_file_is_flushed_before_it_gets_its_name_its_folder_after(tmp_path, monkeypatch):
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


def test_a_link_stays_one_and_a_pipe_is_written_to(tmp_path):
    link, pipe = tmp_path / 'link', tmp_path / 'pipe'
    link.symlink_to('file')
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe):
        atomic_file.write_bytes(path, b'content')
    assert link.is_symlink() and (tmp_path / 'file').read_bytes() == os.read(reader, 99) == b'content'
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)


def test_a_file_that_becomes_too_large_is_named_in_the_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # ulimit -f
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path}/file'"):
            atomic_file.write_bytes(tmp_path / 'file', bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


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


def test_the_old_content_stays_where_a_file_cannot_be_replaced(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    atomic_file.write_bytes(tmp_path / 'file', b'old')
    monkeypatch.setattr(os, 'replace', refuse)
    with pytest.raises(PermissionError, match='file'):
        atomic_file.write_bytes(tmp_path / 'file', b'new')
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [('file', b'old')]
