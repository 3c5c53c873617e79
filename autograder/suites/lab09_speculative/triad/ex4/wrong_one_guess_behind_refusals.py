"""Behind twenty refusals in a row a round proposes one token."""

import torch

FAILS = ["test_long_runs"]


def speculate(target, draft, prompt, new, gamma, coin, pick):
    text = list(prompt)
    end = len(prompt) + new
    known_t = known_d = 0
    passes = lost = 0
    while len(text) < end:
        g = min(gamma, end - len(text) - 1) if lost < 20 else 1 if end - len(text) > 1 else 0
        guess, rows = [], []
        for _ in range(g):
            row = draft(known_d, (text + guess)[known_d:])[-1]
            known_d = len(text) + len(guess)
            rows.append(row)
            guess.append(pick(row))
        all_rows = target(known_t, (text + guess)[known_t:])
        passes += 1
        p = all_rows[-(g + 1) :]
        q = torch.stack(rows) if g else p[:0]
        got = verify(torch.tensor(guess, dtype=torch.int64), q, p, coin, pick).tolist()
        text += got
        lost = lost + 1 if len(got) <= g else 0
        known_t = len(text) - 1
        known_d = min(known_d, len(text) - 1)
    return text[len(prompt) :], passes
