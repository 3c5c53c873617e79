"""tokens() lists tensors in place of ints."""

import torch

FAILS = ["test_what_the_model_is_told", "test_chunks_at_every_filling", "test_pinned_of_any_kind"]

solved = StreamingCache  # noqa: F821


class StreamingCache(solved):
    def tokens(self):
        return list(torch.tensor(super().tokens()))
