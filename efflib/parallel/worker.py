"""One of the processes of `processes.Processes`: python -m efflib.parallel.worker RANK

It reads jobs from its standard input, a line with a folder each, and answers with a line.  When the
input ends, it ends: so it never outlives the program that started it, however that ends.
"""

import os
import sys
import threading
import traceback
from collections import deque
from pathlib import Path

import torch
import torch.distributed as dist

from efflib.parallel.communicator import total
from efflib.parallel.distributed import Distributed


def run_job(rank: int, folder: Path) -> None:
    """Runs folder/job.<rank> and writes folder/result.<rank>: {"value", "calls"} or {"fault"}."""
    job = torch.load(folder / f"job.{rank}", weights_only=True)
    try:
        store = dist.FileStore(str(folder / "store"), job["size"])
        comm = Distributed(rank, job["size"], store, limit=job["limit"])
        try:
            scope = {"__name__": "rank", "__file__": job["name"]}
            exec(compile(job["source"], "<notebook>", "exec"), scope)
            with torch.no_grad():
                value = scope[job["name"]](*job["args"], comm)
        finally:
            comm.close()
        kinds = sorted({call.kind for call in comm.calls})
        result = {"value": value, "calls": {kind: total(comm.calls, kind) for kind in kinds}}
        torch.save(result, folder / f"half.{rank}")
    except Exception as fault:
        told = "".join(traceback.format_exception(fault, limit=-3))
        torch.save(
            {"fault": f"{type(fault).__name__}: {fault}", "trace": told}, folder / f"half.{rank}"
        )
    os.replace(folder / f"half.{rank}", folder / f"result.{rank}")


def main() -> None:
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the notebook's functions print goes to the log
    jobs: deque[str] = deque()
    ready = threading.Semaphore(0)

    def listen() -> None:
        for line in sys.stdin:
            jobs.append(line.strip())
            ready.release()
        os._exit(0)  # also in the middle of a job

    threading.Thread(target=listen, daemon=True).start()
    answers.write("here\n")
    while True:
        ready.acquire()
        run_job(rank, Path(jobs.popleft()))
        sys.stdout.flush()
        answers.write("done\n")


if __name__ == "__main__":
    main()
