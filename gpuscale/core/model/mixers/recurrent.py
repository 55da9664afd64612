"""What recurrences share: a state instead of keys, split by TP over its heads."""

from __future__ import annotations

from gpuscale.core.model.mixers.kind import Mixer


class Recurrent(Mixer, abstract=True):
    """A mixer whose memory of the past does not grow."""

    def met_keys(self, context: float) -> float:
        """None: the state stands for all of them."""
        return 0.0

    def read_tokens(self, context: float) -> float:
        """None."""
        return 0.0

    def flop_per_key(self, decoding: bool) -> float:
        """None."""
        return 0.0

    def cache_shards(self, tp: int) -> int:
        """All: a state splits over its heads."""
        return tp
