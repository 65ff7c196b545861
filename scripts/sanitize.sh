#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels' tests on a library that watches itself; see --help.
set -euo pipefail
cd -- "$(dirname -- "$0")/.."

usage() {
  cat <<EOF
Usage: scripts/sanitize.sh [address,undefined | thread] [PYTEST-ARGUMENT...]

Builds the kernels with sanitizers (by default address,undefined) in
build/sanitize-*, and runs tests/kernels on them with few cases each. The first
report of a sanitizer ends the run; none is suppressed and no test is left out.
Needs gcc and the environment that scripts/test.sh makes in .venv, or the one whose
folder is in VLLM_KUNLUN_VENV.
EOF
}

fail() {
  echo "error: $1" >&2
  exit 1
}

sanitizers=address,undefined
case ${1-} in
  -h | --help) usage && exit 0 ;;
  address,undefined | thread) sanitizers=$1 && shift ;;
  -* | '') ;;
  *) fail "there are no sanitizers '$1': choose address,undefined or thread." ;;
esac

venv=$(realpath -- "${VLLM_KUNLUN_VENV-.venv}")
[ -x "$venv/bin/pytest" ] ||
  fail "$venv has no pytest: run scripts/test.sh once, or name an environment in VLLM_KUNLUN_VENV."
export PATH=$venv/bin:$PATH
tree=${VLLM_KUNLUN_UPSTREAM_TREE-}
[ -n "$tree" ] || tree=$(PYTHONPATH=scripts python -m fork pristine)

folder=$PWD/build/sanitize-$sanitizers
# Optimised less than the real library: reports then name the right line. Without the
# simulator, which has checks of its own and switches stacks behind a sanitizer's back.
cmake -S . -B "$folder" -G Ninja --log-level=WARNING \
  -DPython_EXECUTABLE="$venv/bin/python" \
  -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DVLLM_KUNLUN_SANITIZE="$sanitizers" -DVLLM_KUNLUN_SIM=OFF
cmake --build "$folder" --parallel 2

# A package of this library, which comes before the installed one.
package=$folder/package
rm -rf -- "$package"
mkdir -p -- "$package"
cp -r -- vllm_kunlun "$package/"
rm -rf -- "$package/vllm_kunlun/lib"
cmake --install "$folder" --prefix "$package" >/dev/null

# Python is not built with sanitizers, so that theirs must be there before it starts;
# and the C++ library, for them to find what throws exceptions.
runtime() { realpath -- "$(g++ -print-file-name="$1")"; }
options=halt_on_error=1
case $sanitizers in
  thread) preload=$(runtime libtsan.so) ;;
  *)
    preload=$(runtime libasan.so)
    # Python and torch keep memory until the end.
    options+=:detect_leaks=0:print_stacktrace=1
    ;;
esac

# torch and NumPy stay on one thread: what their own threads do is not to be judged here.
PYTHONPATH=$package \
  LD_PRELOAD="$preload $(runtime libstdc++.so)" \
  ASAN_OPTIONS=$options UBSAN_OPTIONS=$options TSAN_OPTIONS=$options \
  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
  VLLM_KUNLUN_TEST_PROFILE=brief VLLM_KUNLUN_UPSTREAM_TREE=$tree \
  pytest --quiet -p no:cacheprovider --durations=5 --durations-min=5 \
  tests/kernels "$@"
