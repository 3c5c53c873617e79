"""The draft's lag behind the text is counted: one token, or two after full acceptance."""

import torch


def speculate(target, draft, prompt, new, gamma, coin, pick):
    text, passes, lag = list(prompt), 0, len(prompt)
    for _ in range(new):
        left = len(prompt) + new - len(text)
        if left == 0:
            break
        g = min(gamma, left - 1)
        proposed, rows = [], torch.empty(0)
        start = len(text) - lag
        for i in range(g):
            fed = text[start:] if i == 0 else proposed[-1:]
            row = draft(start if i == 0 else len(text) + i - 1, fed)[-1:]
            rows = row if i == 0 else torch.cat([rows, row])
            proposed.append(pick(row[0]))
        at = max(0, len(text) - 1) if passes else 0
        p = target(at, text[at:] + proposed)[-(g + 1) :]
        passes += 1
        out = verify(torch.tensor(proposed, dtype=torch.long), rows if g else p[:0], p, coin, pick)
        out = out.tolist()
        if g:
            lag = 2 if len(out) == g + 1 else 1
        else:
            lag += len(out)
        text += out
    return text[len(prompt) :], passes
