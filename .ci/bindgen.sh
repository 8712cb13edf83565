#!/bin/sh
# Fails if the committed bindings to CANN are not what `cargo xtask bindgen` makes of ffi/; writes them with --write. Where the system has no
# libclang, that of the package libclang is used, unpacked under target/.
set -eu
cd "$(dirname "$0")/.."
folder=target/libclang
if [ -z "${LIBCLANG_PATH:-}" ] && ! ldconfig -p | grep -q 'libclang[-.0-9]*\.so'; then
    if [ -z "$(find "$folder" -name libclang.so 2>/dev/null)" ]; then
        mkdir -p "$folder"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" libclang==18.1.1 >&2
        python3 -m zipfile -e "$folder"/libclang-*.whl "$folder" >&2
        rm "$folder"/libclang-*.whl
    fi
    LIBCLANG_PATH=$PWD/$(dirname "$(find "$folder" -name libclang.so | head -n 1)")
    export LIBCLANG_PATH
fi
case "${1:-}" in
"") cargo xtask bindgen --check ;;
--write) cargo xtask bindgen ;;
*) echo "usage: .ci/bindgen.sh [--write]" >&2; exit 2 ;;
esac
