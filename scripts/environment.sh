# Sourced by the scripts: makes .venv with the project in it, or says in one line what is missing.
# After it, $python is the environment's interpreter. Running again is fast: nothing is installed
# while pyproject.toml and the environment are unchanged.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

fail() {
    echo "lcspec: $1" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

python=.venv/bin/python
extras=$1
stamp=.venv/installed${extras:+-$extras}

install_project() {
    local log=.venv/install.log
    echo "lcspec: installing into .venv (the first time llama.cpp is compiled: several minutes)" >&2
    "$python" -m pip install --disable-pip-version-check --editable ".${extras:+[$extras]}" >"$log" 2>&1 && return
    tail -n 30 "$log" >&2
    if grep -qE 'NewConnectionError|ConnectTimeout|Temporary failure in name resolution|No matching distribution' "$log"; then
        fail "PyPI can't be reached: connect to a network, or point pip at a mirror (PIP_INDEX_URL), and run again"
    fi
    fail "installing failed, see above and $PWD/$log; once that is mended, run again"
}

if [ ! -x "$python" ]; then
    base=$(find_python) || fail "Python 3.10 to 3.13 is missing: install one (Debian: apt-get install python3-venv) or name it with PYTHON=/path/to/python"
    "$base" -m venv .venv >/dev/null 2>&1 || {
        rm -rf .venv
        fail "Python's venv module is missing: install it (Debian: apt-get install python3-venv) and run again"
    }
fi
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    if ! "$python" -c 'import llama_cpp' 2>/dev/null && ! command -v "${CXX:-c++}" >/dev/null && ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then
        fail "a C++ compiler is missing, which llama.cpp is built with: install one (Debian: apt-get install g++; macOS: xcode-select --install) and run again"
    fi
    install_project
    touch "$stamp"
fi
