#!/usr/bin/env bash
# Run once, when Gradescope builds the image: Python 3.11 or later, torch for CPUs, a user for students.
set -euo pipefail
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap util-linux ca-certificates
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=python3.11  # Ubuntu 22.04, Gradescope's default, has it beside 3.10
    apt-get install -y -qq --no-install-recommends python3.11
fi
apt-get install -y -qq --no-install-recommends "$python-venv"
"$python" -m venv /autograder/venv
pip="/autograder/venv/bin/pip install --quiet --disable-pip-version-check"
cd /autograder/source  # torch first: its build for CPUs is not at the ordinary index
$pip --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' constraints.txt)"
$pip --constraint constraints.txt --requirement requirements.txt
id student >/dev/null 2>&1 || useradd --system --shell /usr/sbin/nologin student
mkdir -p -m 755 /autograder/cache/efflib-autograder  # a copy of efflib, without what the lab withholds
chmod -R go-rwx /autograder/source
