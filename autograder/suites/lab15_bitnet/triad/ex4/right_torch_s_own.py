"""torch's kl_div; gradients by the Jacobian of softmax, row by row."""


def forward_kl(teacher, student):
    p = teacher.detach().softmax(-1)
    return F.kl_div(student.log_softmax(-1), p, reduction="none").sum(-1)


def reverse_kl(teacher, student):
    log_p, log_q = F.log_softmax(teacher.detach(), -1), F.log_softmax(student, -1)
    value = F.kl_div(log_p, log_q, reduction="none", log_target=True).sum(-1)
    return value.masked_fill(teacher.isneginf().any(-1), math.inf)


def gradients(teacher, student):
    shape = student.shape
    a, b = teacher.reshape(-1, shape[-1]), student.reshape(-1, shape[-1])
    there, back = torch.empty_like(b), torch.empty_like(b)
    for i in range(len(b)):
        log_p, log_q = a[i].log_softmax(0), b[i].log_softmax(0)
        q = log_q.exp()
        there[i] = q - log_p.exp()
        jacobian = torch.diag(q) - torch.outer(q, q)
        back[i] = jacobian @ (log_q - log_p)
    return there.reshape(shape), back.reshape(shape)
