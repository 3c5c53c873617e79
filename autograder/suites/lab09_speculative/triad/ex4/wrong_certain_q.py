"""verify is told that the proposals were certain: exact, and fewer are kept."""

import torch

FAILS = ["test_all_that_may_be_written"]


def speculate(target, draft, prompt, new, gamma, coin, pick):
    text = list(prompt)
    end = len(prompt) + new
    known_t = known_d = 0
    passes = 0
    while len(text) < end:
        g = min(gamma, end - len(text) - 1)
        guess, rows = [], []
        for _ in range(g):
            row = draft(known_d, (text + guess)[known_d:])[-1]
            known_d = len(text) + len(guess)
            rows.append(row)
            guess.append(pick(row))
        all_rows = target(known_t, (text + guess)[known_t:])
        passes += 1
        p = all_rows[-(g + 1) :]
        q = torch.eye(p.shape[1], dtype=p.dtype)[guess] if g else p[:0]
        got = verify(torch.tensor(guess, dtype=torch.int64), q, p, coin, pick).tolist()
        text += got
        known_t = len(text) - 1
        known_d = min(known_d, len(text) - 1)
    return text[len(prompt) :], passes
