"""
The program behind ``window.GameWindow``: it shows the pictures from its standard input until that ends.

Run as a file, it imports nothing of this package. It prints one line when the window is open, and then the names of the
game's keys that are held, one line for each change.
"""

import contextlib
import os
import select
import sys
import time
from typing import List

os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')

import pygame  # noqa: E402  (the variable above is read at import)

# Where SDL reaches no display, it draws into memory, where nobody sees it. That is an error unless SDL_VIDEODRIVER asks
# for it.
INVISIBLE_DRIVERS = ('offscreen', 'dummy')
ENLARGEMENT = 3
EVENT_INTERVAL_S = 0.05  # how often the window answers the desktop when no picture comes
KEYS = {
    'left': (pygame.K_LEFT, pygame.K_a),
    'right': (pygame.K_RIGHT, pygame.K_d),
    'fire': (pygame.K_SPACE,),
    'quit': (pygame.K_q, pygame.K_ESCAPE),
}


def pressed_keys(events: List[pygame.event.Event]) -> str:
    """Names of the keys that are held, or were pressed and released since the last look."""
    held, tapped = pygame.key.get_pressed(), {event.key for event in events if event.type == pygame.KEYDOWN}
    return ' '.join(name for name, keys in KEYS.items() if any(held[key] or key in tapped for key in keys))


def report(line: str) -> None:
    """Print a line, unless nobody reads: an agent's game asks for no keys, and the pipe fills."""
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(1, f'{line}\n'.encode())


def main(title: str, width: int, height: int, pictures_per_second: float) -> None:
    try:
        pygame.display.init()  # the display alone: no sound device is opened
        if pygame.display.get_driver() in INVISIBLE_DRIVERS and not os.environ.get('SDL_VIDEODRIVER'):
            sys.exit('SDL: no display can be reached')
        surface = pygame.display.set_mode((width * ENLARGEMENT, height * ENLARGEMENT))
    except pygame.error as e:
        sys.exit(f'SDL: {e}')
    pygame.display.set_caption(title)
    pygame.display.flip()
    pygame.event.pump()  # everything has been sent to the display before the next line says so
    print('ready', flush=True)
    os.set_blocking(1, False)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    picture_size, received, due, keys = width * height * 3, bytearray(), time.monotonic(), ''
    while True:
        events = pygame.event.get()
        if any(event.type == pygame.QUIT for event in events):
            break
        keys_before, keys = keys, pressed_keys(events)
        if keys != keys_before:
            report(keys)
        if not poller.poll(EVENT_INTERVAL_S * 1000):
            continue
        data = os.read(0, picture_size - len(received))
        if not data:
            break
        received += data
        if len(received) < picture_size:
            continue
        picture = pygame.image.frombuffer(bytes(received), (width, height), 'RGB')
        pygame.transform.scale(picture.convert(), surface.get_size(), surface)
        pygame.display.flip()
        received.clear()
        # reading on only when the next picture is due makes the sender wait: it keeps the speed of the game
        due = max(due + 1 / pictures_per_second, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    pygame.display.quit()


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
