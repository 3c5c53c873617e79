# The grader. Its sandbox needs namespaces, which Docker forbids unless told otherwise:
#     docker build --file docker/grader.Dockerfile --tag llm-grader .
#     docker run --rm --volume "$PWD:/course" --workdir /course \
#         --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
#         --security-opt systempaths=unconfined llm-grader doctor
# /course holds labs/, nbgrader_config.py and what was handed in; gradebook and feedback go there.
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap util-linux \
    && rm -rf /var/lib/apt/lists/*
COPY constraints.txt pyproject.toml README.md LICENSE /opt/course/
WORKDIR /opt/course
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
    $(grep '^torch==' constraints.txt)
COPY efflib efflib
COPY autograder autograder
RUN pip install --no-cache-dir --constraint constraints.txt . && useradd --create-home grader
USER grader
ENTRYPOINT ["autograder"]
