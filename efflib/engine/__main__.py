"""Serve a model over HTTP, as OpenAI's API does.

    python -m efflib.engine target                      a model of the zoo, on port 8000
    python -m efflib.engine path/to/checkpoint          Hugging Face's layout, model_type llama

Then open http://127.0.0.1:8000/, or point any client of OpenAI's API at http://127.0.0.1:8000/v1;
its key may be anything.  Needs the extra `server`: pip install 'efficient-llm-course[server]'.
"""

import argparse
import sys
from collections.abc import Sequence

from efflib.engine.engine import Engine, Sizes
from efflib.engine.languages import load
from efflib.engine.proposals import Lookup
from efflib.engine.weights import KINDS, with_weights

USUAL = Sizes()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m efflib.engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("model", help="a name of the zoo, or a folder with a checkpoint")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=8000, help="0: any that is free")
    made.add_argument("--name", help="what clients call the model; default: as above")
    made.add_argument("--weights", choices=KINDS, default="as_is")
    made.add_argument("--blocks", type=int, default=USUAL.blocks, help="of the cache")
    made.add_argument("--block", type=int, default=USUAL.block, help="tokens of a block")
    made.add_argument("--budget", type=int, default=USUAL.budget, help="tokens of a step")
    made.add_argument("--most", type=int, default=USUAL.most, help="requests at once")
    made.add_argument("--open", type=int, default=256, help="requests that run or wait")
    made.add_argument("--no-proposals", action="store_true", help="a token a pass")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        import uvicorn

        from efflib.engine.server import Limits, application
    except ImportError as missing:
        print(f"{missing}: pip install 'efficient-llm-course[server]'", file=sys.stderr)
        return 2
    try:
        model, language = load(options.model)
        sizes = Sizes(options.blocks, options.block, options.budget, options.most)
        proposer = None if options.no_proposals else Lookup()
        engine = Engine(with_weights(model, options.weights), sizes, proposer=proposer)
    except (ValueError, FileNotFoundError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    name, limits = options.name or options.model, Limits(open=options.open)
    app = application(engine, language, name, limits)
    uvicorn.run(app, host=options.host, port=options.port, log_level="info")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
