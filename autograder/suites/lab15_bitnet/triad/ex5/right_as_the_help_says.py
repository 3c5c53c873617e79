"""Help and hints, word for word."""


def write(model, prompts, n, generator):
    ids = prompts.clone()
    with torch.no_grad():
        for _ in range(n):
            last = model(ids)[:, -1]
            chances = torch.softmax(last, dim=-1)
            new = torch.multinomial(chances, 1, generator=generator)
            ids = torch.cat((ids, new), dim=1)
    return ids


def minillm_loss(teacher, student, ids):
    log_p = teacher.detach().log_softmax(-1)
    log_q = student.log_softmax(-1)
    drawn_p = log_p.gather(2, ids.unsqueeze(2)).squeeze(2)
    drawn_q = log_q.gather(2, ids.unsqueeze(2)).squeeze(2)
    with torch.no_grad():
        r = drawn_p - drawn_q
        returns = r.sum(1, keepdim=True) - torch.cumsum(r, dim=1)
    single = reverse_kl(teacher, student).sum(1)
    long = -(returns * drawn_q).sum(1)
    return (single + long).mean()
