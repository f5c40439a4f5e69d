"""Constants of Breakout on the Atari 2600, as ALE emulates it."""

NOOP, FIRE = 0, 1  # the same places in Breakout's minimal and in the full action set
SCREEN_SHAPE = (210, 160)  # height, width in pixels (NTSC)
FRAMES_PER_SECOND = 60
# The brightness of the console's 128 colours, each of which has two numbers: ALE's palette for NTSC, as its own
# ``getScreenGrayscale`` computes it (0.2989 red + 0.587 green + 0.114 blue).
BRIGHTNESS = bytes.fromhex(
    '004a6f8eaac0d6ec405f7a94acc1d6e93f576e8396a7b8c73b556b8194a7b7c72c445a6e8092a1b0334a5f738495a4b2'
    '273f556b7d8f9fae16314960748899a91129405568798999203c556d8296a8ba28455f788da2b6c82b4a657f97adc1d4'
    '2847627c93a9bdcf294a68849db5cbdf2f4f6b859db3c8dc2f4f6b859db3c8dc'
)
