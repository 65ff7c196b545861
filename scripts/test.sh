#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole suite on a bare machine; see --help.
set -uo pipefail
cd -- "$(dirname -- "$0")/.." || exit 1

PARTS=(lint unit series kernels xpu kunlun upstream e2e)

usage() {
  cat <<EOF
Usage: scripts/test.sh [--upstream VERSION] [PART...]

Builds and installs what is tested (scripts/apply_and_build.sh, into .venv), then
runs the parts named, or all of them, and shows the time of each:
  lint     ruff, mypy, clang-format, and the proof of the patch series
  unit     our Python, without an engine
  series   the fork tools, on made-up upstreams
  kernels  our kernels against upstream's in Triton's interpreter
           (VLLM_KUNLUN_TEST_PROFILE=more for 25 times the cases)
  xpu      the XPU's kernels on a simulator, against ours (docs/simulator.md)
  kunlun   the build for Kunlun, with g++ in the place of the XPU's compiler
  upstream upstream's own tests of V2 on our kernels (docs/upstream-tests.md)
  e2e      engines on tiny models: V1, V2 and V2 + dspark give the same tokens

With --upstream it is another version of upstream.toml that is tested, which goes
into .venv-VERSION: the default one stays installed beside it.
EOF
}

env=.venv
version=()
if [ "${1-}" = --upstream ]; then
  if [ $# -lt 2 ]; then
    echo "error: --upstream wants a version of upstream.toml, such as 0.26.0." >&2
    exit 2
  fi
  env=.venv-$2
  version=(--upstream "$2")
  shift 2
fi
for part in "$@"; do
  case $part in
    -h | --help) usage && exit 0 ;;
    lint | unit | series | kernels | xpu | kunlun | upstream | e2e) ;;
    *) echo "error: there is no part '$part': choose of ${PARTS[*]}." >&2 && exit 2 ;;
  esac
done
[ $# -gt 0 ] && PARTS=("$@")

bin=$env/bin
pytest() {
  "$bin/pytest" --quiet --durations=5 --durations-min=5 "$@"
}

lint() {
  "$bin/ruff" check . &&
    "$bin/ruff" format --check . &&
    "$bin/mypy" vllm_kunlun scripts/fork &&
    # One at a time: each has a conftest.
    for tests in tests/*/; do "$bin/mypy" "$tests" || return; done &&
    git ls-files 'csrc/*.h' 'csrc/*.cpp' '*.xpu' 'tests/xpu/*.h' 'tests/xpu/*.cpp' |
    xargs "$bin/clang-format" --dry-run --Werror &&
    scripts/verify --all
}

unit() { pytest tests/unit; }
series() { pytest tests/series; }
xpu() { pytest tests/xpu; }
kunlun() { pytest tests/kunlun; }
e2e() { pytest tests/e2e; }

kernels() { pytest_with_upstream tests/kernels; }
upstream() { pytest_with_upstream tests/upstream; }

pytest_with_upstream() {
  local tree
  tree=$(PYTHONPATH=scripts "$bin/python" -m fork pristine "${version[@]}") || return
  VLLM_KUNLUN_UPSTREAM_TREE=$tree pytest "$@"
}

started=$SECONDS
scripts/apply_and_build.sh --no-demo --env "$env" "${version[@]}" || exit 1
"$bin/pip" install --quiet --disable-pip-version-check 'vllm-kunlun[test]' || exit 1
report=$(printf '%-8s %4d s' build $((SECONDS - started)))
failed=()
for part in "${PARTS[@]}"; do
  echo "=== $part"
  begun=$SECONDS
  if "$part"; then result=ok; else result=FAILED && failed+=("$part"); fi
  report+=$(printf '\n%-8s %4d s  %s' "$part" $((SECONDS - begun)) "$result")
done
printf '=== in %d s\n%s\n' $((SECONDS - started)) "$report"
[ ${#failed[@]} -eq 0 ] || { echo "error: failed: ${failed[*]}." >&2 && exit 1; }
