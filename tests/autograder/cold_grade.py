"""`autograder` with cold sandboxes only: a process that grades imports this file anew."""

from autograder.sandbox import warm

warm.reason["reason"] = "this run wants cold sandboxes"

if __name__ == "__main__":
    from autograder.cli import main

    main()
