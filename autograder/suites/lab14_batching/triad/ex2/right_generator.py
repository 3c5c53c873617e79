# A generator of what everybody gets; a pair of numbers as the shop.


class Shop:
    def __init__(self, free, budget, block):
        self.free, self.budget, self.block = free, budget, block

    def sell(self, cached, wanted):
        empty = (self.block - cached % self.block) % self.block
        got = min(wanted, self.budget, empty + self.free * self.block)
        self.budget -= got
        if got > empty:
            self.free -= 1 + (got - empty - 1) // self.block
        return got


def plan(running, waiting, shop, most):
    for name, tokens, cached in running:
        yield name, shop.sell(cached, tokens - cached)
    for place, (name, tokens) in enumerate(waiting, start=len(running)):
        if place >= most or not shop.budget or shop.free * shop.block < tokens:
            return
        yield name, shop.sell(0, tokens)


def mixed_chunks(running, waiting, free, budget, most, block):
    return [entry for entry in plan(running, waiting, Shop(free, budget, block), most) if entry[1]]
