"""
The program behind ``window.GameWindow``: shows the pictures that come in on standard input until that ends.

Run as a file, it imports nothing of this package. It prints one line when the window is open.
"""

import os
import select
import sys
import time

os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')

import pygame  # noqa: E402  (the variable above is read at import)

ENLARGEMENT = 3
EVENT_INTERVAL_S = 0.05  # how often the window answers the desktop when no picture comes


def main(title: str, width: int, height: int, pictures_per_second: float) -> None:
    try:
        pygame.display.init()  # the display alone: no sound device is opened
        surface = pygame.display.set_mode((width * ENLARGEMENT, height * ENLARGEMENT))
    except pygame.error as e:
        sys.exit(f'SDL: {e}')
    pygame.display.set_caption(title)
    pygame.display.flip()
    pygame.event.pump()  # everything is on its way to the display before we say so
    print('ready', flush=True)
    picture_size, received, due = width * height * 3, bytearray(), time.monotonic()
    while not any(event.type == pygame.QUIT for event in pygame.event.get()):
        if not select.select([0], [], [], EVENT_INTERVAL_S)[0]:
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
        # not reading on until the next picture is due holds the sender to the speed of the game
        due = max(due + 1 / pictures_per_second, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    pygame.display.quit()


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
