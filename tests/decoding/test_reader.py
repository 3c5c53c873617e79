"""Reading in pieces, and again from the middle, gives what one pass over the text gives."""

import torch

from efflib import zoo
from efflib.decoding.reader import reader, spent
from efflib.decoding.sampling import Sampling


def test_pieces_and_rollback_give_the_rows_of_one_pass():
    model = zoo.load("draft").double()
    read, text = reader(model, Sampling(1.0)), [0, 5, 9, 300, 7, 8]
    read(0, [*text[:3], 11, 12])  # the last two will have to go
    rows = torch.cat([read(3, text[3:5]), read(5, text[5:])])
    with torch.no_grad():
        right = model(torch.tensor([text]))[0, 3:].softmax(-1)
    assert torch.allclose(rows, right, atol=1e-12)
    assert torch.equal(reader(model)(0, text).sum(-1), torch.ones(6).double())


def test_what_a_call_takes_is_positive_and_reads():
    read = reader(zoo.load("draft"))
    assert spent(read, 0, 3) > 0
    assert len(read(3, [4])) == 1
