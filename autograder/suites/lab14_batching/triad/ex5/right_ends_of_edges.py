# No edges at all: a node for every token, which knows whether an edge ends there.
import heapq


class Node:
    def __init__(self, up):
        self.up, self.next, self.end, self.used, self.holders = up, {}, False, 0, 0


class Radix:
    def __init__(self):
        self.root, self.time, self.count = Node(None), 0, 0

    def size(self):
        return self.count

    def find(self, tokens):
        node, n = self.root, 0
        for token in tokens:
            if token not in node.next:
                break
            node, n = node.next[token], n + 1
        return node, n

    def use(self, node):
        self.time += 1
        down = node
        while down is not self.root and not down.end:  # to the end of its edge
            [down] = down.next.values()
            down.used = self.time
        while node is not self.root:
            node.used = self.time
            node = node.up

    def match(self, tokens):
        node, n = self.find(tokens)
        self.use(node)
        return n

    def insert(self, tokens):
        node, n = self.find(tokens)
        node.end = True
        for token in tokens[n:]:
            node.next[token] = Node(node)
            node = node.next[token]
            self.count += 1
        node.end = True
        self.use(node)
        return len(tokens) - n

    def hold(self, tokens):
        node, n = self.find(tokens)
        node.end = True
        self.use(node)
        self.hand(node, 1)
        return n

    def release(self, tokens):
        self.hand(self.find(tokens)[0], -1)

    def hand(self, node, change):
        while node is not self.root:
            node.holders += change
            node = node.up

    def leaves(self):
        stack = [self.root]
        while stack:
            node = stack.pop()
            stack += node.next.values()
            if not node.next and node is not self.root:
                yield node

    def evict(self, n):
        heap = [(leaf.used, id(leaf), leaf) for leaf in self.leaves() if not leaf.holders]
        heapq.heapify(heap)
        gone = 0
        while gone < n and heap:
            node = heapq.heappop(heap)[2]
            while True:
                up = node.up
                up.next = {token: other for token, other in up.next.items() if other is not node}
                gone += 1
                node = up
                if node is self.root or node.end:
                    break
            if node is not self.root and not node.next and not node.holders:
                heapq.heappush(heap, (node.used, id(node), node))
        self.count -= gone
        return gone
