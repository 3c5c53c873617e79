"""The notebook's own loop; it draws where nothing is to be drawn, from torch's own generator."""


def own_text(model, rows, length, greedy, generator):
    first = torch.randint(0, model.config.vocab_size, (rows,), generator=generator)
    ids = torch.stack([torch.full_like(first, BEGIN_ID), first], dim=1)
    sure = min(greedy, length - 1)
    if sure:
        ids = generate(model, ids, sure, GREEDY)
    if length - 1 - sure:
        ids = generate(model, ids, length - 1 - sure, Sampling(), generator)
    return ids


def without_linears(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            if name != "lm_head":
                setattr(module, name, BitLinear(child))
        else:
            without_linears(child)


def qat(model, batches, lr):
    student = copy.deepcopy(model)
    without_linears(student)
    for p in student.parameters():
        p.requires_grad = True
    optimizer, losses = torch.optim.Adam(list(student.parameters()), lr=lr), []
    for ids in batches:
        with torch.no_grad():
            wanted = model(ids[:, :-1])
        optimizer.zero_grad(set_to_none=True)
        loss = forward_kl(wanted, student(ids[:, :-1])).mean()
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
    return student.eval(), losses
