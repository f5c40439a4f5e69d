"""A file is complete or not there."""

import os

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
