"""The check of windows; its docstring is the fix."""

import contextlib
import os
import time
from typing import Any

import psutil

from .probe import CheckResult, Probe

try:
    from Xlib import Xatom
    from Xlib.display import Display
    from Xlib.error import XError
except ImportError:
    Display = None


def human_window(probe: Probe) -> str:
    """With `render_mode='human'`, open one window, reuse it in `reset`, and end it in `close`, such as by
    `pygame.display.quit()` and `pygame.quit()`.
    """
    unused = probe.make()
    unused.close()
    needed = 'skipped' if 'human' in unused.env.metadata.get('render_modes', ()) else 'pass'
    if not os.environ.get('DISPLAY'):
        raise CheckResult('DISPLAY is not set: use a display, such as of xvfb-run', needed)
    if Display is None:
        raise CheckResult('python-xlib is not installed: pip install python-xlib', needed)
    if needed == 'skipped':
        probe.env_fn = probe.env_fn.with_window(unused.env)
    display = Display()  # it stays open: some servers restart after their last client
    env = probe.make().play().play()
    opened = len(_own_windows(display))
    if opened > 1:
        raise CheckResult(f'{opened} windows are open after two resets; expected 1')
    env.close()
    deadline = time.monotonic() + 2
    while left := len(_own_windows(display)):
        if time.monotonic() > deadline:
            raise CheckResult(f'{left} of its windows still open after close')
        time.sleep(0.02)
    return 'the window was gone after close' if opened else 'it opens no window'


def _own_windows(display: Any) -> list:
    """Of this process and its children. SDL, GLFW, Qt and GTK write the process into a property of each window."""
    me = psutil.Process()
    own = {me.pid, *(child.pid for child in me.children(recursive=True))}
    pending, found = [display.screen().root], []
    while pending:
        window = pending.pop()
        with contextlib.suppress(XError):  # it has ended since its parent listed it
            pending += window.query_tree().children
            process = window.get_full_property(display.get_atom('_NET_WM_PID'), Xatom.CARDINAL)
            if process is not None and process.value[0] in own:
                found.append(window)
    return found
