"""The program behind ``window.GameWindow``, which imports nothing of this package. It prints a line when the window is
open, shows the pictures from its standard input until that ends, and ends when its user closes it or presses q.
"""

import os
import select
import sys
import time

os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')

import pygame  # noqa: E402  (the variable above is read at import)

# Where SDL reaches no display, it draws into memory, where nobody sees it. That is an error unless SDL_VIDEODRIVER asks
# for it.
INVISIBLE_DRIVERS = ('offscreen', 'dummy')
ENLARGEMENT = 3
EVENT_INTERVAL_S = 0.05  # how often the window answers the desktop when no picture comes
QUIT_KEYS = (pygame.K_q, pygame.K_ESCAPE)


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
    poller = select.poll()
    poller.register(0, select.POLLIN)
    picture_size, received, due = width * height * 3, bytearray(), time.monotonic()
    while True:
        events = pygame.event.get()
        if any(each.type == pygame.QUIT or getattr(each, 'key', None) in QUIT_KEYS for each in events):
            break
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
