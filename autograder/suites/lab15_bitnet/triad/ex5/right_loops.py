"""Draws by a running sum of chances; returns from the back, step by step."""


def write(model, prompts, n, generator):
    ids = prompts
    for _ in range(n):
        with torch.no_grad():
            chances = model(ids)[:, -1].double().softmax(-1)
        u = torch.rand(len(ids), 1, generator=generator, dtype=torch.float64)
        new = (chances.cumsum(-1) <= u).sum(-1, keepdim=True).clamp(max=chances.shape[-1] - 1)
        ids = torch.cat([ids, new], dim=1)
    return ids


def minillm_loss(teacher, student, ids):
    b, t = ids.shape
    total = 0.0
    for i in range(b):
        behind = 0.0
        for j in reversed(range(t)):
            log_p, log_q = teacher[i, j].detach().log_softmax(0), student[i, j].log_softmax(0)
            total = total + (log_q.exp() * (log_q - log_p)).sum() - behind * log_q[ids[i, j]]
            behind = behind + (log_p - log_q.detach())[ids[i, j]]
    return total / b
