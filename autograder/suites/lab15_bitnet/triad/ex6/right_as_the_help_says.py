"""Help and hints, word for word."""


def own_text(model, rows, length, greedy, generator):
    begin = torch.full((rows, 1), BEGIN_ID)
    drawn = torch.randint(model.config.vocab_size, (rows, 1), generator=generator)
    ids = torch.cat([begin, drawn], dim=1)
    with torch.no_grad():
        while ids.shape[1] < 1 + length and ids.shape[1] < 2 + greedy:
            likeliest = model(ids)[:, -1].argmax(-1)
            ids = torch.cat([ids, likeliest[:, None]], dim=1)
    return write(model, ids, 1 + length - ids.shape[1], generator)


def qat(model, batches, lr):
    student = copy.deepcopy(model)
    for p in student.parameters():
        p.requires_grad_(True)
    for name, module in list(student.named_modules()):
        if type(module) is nn.Linear and not name.endswith("lm_head"):
            student.set_submodule(name, BitLinear(module))
    optimizer = torch.optim.AdamW(list(student.parameters()), lr=lr, weight_decay=0)
    losses = []
    for ids in batches:
        with torch.no_grad():
            teacher = model(ids[:, :-1])
        optimizer.zero_grad()
        loss = forward_kl(teacher, student(ids[:, :-1])).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    student.eval()
    return student, losses
