#!/bin/sh
# Compares our declarations of CANN's calls with the vendor's headers, which come inside the package torch-npu. They are
# unpacked under target/ and stay there; they are not ours to keep.
set -eu
cd "$(dirname "$0")/.."
folder=target/acl-headers
version=2.14.0
if [ ! -f "$folder/$version/acl/acl.h" ]; then
    rm -rf "$folder"
    mkdir -p "$folder/$version"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" "torch-npu==$version" >&2
    python3 - "$folder" "$version" <<'PYTHON'
import glob, os, sys, zipfile

folder, version = sys.argv[1:]
start = "torch_npu/include/acl/"
with zipfile.ZipFile(glob.glob(f"{folder}/torch_npu-{version}*.whl")[0]) as wheel:
    for name in wheel.namelist():
        if name.startswith(start) and name.endswith(".h"):
            path = os.path.join(folder, version, "acl", name[len(start):])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as header:
                header.write(wheel.read(name))
PYTHON
    rm "$folder"/torch_npu-*.whl
fi
cargo xtask abi-check "$folder/$version"
