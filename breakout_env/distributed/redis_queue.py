"""DI-engine's message queue by Redis, once this file is imported: it ends quietly, and says if there is no server."""

import logging
import time
from typing import Optional, Tuple

import redis
from ding.framework.message_queue.redis import RedisMQ
from ding.utils import MQ_REGISTRY

logger = logging.getLogger(__name__)

_TRY_AGAIN_S = 1.0


# in its place: the router takes no other names than DI-engine's two
@MQ_REGISTRY.register('redis', force_overwrite=True)
class RedisQueue(RedisMQ):
    """
    Overview:
        DI-engine's, with three behaviours of it worked around (DI-engine 0.5.3): its thread ends with a traceback \
        when the queue is stopped; before the first subscription, and while the server is away, it writes errors as \
        fast as it can; a server that is not there is found out about when the first message is sent.
    Interfaces:
        As the base's.
    """

    def listen(self) -> None:
        """As the base's; the thread ends, and nothing listens, if there is no server."""
        client = redis.Redis(host=self.host, port=self.port, db=self.db)
        try:
            client.ping()
        except redis.RedisError as error:
            logger.error('there is no Redis server at %s:%s: %s', self.host, self.port, error)
            raise SystemExit from None  # threading passes over it without a traceback
        super().listen()

    def recv(self) -> Optional[Tuple[str, bytes]]:
        """As the base's; None when the queue is stopped."""
        while self._running:
            try:
                is_subscribed = self._sub.subscribed
                message = self._sub.get_message(True, timeout=0.1) if is_subscribed else None
            except (redis.RedisError, OSError, ValueError, AttributeError) as error:
                if self._running:  # else it was closed under our hands
                    logger.warning('the Redis server at %s:%s does not answer: %s', self.host, self.port, error)
                    time.sleep(_TRY_AGAIN_S)
                continue
            if message is None:
                time.sleep(0 if is_subscribed else 0.01)
                continue
            sender, _, data = message['data'].partition(b'::')
            if sender != self._id:  # whatever we send comes to ourselves, too
                return message['channel'].decode(), data
        return None
