#!/usr/bin/env bash
# Runs the tools of compute-sanitizer over the test `sanitizer_subset`: every stage and type of the CUDA device on rows of
# at most 8192 logits, and one row of 131072. Needs a GPU. Exits with 1 where a tool finds something.
#
#   scripts/sanitize_cuda.sh                      builds the test, runs memcheck, racecheck, initcheck and synccheck
#   scripts/sanitize_cuda.sh --binary FILE ...    takes a test binary built elsewhere
#   scripts/sanitize_cuda.sh racecheck            runs this tool alone, or those named
#
# SAMEDRAW_CUDA_VARIANT (general, cluster:2, ...) chooses how the steps are launched; LOGS is the folder for the tools' output.
set -euo pipefail
logs=${LOGS:-target/sanitizer}
binary=
if [ "${1:-}" = --binary ]; then
    binary=${2:?--binary needs a file}
    shift 2
fi
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
if [ -z "$binary" ]; then
    cd "$(dirname "$0")/.."
    binary=$(cargo test --release --features cuda --test cuda_rows --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*cuda_rows[^"]*\)".*/\1/p' | tail -n 1)
fi
mkdir -p "$logs"
export SAMEDRAW_REQUIRE_CUDA=1
found=0
for tool in "${tools[@]}"; do
    log="$logs/$tool${SAMEDRAW_CUDA_VARIANT:+-${SAMEDRAW_CUDA_VARIANT//[:,]/-}}.log"
    start=$SECONDS
    if compute-sanitizer --tool "$tool" --error-exitcode 9 "$binary" --exact sanitized::sanitizer_subset --nocapture >"$log" 2>&1; then
        state=clean
    else
        state=FOUND
        found=1
    fi
    # A run that ran nothing is no clean run.
    grep -q "1 passed" "$log" || { state="FAILED (no test passed)"; found=1; }
    printf '%-10s %s, %d s: %s\n' "$tool" "$state" $((SECONDS - start)) "$(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -n 1)"
done
exit $found
