# Two loops over lists, with what is left of budget and blocks.


def prefill_first(running, waiting, free, budget, most, block):
    left_budget, left_blocks = budget, free
    admitted = []
    for name, tokens in waiting:
        needs = math_ceil(tokens, block)
        fits = tokens <= left_budget and needs <= left_blocks
        if not fits or len(running) + len(admitted) + 1 > most:
            break
        admitted.append((name, tokens))
        left_budget -= tokens
        left_blocks -= needs
    if admitted:
        return admitted
    answers = []
    for name, _, cached in running:
        if left_budget == 0:
            break
        if cached % block == 0:
            if left_blocks == 0:
                continue
            left_blocks -= 1
        answers.append((name, 1))
        left_budget -= 1
    return answers


def math_ceil(a, b):
    return (a + b - 1) // b
