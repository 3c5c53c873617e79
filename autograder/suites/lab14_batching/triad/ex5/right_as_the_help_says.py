# An edge is a small object; a cut makes a new upper edge between the parent and the old one.


class Edge:
    def __init__(self, tokens, parent):
        self.tokens, self.parent = tokens, parent
        self.children, self.used, self.holders = {}, 0, 0


class Radix:
    def __init__(self):
        self.top, self.clock = Edge([], None), 0

    def go(self, tokens, cut):
        self.clock += 1
        edge, at, way = self.top, 0, []
        while at < len(tokens) and tokens[at] in edge.children:
            below = edge.children[tokens[at]]
            k = 0
            for mine, theirs in zip(below.tokens, tokens[at:], strict=False):
                if mine != theirs:
                    break
                k += 1
            if k < len(below.tokens) and cut:
                upper = Edge(below.tokens[:k], edge)
                upper.used, upper.holders = below.used, below.holders
                edge.children[tokens[at]] = upper
                below.tokens, below.parent = below.tokens[k:], upper
                upper.children[below.tokens[0]] = below
                below = upper
            way.append(below)
            at += k
            edge = below
            if k < len(below.tokens):
                break
        for edge in way:
            edge.used = self.clock
        return way, at

    def everything(self):
        stack, out = [self.top], []
        while stack:
            edge = stack.pop()
            stack += edge.children.values()
            out += edge.children.values()
        return out

    def size(self):
        return sum(len(edge.tokens) for edge in self.everything())

    def match(self, tokens):
        return self.go(list(tokens), False)[1]

    def insert(self, tokens):
        tokens = list(tokens)
        way, at = self.go(tokens, True)
        if at < len(tokens):
            parent = way[-1] if way else self.top
            parent.children[tokens[at]] = leaf = Edge(tokens[at:], parent)
            leaf.used = self.clock
        return len(tokens) - at

    def hold(self, tokens):
        way, at = self.go(list(tokens), True)
        for edge in way:
            edge.holders += 1
        return at

    def release(self, tokens):
        edge, at = self.top, 0
        while at < len(tokens):
            edge = edge.children[tokens[at]]
            edge.holders -= 1
            at += len(edge.tokens)

    def evict(self, n):
        went = 0
        while went < n:
            leaves = [e for e in self.everything() if not e.children and e.holders == 0]
            if not leaves:
                return went
            leaf = min(leaves, key=lambda e: e.used)
            leaf.parent.children.pop(leaf.tokens[0])
            went += len(leaf.tokens)
        return went
