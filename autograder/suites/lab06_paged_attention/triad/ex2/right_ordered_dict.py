"""Free blocks are the keys of an OrderedDict, owners a Counter."""

from collections import Counter, OrderedDict


class BlockPool:
    def __init__(self, size):
        self.waiting, self.owners = OrderedDict.fromkeys(range(size)), Counter()

    def free(self):
        return len(self.waiting)

    def count(self, block):
        return self.owners[block]

    def take(self):
        try:
            block, _ = self.waiting.popitem(last=False)
        except KeyError:
            raise MemoryError("all blocks have owners") from None
        self.owners[block] = 1
        return block

    def share(self, block):
        self._owned(block)
        self.owners[block] += 1

    def release(self, block):
        self._owned(block)
        self.owners[block] -= 1
        if not self.owners[block]:
            self.waiting[block] = None

    def _owned(self, block):
        if not self.owners[block]:
            raise ValueError(f"block {block} has no owner")
