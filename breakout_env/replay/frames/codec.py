"""Single frames to few bytes and back, by zstd with a dictionary that is trained on the frames themselves."""

from collections.abc import Sequence

import zstandard

# Measured on Breakout (random play, distinct frames): level 6 with 32 KB takes 82 bytes a frame and 10 us to compress,
# with 8 KB 102 bytes and 13 us; level 3 with 16 KB takes 117 bytes and 3 us. Decompressing takes 1 us with any of them.
LEVEL = 6
DICTIONARY_BYTES = 32 * 1024


class FrameCodec:
    """Compresses frames of one size. Little repeats within a frame; with a dictionary of what frames of a game have in
    common (walls, bricks, paddle) zstd takes a third of the bytes that it takes without.
    """

    def __init__(self, frame_bytes: int, dictionary: bytes = b'') -> None:
        self.frame_bytes = frame_bytes
        shared = None
        if dictionary:
            shared = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_FULLDICT)
        # sizes and checksums would add a tenth to frames this small; the size is known
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL,
            source_size=frame_bytes,
            dict_size=len(dictionary),
            write_content_size=False,
            write_checksum=False,
            write_dict_id=False,
        )
        if shared is not None:
            shared.precompute_compress(compression_params=parameters)
        self.compress = zstandard.ZstdCompressor(dict_data=shared, compression_params=parameters).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=shared).decompress

    @classmethod
    def train(cls, frames: Sequence[bytes], frame_bytes: int) -> 'FrameCodec | None':
        """A codec with a dictionary made from about a thousand frames, or None where zstd finds nothing to learn."""
        try:
            # k and d given, as a search for them takes four times as long; the search finds nothing better on Breakout
            trained = zstandard.train_dictionary(DICTIONARY_BYTES, [*frames], k=4096, d=8, level=LEVEL)
        except zstandard.ZstdError:
            return None
        return cls(frame_bytes, trained.as_bytes())
