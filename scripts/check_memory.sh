#!/usr/bin/env bash
# Looks for memory errors and undefined behaviour on the CPU path: fuzzing, AddressSanitizer, Miri, valgrind.
#
#   scripts/check_memory.sh SECONDS [fuzz|asan|miri|valgrind]...
#
# SECONDS is how long each fuzz target runs; without names everything runs. A tool that is not installed is a line that
# says SKIPPED, a finding makes the script fail once the other checks are done. What they need:
#
#   fuzz      cargo install cargo-fuzz, a C++ compiler
#   asan      nothing but the compiler
#   miri      rustup component add miri rust-src, which only a nightly toolchain has
#   valgrind  valgrind
#
# Sanitizers and coverage are unstable flags of the compiler: a nightly toolchain is taken if there is one, else the
# installed one with RUSTC_BOOTSTRAP=1.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
shift
for name in "$@"; do
    case $name in fuzz | asan | miri | valgrind) ;; *) echo "no check is called $name"; exit 2 ;; esac
done
wanted=" ${*:-fuzz asan miri valgrind} "

target=$(rustc -vV | sed -n 's/^host: //p')
build=$PWD/target/check_memory
findings=()
if rustup run nightly rustc --version > /dev/null 2>&1; then
    cargo=(cargo +nightly)
else
    cargo=(env RUSTC_BOOTSTRAP=1 cargo)
fi
echo "compiler: $("${cargo[@]}" --version)"

section() { printf '\n==== %s (%d s so far)\n' "$1" "$SECONDS"; }
wants() { [[ $wanted == *" $1 "* ]]; }
skipped() { echo "SKIPPED: $1"; }
run() {
    local what=$1
    shift
    "$@" || { echo "FOUND: $what"; findings+=("$what"); }
}

if wants fuzz; then
    section "fuzzing, $seconds s a target"
    if ! cargo fuzz --version > /dev/null 2>&1; then
        skipped "cargo-fuzz is not installed"
    else
        # What earlier runs found is kept in fuzz/corpus; files of the tests are where the first one starts.
        mkdir -p fuzz/corpus/step_file fuzz/corpus/steps
        cp -n tests/data/*.safetensors fuzz/corpus/step_file/
        for size in 1 17 65 257 801; do
            [[ -e fuzz/corpus/steps/$size ]] || head -c "$size" /dev/urandom > "fuzz/corpus/steps/$size"
        done
        run "fuzz target step_file" "${cargo[@]}" fuzz run step_file -- \
            -dict=fuzz/step_file.dict -max_len=65536 "-max_total_time=$seconds" -print_final_stats=1
        run "fuzz target steps" "${cargo[@]}" fuzz run steps -- \
            -max_len=4096 "-max_total_time=$seconds" -print_final_stats=1
    fi
fi

if wants asan; then
    section "AddressSanitizer over the tests of the CPU path"
    # With --target, so that build scripts are built without it.
    run "AddressSanitizer" env RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR="$build/asan" SAMEDRAW_DRAWS=2000 \
        "${cargo[@]}" test --target "$target" --features step-file --lib --test conformance --test cpu_paths \
        --test edges --test independence --test statistics --test step_files --test step_runs --test vectors
fi

if wants miri; then
    section "Miri over the CPU device's unsafe code"
    if ! cargo +nightly miri --version > /dev/null 2>&1; then
        skipped "Miri is not installed"
    else
        # Blocks hold addresses as integers, which Miri calls permissive provenance. A row is as short as it can be and
        # still have groups, blocks and a rest.
        export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation" CARGO_TARGET_DIR="$build/miri"
        run "Miri, unit tests of the device" cargo +nightly miri test --lib device::cpu::
        run "Miri, base lanes" env SAMEDRAW_ROWS=40 SAMEDRAW_LONGEST=700 \
            cargo +nightly miri test --test cpu_paths every_path
        if [[ $target == x86_64* ]]; then
            # Miri has the processor that the flags name.
            run "Miri, AVX2" env SAMEDRAW_ROWS=40 SAMEDRAW_LONGEST=700 SAMEDRAW_REQUIRE_PATH=avx2 \
                RUSTFLAGS="-Ctarget-feature=+avx2,+popcnt,+bmi1,+bmi2" CARGO_TARGET_DIR="$build/miri_avx2" \
                cargo +nightly miri test --test cpu_paths every_path
        fi
        unset MIRIFLAGS CARGO_TARGET_DIR
    fi
fi

if wants valgrind; then
    section "valgrind over the tests of the CPU path"
    if ! command -v valgrind > /dev/null; then
        skipped "valgrind is not installed"
    else
        runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<< "$target")_RUNNER
        run "valgrind" env "$runner=valgrind --quiet --error-exitcode=9" SAMEDRAW_ROWS=300 SAMEDRAW_LONGEST=4000 \
            cargo test --features step-file --test conformance --test cpu_paths --test step_runs
    fi
fi

section "done"
if ((${#findings[@]} > 0)); then
    printf 'FOUND: %s\n' "${findings[@]}"
    exit 1
fi
echo "nothing was found"
