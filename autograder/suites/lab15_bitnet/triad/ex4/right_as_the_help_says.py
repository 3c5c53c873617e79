"""Help and hints, word for word."""


def forward_kl(teacher, student):
    log_p = torch.log_softmax(teacher.detach(), dim=-1)
    log_q = torch.log_softmax(student, dim=-1)
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p)).sum(dim=-1)


def reverse_kl(teacher, student):
    log_p = torch.log_softmax(teacher.detach(), dim=-1)
    log_q = torch.log_softmax(student, dim=-1)
    term = log_q.exp() * (log_q - log_p)
    return torch.where(log_p == -math.inf, math.inf, term).sum(dim=-1)


def gradients(teacher, student):
    p, q = teacher.softmax(-1), student.softmax(-1)
    r = student.log_softmax(-1) - teacher.log_softmax(-1)
    mean = (q * r).sum(-1, keepdim=True)
    return q - p, q * (r - mean)
