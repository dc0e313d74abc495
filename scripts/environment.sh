# Sourced by the scripts, with the extras to install as its argument: makes .venv with the project in it
# and sets $python to its interpreter, or says in one line what is missing. Nothing is installed while
# pyproject.toml is unchanged.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

python=.venv/bin/python
extras=$1
stamp=.venv/installed${extras:+-$extras}

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
    fail "Python 3.10 to 3.13 is missing: install one (Debian: apt-get install python3-venv) or name it in PYTHON"
}

make_environment() {
    local base
    base=$(find_python) || exit 1
    "$base" -m venv .venv >/dev/null 2>&1 || {
        rm -rf .venv
        fail "$base lacks its venv module: install it (Debian: apt-get install python3-venv) and run again"
    }
}

install_project() {
    local log=.venv/install.log compiler
    echo "lcspec: installing into .venv; the first time this compiles llama.cpp, for several minutes" >&2
    "$python" -m pip install --disable-pip-version-check --editable ".${extras:+[$extras]}" >"$log" 2>&1 && return
    if grep -qE 'NewConnectionError|ConnectTimeout|ReadTimeout|name resolution|from versions: none' "$log"; then
        fail "no network: PyPI can't be reached. Connect, or point pip at a mirror (PIP_INDEX_URL), and run again"
    fi
    for compiler in "${CXX:-c++}" g++ clang++; do
        command -v "$compiler" >/dev/null && fail "installing failed; the reason is at the end of $PWD/$log"
    done
    fail "no C++ compiler, which llama.cpp needs: install one (Debian: apt-get install g++) and run again"
}

[ -x "$python" ] || make_environment
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    install_project
    touch "$stamp"
fi
