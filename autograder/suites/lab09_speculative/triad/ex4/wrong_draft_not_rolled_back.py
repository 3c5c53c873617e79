"""What was refused stays in the draft's cache."""

import torch

FAILS = [
    "test_passes_of_sure_models",
    "test_nothing_is_read_twice",
    "test_calls_are_counted",
]


def speculate(target, draft, prompt, new, gamma, coin, pick):
    text, end, passes = list(prompt), len(prompt) + new, 0
    read_by_target = read_by_draft = 0
    while len(text) < end:
        guess, rows = list(text), []
        for _ in range(min(gamma, end - len(text) - 1)):
            rows.append(draft(read_by_draft, guess[read_by_draft:] or guess[-1:])[-1])
            read_by_draft = len(guess)
            guess.append(pick(rows[-1]))
        proposed = torch.tensor(guess[len(text) :], dtype=torch.int64)
        p = target(read_by_target, guess[read_by_target:])[-len(rows) - 1 :]
        passes += 1
        q = torch.stack(rows) if rows else p[:0]
        text += verify(proposed, q, p, coin, pick).tolist()
        read_by_target = len(text) - 1
        read_by_draft = min(read_by_draft, len(text))
    return text[len(prompt) :], passes
