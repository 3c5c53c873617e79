"""Values rounded to float16 on the way: small ones are lost, large ones infinite."""

FAILS = ["test_absorb_in_any_cuts", "test_blocks_of_every_size"]
absorb_before = absorb


def absorb(state, scores, values):
    return absorb_before(state, scores, values.half().float())
