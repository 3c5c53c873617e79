"""A mean over the outputs."""

FAILS = ["test_a_score_is_what_a_unit_adds", "test_scores_against_outputs"]


def unit_scores(w, gram, size):
    w, gram = w.double(), gram.double()
    values = []
    for u in range(w.shape[1] // size):
        c = slice(u * size, (u + 1) * size)
        values.append((w[:, c] @ gram[c, c] * w[:, c]).sum() / len(w))
    return torch.stack(values).clamp(min=0).sqrt().float()
