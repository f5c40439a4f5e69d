"""What a virtual X server shows."""

import contextlib
from pathlib import Path

import numpy as np
import Xlib.display
import Xlib.error


def game_windows(connection: Xlib.display.Display) -> list:
    title, pending, found = connection.intern_atom('_NET_WM_NAME'), [connection.screen().root], []
    while pending:
        window = pending.pop()
        with contextlib.suppress(Xlib.error.BadWindow):  # it has gone since its parent listed it
            if (window.get_full_text_property(title) or '').startswith('Breakout'):
                found.append(window)
            pending += window.query_tree().children
    return found


def windows() -> int:
    """How many windows of the game the X server has."""
    with contextlib.closing(Xlib.display.Display()) as connection:
        return len(game_windows(connection))


def screenshot(framebuffer: Path) -> np.ndarray:
    """What the X server shows, as (H, W, 3) uint8: Xvfb keeps it in a file in the xwd format."""
    raw = framebuffer.read_bytes()
    header = np.frombuffer(raw[:100], dtype='>u4')
    size, width, height, line, colours = (int(header[i]) for i in (0, 4, 5, 12, 19))
    pixels = np.frombuffer(raw[size + colours * 12 :], np.uint8)[: height * line].reshape(height, line)
    return pixels[:, : width * 4].reshape(height, width, 4)[:, :, 2::-1]
