"""What was read is remembered as text, and compared with what should be there."""

import torch


def begin(read, text):
    n = 0
    while n < min(len(read), len(text) - 1) and read[n] == text[n]:
        n += 1
    return n


def speculate(target, draft, prompt, new, gamma, coin, pick):
    text, passes, seen, drafted = list(prompt), 0, [], []
    while len(text) < len(prompt) + new:
        rows, whole = [], list(text)
        for _ in range(min(gamma, len(prompt) + new - len(text) - 1)):
            start = begin(drafted, whole)
            rows += [draft(start, whole[start:])[-1]]
            drafted = list(whole)
            whole.append(pick(rows[-1]))
        start = begin(seen, text)
        p = target(start, whole[start:])[len(text) - 1 - start :]
        seen, passes = whole, passes + 1
        q = torch.stack(rows) if rows else p[:0]
        text.extend(verify(torch.tensor(whole[len(text) :]).long(), q, p, coin, pick).tolist())
    return text[len(prompt) :], passes
