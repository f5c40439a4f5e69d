"""Where Ray's workers import from; cluster/test_ray.py starts them in a folder of modules that hide installed ones."""

import inspect
import os
import sys

import pytest

from breakout_env.compat.ray_import_path import job_on_this_path

worker = pytest.importorskip('ray._private.worker')


def test_upstream_still_adds_the_current_folder_to_the_path():
    added = inspect.getsource(worker.connect).partition('current_directory = os.path.abspath(os.path.curdir)')
    assert added[0].endswith('not job_config._runtime_env_has_working_dir():\n            '), 'look at the workaround'


def test_workers_get_the_path_of_this_process_in_its_order(monkeypatch):
    monkeypatch.setattr(sys, 'path', ['', '/first', '/second'])
    path = []
    for folder in job_on_this_path()._py_driver_sys_path:
        path.insert(0, folder)  # as a worker does
    assert path == [os.getcwd(), '/first', '/second']
