"""tokens() lists tensors in place of ints."""

import torch

FAILS = [
    "test_sinks_stay_and_places_are_counted",
    "test_any_tokens_may_be_pinned",
    "test_long_streams_with_pinned_tokens",
]

solved = StreamingCache  # noqa: F821


class StreamingCache(solved):
    def tokens(self):
        return list(torch.tensor(super().tokens()))
