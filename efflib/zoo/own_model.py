"""A model of one's own, for the last section of a lab: `own = lab.use("FOLDER")`.

    own.model                        transformers' model (where that is not installed, our Llama)
    own.linears                      {name: linear} of its blocks
    own.calibration, own.held_out    pieces of text in its tokens, where the model is
    own.loss(model)                  nats a token on the held-out pieces
    own.changed(f)                   a copy whose weight `name` is f(name, w)

A folder is one as the Hub has it: config.json, safetensors, tokenizer.json.  For a name
"owner/name" the Hub is asked, or, without a network, what was downloaded before; nothing else asks
the network.  "target" and "draft" are the zoo's models, written in such files.  Which kinds of
models there are is said by `efflib.models.hub`.
"""

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.device import chosen_device, chosen_dtype, device_of, place
from efflib.models.checkpoint import CONFIG_FILE, from_pretrained, save_pretrained
from efflib.models.groups import with_linears
from efflib.models.hub import ELSEWHERE, FAMILIES, describe
from efflib.zoo import checkpoints, corpus
from efflib.zoo.evaluation import logits_of

MODEL = "EFFLIB_MODEL"  # the model of `lab.use()`
SHIPPED = ("target", "draft")  # of the zoo: plain Llamas, which other programs open
FILES = ("*.json", "*.safetensors")
LENGTH, CALIBRATION, HELD_OUT = 128, 16, 8  # tokens of a piece, pieces of each kind
GIB = 2**30


@dataclass
class OwnModel:
    """What `open_model` finds; see the module."""

    name: str
    model_type: str
    model: nn.Module
    linears: dict[str, nn.Linear]
    calibration: Tensor  # [n, T] ids
    held_out: Tensor  # [m, T + 1] ids

    @torch.no_grad()
    def loss(self, model: nn.Module | None = None) -> float:
        """Nats a token on the held-out pieces, read one by one; of the model as it is if None."""
        losses = []
        for ids in self.held_out:
            logits = logits_of(self.model if model is None else model, ids[None, :-1])[0]
            losses.append(F.cross_entropy(logits.float(), ids[1:]).item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def changed(
        self, change: Callable[[str, Tensor], Tensor], model: nn.Module | None = None
    ) -> nn.Module:
        """A copy with weights change(name, w), in the dtype of w [N, K]; it takes as much memory.

        model: another of the same names, to be copied in place of the model as it is.  What
        `change` makes itself, `torch.zeros(n)`, is made where the model is.
        """
        changed = copy.deepcopy(self.model if model is None else model)
        with device_of(changed):
            for name in self.linears:
                weight = changed.get_submodule(name).weight
                weight.copy_(change(name, weight.detach().clone()))
        return changed

    @torch.no_grad()
    def collected(self, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """{linear: of(x)} for the inputs x [n T, K] of each linear in the calibration pieces.

        The model reads the pieces once for each block, so that one block's inputs are held.
        Raises ValueError for a linear that no token reached, as an expert may be.
        """
        found = {}
        for block in describe(self.model).blocks:
            seen = self._inputs([n for n in self.linears if n.startswith(f"{block.name}.")])
            with device_of(self.model):
                found |= {name: of(torch.cat(pieces)) for name, pieces in seen.items()}
        return found

    def _inputs(self, names: list[str]) -> dict[str, list[Tensor]]:
        seen = {name: [] for name in names}
        with ExitStack() as stack:
            for name in names:

                def keep(module: nn.Module, args: tuple, name: str = name) -> None:
                    seen[name].append(args[0].flatten(0, -2))

                stack.callback(self.linears[name].register_forward_pre_hook(keep).remove)
            without_head = getattr(self.model, "base_model", self.model)
            for ids in self.calibration:
                without_head(ids[None])
        if missed := [name for name, pieces in seen.items() if not pieces]:
            raise ValueError(f"no token of the calibration text reached {missed[0]}")
        return seen


def folder_of(name: str | Path) -> Path:
    """The folder of a model: itself, or where the Hub's files of "owner/name" are on this machine.

    Its config.json alone is asked for first, so that a model of a kind that is not known here is
    refused before its weights come.  Raises ValueError as `known_type`, for a name that is neither,
    and for one that is not here while the Hub cannot be reached.
    """
    if Path(name).is_dir():
        known_type(Path(name))
        return Path(name)
    if not checkpoints.HUB_NAME.fullmatch(str(name)):
        raise ValueError(
            f"{str(name)!r} is no folder here, none of {', '.join(SHIPPED)}, "
            'and no name at the Hub, "owner/name"'
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise ValueError(f"transformers is not installed: it asks the Hub for {name}") from error
    try:
        known_type(Path(snapshot_download(str(name), allow_patterns=[CONFIG_FILE])))
        return Path(snapshot_download(str(name), allow_patterns=list(FILES)))
    except (OSError, HfHubHTTPError) as error:
        raise ValueError(
            f"{name} is not on this machine, and the Hub did not give it (is there a network, is "
            f"it a gated model?): download it, and name the folder. {type(error).__name__}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def known_type(folder: Path) -> str:
    """The model_type in the folder's config.json.

    Raises ValueError if there is none, or one that `models.hub` does not know, naming those known.
    """
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise ValueError(f"{folder} is no folder with a {CONFIG_FILE}: download the model first")
    kind = json.loads(file.read_text(encoding="utf-8")).get("model_type")
    if kind not in FAMILIES:
        why = ELSEWHERE.get(kind, f"known are {', '.join(FAMILIES)}")
        raise ValueError(f"{folder.name}: model_type={kind!r} is not known here; {why}")
    return kind


def open_model(
    name: str | Path | None = None,
    text: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> OwnModel:
    """The model on EFFLIB_DEVICE, in EFFLIB_DTYPE, and text for it.

    name: a folder, "owner/name" or a model of the zoo; None: EFFLIB_MODEL, or else "target".
    text: a file, whose first half calibrates and whose second half is held out; None: the course's
    code.  say: is told what is read, before it is.  Raises ValueError as `folder_of` and
    `chosen_device`, for a folder without tokenizer.json or weights, and for a text too short.
    """
    name = str(name or os.environ.get(MODEL) or "target")
    device, dtype = chosen_device(), chosen_dtype()
    with tempfile.TemporaryDirectory() as empty:
        folder = write_shipped(name, Path(empty)) if name in SHIPPED else folder_of(name)
        kind, pieces = known_type(folder), _pieces(folder, text)
        stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        say(f"{name}: {kind}, {stored / GIB:.3f} GiB of weights, to {device} in {dtype}")
        model = place(_read(folder, dtype), device)
    model = with_linears(model) if kind in ("gpt2", "mixtral") else model
    return OwnModel(name, kind, model, _linears(model), *(ids.to(device) for ids in pieces))


def _linears(model: nn.Module) -> dict[str, nn.Linear]:
    """The linears of the blocks, but no router, in the order of the blocks."""
    found = {}
    for block in describe(model).blocks:
        readers = [name for names in block.norms.values() for name in names]
        found |= {n: model.get_submodule(n) for n in (*readers, block.out, *block.downs)}
    return found


def write_shipped(name: str, folder: Path) -> Path:
    """A model of the zoo in the files of the Hub; returns the folder."""
    save_pretrained(checkpoints.load(name), folder)
    shutil.copy(checkpoints.verify(checkpoints.TOKENIZER), folder)
    return folder


def _read(folder: Path, dtype: torch.dtype) -> nn.Module:
    """By transformers; where it is not installed, by our own reader, which knows Llamas alone."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        if known_type(folder) != "llama":
            raise ValueError(f"transformers is not installed: it opens {folder.name}") from error
        return from_pretrained(folder, dtype)
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, use_safetensors=True
        ).eval()
    except OSError as error:
        raise ValueError(f"{folder} has no weights that could be read: {error}") from error


def token_ids(folder: str | Path, text: str) -> Tensor:
    """The text in the tokens of the folder's tokenizer.json, no others added. [tokens] int64

    Raises ValueError if there is no such file.
    """
    from tokenizers import Tokenizer

    file = Path(folder) / checkpoints.TOKENIZER
    if not file.is_file():
        raise ValueError(f"{folder} has no {checkpoints.TOKENIZER}")
    return torch.tensor(Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)


def in_pieces(ids: Tensor, length: int, most: int) -> Tensor:
    """The first pieces of `length` ids, at most so many. [pieces, length]

    Raises ValueError if there is not one.
    """
    count = min(most, len(ids) // length)
    if not count:
        raise ValueError(f"a text of {len(ids)} tokens is too short for a piece of {length}")
    return ids[: count * length].view(count, length)


def _pieces(folder: Path, text: str | Path | None) -> tuple[Tensor, Tensor]:
    """(calibration [n, LENGTH], held out [m, LENGTH + 1])."""
    if text is None:
        halves = ["\n\n".join(_course_text(held_out)) for held_out in (False, True)]
        ids = [token_ids(folder, half) for half in halves]
    else:
        whole = token_ids(folder, Path(text).read_text(encoding="utf-8"))
        ids = list(whole.tensor_split(2))
    return in_pieces(ids[0], LENGTH, CALIBRATION), in_pieces(ids[1], LENGTH + 1, HELD_OUT)


def _course_text(held_out: bool) -> list[str]:
    """The beginnings of some documents, enough for all pieces."""
    documents = list(corpus.documents("code", held_out).values())
    return [text[:2000] for text in documents[:: max(1, len(documents) // 16)][:16]]
