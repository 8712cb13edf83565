#!/bin/sh
# Prints the path of an NVRTC library: the newest one of CUDA 13, unpacked under target/nvrtc. It compiles kernels on
# machines without a GPU and without a toolkit.
set -eu
cd "$(dirname "$0")/.."
folder=target/nvrtc
find_library() { find "$folder" -name 'libnvrtc.so.13' 2>/dev/null | head -n 1; }
library=$(find_library)
if [ -z "$library" ]; then
    mkdir -p "$folder"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" 'nvidia-cuda-nvrtc>=13,<14' >&2
    python3 -m zipfile -e "$folder"/nvidia_cuda_nvrtc-*.whl "$folder" >&2
    rm "$folder"/nvidia_cuda_nvrtc-*.whl
    library=$(find_library)
fi
[ -n "$library" ] || { echo "the package holds no libnvrtc.so.13" >&2; exit 1; }
echo "$PWD/$library"
