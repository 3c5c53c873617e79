"""The requests of lab 18's board as grading serves them, and their answers.

    python benchmarks/lab18_board.py 5        writes autograder/suites/lab18_engine/board.toml

The number is the seed of `trace`: the kind of requests that the notebook's board has, other ones.
Answers are those of `generate` with the draft in float64, so that grading needs no model.  Prompts
are pieces of this Python's standard library; the file has both, and so is the same everywhere.
"""

import sys
from pathlib import Path

import torch

from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.traffic.joined import trace

FILE = Path(__file__).parents[1] / "autograder" / "suites" / "lab18_engine" / "board.toml"
REQUESTS = 16


def main() -> None:
    torch.set_num_threads(1)
    model, lines = zoo.load("draft").double(), []
    for prompt, tokens in trace(REQUESTS, seed=int(sys.argv[1])):
        whole = generate(model, torch.tensor([prompt]), tokens)[0].tolist()
        lines += ["[[asked]]", f"prompt = {prompt}", f"answer = {whole[len(prompt) :]}", ""]
    head = "# Requests of the board and their answers: made by benchmarks/lab18_board.py\n\n"
    FILE.write_text(head + "\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}: {REQUESTS} requests")


if __name__ == "__main__":
    main()
