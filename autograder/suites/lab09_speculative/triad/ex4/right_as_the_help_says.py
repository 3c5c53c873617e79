"""Two numbers, one for each model, and lists that grow."""

import torch


def speculate(target, draft, prompt, new, gamma, coin, pick):
    written, passes = [], 0
    known = {"target": 0, "draft": 0}
    while len(written) < new:
        text = prompt + written
        g = min(gamma, new - len(written) - 1)
        proposed, rows = [], []
        while len(proposed) < g:
            so_far = text + proposed
            q = draft(known["draft"], so_far[known["draft"] :])[-1]
            known["draft"] = len(so_far)
            rows.append(q)
            proposed.append(pick(q))
        p = target(known["target"], (text + proposed)[known["target"] :])
        passes = passes + 1
        p = p[len(p) - g - 1 :]
        q = torch.stack(rows) if g else torch.zeros(0, p.shape[1], dtype=p.dtype)
        new_tokens = verify(torch.tensor(proposed, dtype=torch.int64), q, p, coin, pick)
        written = written + new_tokens.tolist()
        right = len(prompt) + len(written) - 1
        known["target"] = right
        known["draft"] = min(known["draft"], right)
    return written, passes
