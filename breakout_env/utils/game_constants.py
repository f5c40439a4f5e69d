"""Constants of Breakout on the Atari 2600, as ALE emulates it."""

NOOP, FIRE = 0, 1  # the same places in Breakout's minimal and in the full action set
SCREEN_SHAPE = (210, 160)  # height, width in pixels (NTSC)
FRAMES_PER_SECOND = 60
