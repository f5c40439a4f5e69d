"""What a virtual X server shows."""

from pathlib import Path

import numpy as np
import Xlib.display


def windows() -> int:
    """How many windows of the game the X server has."""
    connection = Xlib.display.Display()
    try:
        title, pending, count = connection.intern_atom('_NET_WM_NAME'), [connection.screen().root], 0
        while pending:
            window = pending.pop()
            count += window.get_full_text_property(title) == 'Breakout'
            pending += window.query_tree().children
        return count
    finally:
        connection.close()


def screenshot(framebuffer: Path) -> np.ndarray:
    """What the X server shows, as (H, W, 3) uint8: Xvfb keeps it in a file in the xwd format."""
    raw = framebuffer.read_bytes()
    header = np.frombuffer(raw[:100], dtype='>u4')
    size, width, height, line, colours = (int(header[i]) for i in (0, 4, 5, 12, 19))
    pixels = np.frombuffer(raw[size + colours * 12 :], np.uint8)[: height * line].reshape(height, line)
    return pixels[:, : width * 4].reshape(height, width, 4)[:, :, 2::-1]
