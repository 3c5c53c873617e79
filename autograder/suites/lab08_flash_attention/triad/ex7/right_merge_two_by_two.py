"""merge of exercise 1, part by part."""


def merge_parts(o, lse):
    found = o[0], lse[0]
    for i in range(1, len(o)):
        found = merge(*found, o[i], lse[i])
    return found
