"""The draft stops where it is unsure: exact, and fewer than gamma are proposed."""

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
            if row.max() < 0.5:
                break
        g = len(guess)
        all_rows = target(known_t, (text + guess)[known_t:])
        passes += 1
        p = all_rows[-(g + 1) :]
        q = torch.stack(rows) if g else p[:0]
        got = verify(torch.tensor(guess, dtype=torch.int64), q, p, coin, pick).tolist()
        text += got
        known_t = len(text) - 1
        known_d = min(known_d, len(text) - 1)
    return text[len(prompt) :], passes
