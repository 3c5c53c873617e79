"""Writing with the model's own loop; AdamW by hand, tensor by tensor."""


def own_text(model, rows, length, greedy, generator):
    ids = torch.randint(model.config.vocab_size, (rows, 1), generator=generator)
    ids = F.pad(ids, (1, 0), value=BEGIN_ID)
    for i in range(length - 1):
        with torch.no_grad():
            chances = model(ids)[:, -1].softmax(-1)
        if i < greedy:
            new = chances.max(-1, keepdim=True).indices
        else:
            new = torch.multinomial(chances, 1, generator=generator)
        ids = torch.cat([ids, new], dim=1)
    return ids


def qat(model, batches, lr):
    student = copy.deepcopy(model).requires_grad_(True)
    names = [n for n, m in student.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
    for name in names:
        parent, _, last = name.rpartition(".")
        setattr(student.get_submodule(parent), last, BitLinear(student.get_submodule(name)))
    parameters, losses = list(student.parameters()), []
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for step, ids in enumerate(batches, start=1):
        with torch.no_grad():
            log_p = model(ids[:, :-1]).log_softmax(-1)
        log_q = student(ids[:, :-1]).log_softmax(-1)
        loss = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
        grads = torch.autograd.grad(loss, parameters)
        for p, g, (m, v) in zip(parameters, grads, moments, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            root = (v / (1 - 0.999**step)).sqrt() + 1e-8
            p.data -= lr * m / (1 - 0.9**step) / root
        losses.append(loss.item())
    student.eval()
    return student, losses
